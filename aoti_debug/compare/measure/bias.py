"""Errors of outputs in 16 or 8 bits that are small, but lean to one side. Runs in a child process.

A kernel computes in float32 and rounds to the nearest number when it stores. Then as many elements are too large as too
small, and nearly all of them equal what the kernel's arithmetic gives. Truncation, or a factor that is wrong by a per
cent, moves the mean. The mean error of an output, in ULP away from zero, is a bias if it exceeds

    0.2 + 8 / √n, at most 0.45      n elements, 64 or more, of 16 or more magnitudes
    + 2 · the largest difference of the means of eager, the kernel's arithmetic and float64
    + 4 · how far the mean moves when the inputs are perturbed

The second term is large where values that many elements share are rounded in one arithmetic and not in the other.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING

from aoti_debug.base import dtypes
from aoti_debug.compare.measure.differences import Differences, Parts
from aoti_debug.compare.measure.ulp import are_finite

if TYPE_CHECKING:
    import torch

LEAST_ELEMENTS = 64
_LEAST_MAGNITUDES = 16
_FEW_BITS = ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")
_LEAST_BIAS = 0.2  # ULP
_LARGEST_ERROR = 4.0  # ULP: one element that is far off says nothing about the others


def bias(parts: Parts, dtype: torch.dtype) -> float:
    """The mean error in ULP, away from zero, from the arithmetic that is nearest; 0 where it is no bias.

    Args:
        dtype: of the output.
    """
    import torch

    if dtypes.bare_name(dtype) not in _FEW_BITS:
        return 0.0
    count = sum(int(_usable(part, dtype).sum()) for part in parts)
    if count < LEAST_ELEMENTS:
        return 0.0

    def mean(first: Callable[[Differences], torch.Tensor], second: Callable[[Differences], torch.Tensor]) -> float:
        total = 0.0
        for part in parts:
            error = ((first(part) - second(part)) / part.step * part.double.sign()).clamp(
                -_LARGEST_ERROR, _LARGEST_ERROR
            )
            total += float(torch.where(_usable(part, dtype), error, torch.zeros_like(error)).sum())
        return total / count

    means = []
    for evaluated in (_eager, _kernel, _double):
        means.append(mean(_actual, lambda part, of=evaluated: of(part).to(dtype).to(torch.float64)))  # type: ignore[misc]
        if abs(means[-1]) <= _LEAST_BIAS:
            return 0.0
    magnitudes = [part.double[_usable(part, dtype)].abs().unique() for part in parts]
    if torch.cat(magnitudes).unique().numel() < _LEAST_MAGNITUDES:  # one rounding may decide about all elements
        return 0.0
    nearest = min(means, key=abs)
    count_perturbed = len(next(iter(parts)).perturbed)
    moved = max((abs(mean(lambda part, i=i: part.perturbed[i], _double)) for i in range(count_perturbed)), default=0.0)  # type: ignore[misc]
    allowed = _LEAST_BIAS + min(8 / count**0.5, 0.25) + 2 * (max(means) - min(means)) + 4 * moved
    return nearest if abs(nearest) > allowed else 0.0


_actual, _eager, _kernel, _double = map(operator.attrgetter, ("actual", "eager", "kernel", "double"))


def _usable(part: Differences, dtype: torch.dtype) -> torch.Tensor:
    """True for the elements that are numbers, and not subnormal."""
    import torch

    usable = part.double.abs() >= torch.finfo(dtype).smallest_normal
    for values in (part.actual, part.eager, part.kernel, part.double):
        if not are_finite(values):
            usable &= values.isfinite()
    return usable
