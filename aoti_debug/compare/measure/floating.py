"""Measures floating outputs: see aoti_debug.compare.measure.measure for what is allowed. Runs in a child process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from aoti_debug.compare.measure.bias import bias
from aoti_debug.compare.measure.evaluated import Evaluated, Subject, element, measurement, spread
from aoti_debug.compare.measure.ulp import finite, relative_difference, rms, ulp, unit
from aoti_debug.compare.protocol.limits import LARGEST, SMALLEST
from aoti_debug.compare.protocol.measurement import Measurement

if TYPE_CHECKING:
    import torch

_STORE, _ARITHMETIC, _EAGER = 2.0, 8.0, 4.0
_SIMILAR_BITS = 4  # elements whose exponents differ by less than twice this are of similar size


def measure_floating(subject: Subject, output: Evaluated) -> Measurement:
    """Measures an output of a real floating dtype, of at least one element."""
    import torch

    dtype = output.actual.dtype
    wide = torch.float64
    actual, eager, kernel, double = (
        t.to(wide).reshape(-1) for t in (output.actual, output.eager, output.kernel, output.double)
    )
    kernel = kernel.to(dtype).to(wide)
    step = ulp(double, dtype)
    error, eager_error, kernel_error = ((t - double).abs() for t in (actual, eager, kernel))
    both = actual.isfinite() & double.isfinite()
    groups = _similar(double, step)
    others = torch.maximum(finite(eager_error), finite(kernel_error))
    changes = [finite((p.to(wide).reshape(-1) - double).abs()) for p in output.perturbed]
    change = torch.stack(changes).amax(0) if changes else torch.zeros_like(double)
    growth = 1 + output.terms**0.5 / 4
    arithmetic = unit(dtype) * finite(double.abs()) + _largest_of(groups, change)
    allowed = _STORE * step + _ARITHMETIC * growth * arithmetic + _EAGER * _largest_of(groups, others)
    ratio = torch.where(both, error / allowed, torch.zeros_like(error))
    misplaced = ~both & ~_nonfinite_as_expected(actual, (eager, kernel, double), allowed, dtype)
    misplaced &= ~_overflows_in_another_order(actual, double, output)
    ratio = torch.where(misplaced, torch.full_like(ratio, torch.inf), ratio)
    leaning = 0.0
    if not bool((ratio > 1).any()):
        perturbed = [p.to(wide).reshape(-1) for p in output.perturbed]
        leaning = bias(actual, (eager, kernel, double), perturbed, step, dtype)
    if leaning:
        ratio = torch.where(both & (actual != kernel), 1 + error / step, torch.zeros_like(error))
    worst = int(ratio.argmax())
    relative = relative_difference(output.actual, output.double)
    in_ulp = torch.where(both, error / step, torch.zeros_like(error))
    return measurement(
        subject,
        output,
        wrong=int((ratio > 1).sum()),
        excess=min(float(ratio[worst]), LARGEST),
        worst=element(worst, output) if float(ratio[worst]) > 0 else None,
        bias=leaning,
        equals_eager=bool(((actual == eager) | (actual.isnan() & eager.isnan())).all()),
        ulp_median=float(in_ulp.median()),
        ulp_max=float(in_ulp.max()),
        atol=float(finite(error).max()),
        rtol=_largest_relative(error, double, both),
        rms=rms(finite(error)),
        relative=relative,
        relative_ulp=relative / torch.finfo(dtype).eps,
        eager_rms=rms(finite(eager_error)),
        eager_ulp_max=float((finite(eager_error) / step).max()),
        sensitivity=rms(change) / max(unit(dtype) * rms(finite(double)), SMALLEST) if changes else -1.0,
        spread=spread(output, ratio, in_ulp, misplaced),
    )


def _similar(values: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
    """The group of each value, by its exponent; zero has that of the smallest numbers."""
    import torch

    magnitude = torch.maximum(finite(values.abs()), step)
    return (torch.frexp(magnitude).exponent + 1100) // _SIMILAR_BITS


def _largest_of(groups: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """The largest of the values of the same group and of its two neighbours, for each element."""
    import torch

    if not bool(values.any()):
        return values
    index = groups.long() + 1
    own = torch.zeros(int(index.max()) + 2, dtype=values.dtype, device=values.device)
    own.scatter_reduce_(0, index, values, "amax")
    largest = own.clone()
    largest[1:-1] = torch.maximum(torch.maximum(own[:-2], own[1:-1]), own[2:])
    return largest[index]


def _nonfinite_as_expected(
    actual: torch.Tensor, evaluated: Sequence[torch.Tensor], allowed: torch.Tensor, dtype: torch.dtype
) -> torch.Tensor:
    """True where an infinity or NaN, or a number in its place, is one that some arithmetic has as well."""
    import torch

    expected = torch.zeros_like(actual, dtype=torch.bool)
    for other in evaluated:
        expected |= (actual.isnan() & other.isnan()) | (actual == other) | (actual.isfinite() & other.isfinite())
    double = evaluated[-1]
    beyond = double.abs() + allowed >= torch.finfo(dtype).max
    return expected | (actual.isinf() & beyond & (actual.sign() == double.sign()))


def _overflows_in_another_order(actual: torch.Tensor, double: torch.Tensor, output: Evaluated) -> torch.Tensor:
    """True where a sum of terms of both signs may have been out of range on the way to a large, finite number."""
    import torch

    wide = torch.float64 if output.actual.dtype == torch.float64 else torch.float32
    largest = torch.finfo(wide).max
    near = double.abs() >= largest / (4 * output.terms)
    return ~actual.isfinite() & near & (output.largest_sum > largest)


def _largest_relative(error: torch.Tensor, double: torch.Tensor, finite: torch.Tensor) -> float:
    import torch

    counted = finite & (double != 0)
    return float(torch.where(counted, error / double.abs(), torch.zeros_like(error)).nan_to_num(0, LARGEST).max())
