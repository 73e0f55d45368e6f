"""Measures integers and booleans: see aoti_debug.compare.measure.measure. Runs in a child process."""

from __future__ import annotations

from aoti_debug.compare.measure.evaluated import Evaluated, Subject, element, measurement, spread
from aoti_debug.compare.protocol.limits import LARGEST
from aoti_debug.compare.protocol.measurement import Measurement


def measure_discrete(subject: Subject, output: Evaluated) -> Measurement:
    """Measures an output of integers or booleans, of at least one element."""
    import torch

    actual, eager = output.actual.reshape(-1), output.eager.reshape(-1)
    different = actual != eager
    if not output.perturbed and not bool(different.any()):
        return measurement(subject, output, equals_eager=True)
    unstable, reached = torch.zeros_like(different), torch.zeros_like(different)
    for other in (output.kernel, output.double, *output.perturbed):
        unstable |= other.reshape(-1) != eager
        reached |= other.reshape(-1) == actual
    # Which index is right may depend on rounding: then it is one that rounding leads to, or that of an equal element.
    allowed = unstable if output.ties is None else reached | output.ties.reshape(-1)
    wrong = different & ~allowed
    error = (actual.to(torch.float64) - eager.to(torch.float64)).abs()
    marked = wrong if bool(wrong.any()) else different
    worst = int(marked.to(torch.uint8).argmax())
    return measurement(
        subject,
        output,
        wrong=int(wrong.sum()),
        excess=LARGEST if bool(wrong.any()) else 0.0,
        worst=element(worst, output) if bool(different.any()) else None,
        equals_eager=not bool(different.any()),
        atol=float(error.max()),
        sensitivity=float(unstable.sum()) if output.perturbed else -1.0,
        spread=spread(output, torch.where(wrong, torch.full_like(error, LARGEST), torch.zeros_like(error))),
    )
