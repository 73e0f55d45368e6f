"""Measures how far an output is from its reference, and what rounding may explain. Runs in a child process.

The allowed error of an element of a floating output is the largest of 1 ULP, eager's own error there, and half a ULP
plus how far rounding may move it before it is stored, where that is known (aoti_debug.compare.worker.error_bounds).

Elsewhere, with sums for instance, it is for an element with the reference r (computed in float64)

    2 ULP                                        its own rounding when it is stored
    + 8 · g · (u · |r| + change)                 rounding within the kernel
    + 4 · eager                                  what eager and the kernel's arithmetic get wrong themselves

where u is the unit of the kernel's arithmetic (2⁻²³; float64: 2⁻⁵²), `change` how much r moves when every input is
perturbed by one such unit at random, and every function by its bound, and g = 1 + √n / 4 grows with the number n of
terms in the longest sum.
`change` and `eager` are the largest of all elements of similar size (|r| within a factor of about 2⁸): an element that
happens to come out exactly right says nothing about its neighbours. The perturbation is only computed where the rest
does not suffice.

Outputs in 16 or 8 bits also must not lean to one side: see aoti_debug.compare.measure.floating.

NaN and infinities have to be where eager, the kernel's arithmetic or float64 has them; an infinity may also stand where
r is out of the dtype's range, and where a sum overflows if its terms are added in another order. Signs of zero and of
NaN do not count.

Integers and booleans have to equal eager's, except where the decision is not stable: the arithmetics or the perturbed
inputs disagree, or two indices select equal elements.

What is computed from the index of one of several equal elements may be anything between what the choices among them
give: see aoti_debug.compare.measure.choices.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aoti_debug.compare.measure.evaluated import Evaluated, Subject, element, measurement, spread
from aoti_debug.compare.measure.floating import measure_floating
from aoti_debug.compare.protocol.measurement import LARGEST, Measurement

if TYPE_CHECKING:
    import torch


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


def measure(subject: Subject, output: Evaluated) -> Measurement:
    """Measures an output; its shape and dtype are those of the recorded tensor."""
    if output.actual.numel() == 0:
        return measurement(subject, output, equals_eager=True)
    if output.actual.dtype.is_complex:
        return measure(subject, _as_real(output))
    is_floating = output.actual.dtype.is_floating_point
    return measure_floating(subject, output) if is_floating else measure_discrete(subject, output)


def _as_real(output: Evaluated) -> Evaluated:
    import torch

    def real(tensor: torch.Tensor) -> torch.Tensor:
        return torch.view_as_real(tensor.resolve_conj().contiguous())

    return Evaluated(
        actual=real(output.actual),
        eager=real(output.eager),
        kernel=real(output.kernel),
        double=real(output.double),
        perturbed=tuple(map(real, output.perturbed)),
        terms=output.terms,
        largest_sum=output.largest_sum,
    )
