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

from collections.abc import Sequence
from typing import TYPE_CHECKING

from aoti_debug import dtypes
from aoti_debug.compare.measure.ulp import are_finite

if TYPE_CHECKING:
    import torch

LEAST_ELEMENTS = 64
_LEAST_MAGNITUDES = 16
_FEW_BITS = ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")
_LEAST_BIAS = 0.2  # ULP
_LARGEST_ERROR = 4.0  # ULP: one element that is far off says nothing about the others


def bias(
    actual: torch.Tensor,
    evaluated: Sequence[torch.Tensor],
    perturbed: Sequence[torch.Tensor],
    step: torch.Tensor,
    dtype: torch.dtype,
) -> float:
    """The mean error in ULP, away from zero, from the arithmetic that is nearest; 0 where it is no bias.

    Args:
        actual: the elements as recorded, in float64.
        evaluated: in eager, in the kernel's arithmetic and in float64; all as float64.
        perturbed: in float64, from perturbed inputs.
        step: one ULP at each element.
        dtype: of the output.
    """
    import torch

    if dtypes.bare_name(dtype) not in _FEW_BITS or actual.numel() < LEAST_ELEMENTS:
        return 0.0
    double = evaluated[-1]
    usable = double.abs() >= torch.finfo(dtype).smallest_normal
    for values in (actual, *evaluated):
        if not are_finite(values):
            usable &= values.isfinite()
    count = int(usable.sum())
    if count < LEAST_ELEMENTS:
        return 0.0

    def mean(first: torch.Tensor, second: torch.Tensor) -> float:
        error = ((first - second) / step * double.sign()).clamp(-_LARGEST_ERROR, _LARGEST_ERROR)
        return float(torch.where(usable, error, torch.zeros_like(error)).sum()) / count

    means = []
    for values in evaluated:
        means.append(mean(actual, values.to(dtype).to(torch.float64)))
        if abs(means[-1]) <= _LEAST_BIAS:
            return 0.0
    if double[usable].abs().unique().numel() < _LEAST_MAGNITUDES:  # one rounding may decide about all elements
        return 0.0
    nearest = min(means, key=abs)
    moved = max((abs(mean(values, double)) for values in perturbed), default=0.0)
    allowed = _LEAST_BIAS + min(8 / count**0.5, 0.25) + 2 * (max(means) - min(means)) + 4 * moved
    return nearest if abs(nearest) > allowed else 0.0
