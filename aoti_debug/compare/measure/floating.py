"""Measures floating outputs: see aoti_debug.compare.measure.measure for what is allowed. Runs in a child process."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from aoti_debug.compare.measure.bias import bias
from aoti_debug.compare.measure.evaluated import Evaluated, Subject, element, measurement, spread
from aoti_debug.compare.measure.ulp import are_finite, finite, median, relative_difference, rms, ulp, unit
from aoti_debug.compare.protocol.limits import LARGEST, SMALLEST
from aoti_debug.compare.protocol.measurement import Measurement

if TYPE_CHECKING:
    import torch

_STORE, _ARITHMETIC, _EAGER = 2.0, 8.0, 4.0
_SIMILAR_BITS = 2  # of an exponent: elements are of similar size if the others are equal, or differ by one
_LEAST_EXPONENT = -1100  # below that of any float64
_GROUPS = (1024 - _LEAST_EXPONENT >> _SIMILAR_BITS) + 1


def measure_floating(subject: Subject, output: Evaluated) -> Measurement:
    """Measures an output of a real floating dtype, of at least one element."""
    import torch

    dtype = output.actual.dtype
    actual, eager, double = (_flat(t) for t in (output.actual, output.eager, output.double))
    is_equal = torch.equal(actual, eager)
    error = (actual - double).abs_()
    if is_equal and not output.perturbed and not bool(error.any()):
        return measurement(subject, output, equals_eager=True)
    has_own_kernel = output.kernel is not output.eager or output.kernel.dtype != dtype
    kernel = _flat(output.kernel).to(dtype).to(torch.float64) if has_own_kernel else eager
    eager_error = error if is_equal else (eager - double).abs_()
    kernel_error = (kernel - double).abs_() if has_own_kernel else eager_error
    are_numbers = all(map(are_finite, (error, eager_error, kernel_error)))
    step, size = ulp(double, dtype), finite(double.abs())
    others = torch.maximum(finite(eager_error), finite(kernel_error)) if has_own_kernel else finite(eager_error)
    perturbed = [_flat(t) for t in output.perturbed]
    change = torch.stack([finite((p - double).abs_()) for p in perturbed]).amax(0) if perturbed else None
    allowed = _allowed(output, step, size, others, change)
    ratio, in_ulp = error / allowed, error / step
    misplaced: torch.Tensor | None = None
    if not are_numbers:
        both = actual.isfinite() & double.isfinite()
        misplaced = ~both & ~_nonfinite_as_expected(actual, (eager, kernel, double), allowed, dtype)
        misplaced &= ~_overflows_in_another_order(actual, double, output)
        ratio = ratio.masked_fill_(~both, 0.0).masked_fill_(misplaced, torch.inf)
        in_ulp = in_ulp.masked_fill_(~both, 0.0)
        is_equal = bool(((actual == eager) | (actual.isnan() & eager.isnan())).all())
    wrong = _count_beyond(ratio)
    leaning = 0.0 if wrong else bias(actual, (eager, kernel, double), perturbed, step, dtype)
    if leaning:
        ratio = (1 + error / step).masked_fill_(~(actual.isfinite() & double.isfinite() & (actual != kernel)), 0.0)
        wrong = _count_beyond(ratio)
    worst = int(ratio.argmax())
    root, double_root = rms(finite(error)), rms(size)
    eager_root = root if eager_error is error else rms(finite(eager_error))
    if output.actual.is_contiguous() and output.double.is_contiguous():
        relative = min(root / max(double_root, SMALLEST), LARGEST) if root else 0.0
    else:  # in another order, sums are rounded otherwise
        relative = relative_difference(output.actual, output.double)
    return measurement(
        subject,
        output,
        wrong=wrong,
        excess=min(float(ratio[worst]), LARGEST),
        worst=element(worst, output) if float(ratio[worst]) > 0 else None,
        bias=leaning,
        equals_eager=is_equal,
        ulp_median=median(in_ulp),
        ulp_max=float(in_ulp.max()),
        atol=float(finite(error).max()),
        rtol=_largest_relative(error, actual, double),
        rms=root,
        relative=relative,
        relative_ulp=relative / torch.finfo(dtype).eps,
        eager_rms=eager_root,
        eager_ulp_max=float((finite(eager_error) / step).max()),
        sensitivity=-1.0 if change is None else rms(change) / max(unit(dtype) * double_root, SMALLEST),
        spread=spread(output, ratio, in_ulp, misplaced) if wrong else None,
    )


def _flat(values: torch.Tensor) -> torch.Tensor:
    import torch

    return values.to(torch.float64).reshape(-1)


def _count_beyond(ratio: torch.Tensor) -> int:
    """The number of elements above 1."""
    return 0 if float(ratio.max()) <= 1 else int((ratio > 1).sum())


def _allowed(
    output: Evaluated, step: torch.Tensor, size: torch.Tensor, others: torch.Tensor, change: torch.Tensor | None
) -> torch.Tensor:
    """The error that each element may have.

    Args:
        step: one ULP at each element.
        size: the magnitude of each element.
        others: what eager and the kernel's arithmetic get wrong.
        change: how much the elements move when the inputs are perturbed; None if it is not known.
    """
    groups = _similar(size, step)
    growth = 1 + output.terms**0.5 / 4
    allowed = size * unit(output.actual.dtype)
    if change is not None:
        allowed += _largest_of(groups, change)
    allowed *= _ARITHMETIC * growth
    return allowed.add_(step, alpha=_STORE).add_(_largest_of(groups, others), alpha=_EAGER)


def _similar(size: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
    """The group of each value, from 1, by its exponent; zero has that of the smallest numbers."""
    import torch

    exponent = torch.frexp(torch.maximum(size, step)).exponent.long()
    return exponent.sub_(_LEAST_EXPONENT).bitwise_right_shift_(_SIMILAR_BITS).add_(1)


def _largest_of(groups: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """The largest of the values of the same group and of its two neighbours, for each element."""
    import torch

    own = torch.zeros(_GROUPS + 2, dtype=values.dtype, device=values.device)
    own.scatter_reduce_(0, groups, values, "amax")
    largest = own.clone()
    largest[1:-1] = torch.maximum(torch.maximum(own[:-2], own[1:-1]), own[2:])
    return largest.index_select(0, groups)


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


def _largest_relative(error: torch.Tensor, actual: torch.Tensor, double: torch.Tensor) -> float:
    """The largest relative error of the elements that are numbers, and not zero in float64."""
    import torch

    relative = error / double.abs()
    largest = float(relative.max())
    if not math.isfinite(largest):
        counted = actual.isfinite() & double.isfinite() & (double != 0)
        largest = float(torch.where(counted, relative, torch.zeros_like(error)).nan_to_num(0, LARGEST).max())
    return largest
