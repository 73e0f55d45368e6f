"""Distances of neighbouring numbers, and sizes of tensors of errors. Runs in a child process."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from aoti_debug.compare.protocol.measurement import LARGEST, SMALLEST

if TYPE_CHECKING:
    import torch

_PART = 1 << 20  # elements
_EXPONENT = 0x7FF << 52  # the bits of the exponent of a float64; all of them are set in infinities and NaN


def ulp(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The distance between neighbouring numbers of a dtype at float64 values; infinities and NaN have that of 1."""
    import torch

    info = torch.finfo(dtype)
    power = (values.view(torch.int64) & _EXPONENT).view(torch.float64)  # the power of two at or below each value
    step = power.masked_fill_(power == torch.inf, 1.0).mul_(info.eps)
    return step.clamp_(min=info.smallest_normal * info.eps)


def relative_difference(actual: torch.Tensor, expected: torch.Tensor) -> float:
    """Root of the mean squared difference, divided by the root of the mean square of the expected values."""
    error, size = difference_and_size(actual, expected)
    return min(error / max(size, SMALLEST), LARGEST) if error else 0.0


def difference_and_size(actual: torch.Tensor, expected: torch.Tensor) -> tuple[float, float]:
    """Root of the mean squared difference, and root of the mean square of the expected values.

    Infinities and NaN count as 0. A part of the elements at a time is converted to float64.
    """
    import torch

    difference = size = 0.0
    for first, second in zip(_parts(real(actual)), _parts(real(expected)), strict=True):
        wide = second.to(torch.float64)
        difference += float(finite(first.to(torch.float64) - wide).square().sum())
        size += float(finite(wide).square().sum())
    count = max(real(actual).numel(), 1)
    return min(math.sqrt(difference / count), LARGEST), min(math.sqrt(size / count), LARGEST)


def real(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor of real numbers; of complex ones, with a last dimension of 2 for their real and imaginary parts."""
    import torch

    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


def _parts(tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Parts of a tensor along its first dimension, the same for tensors of equal shapes."""
    if not tensor.dim() or tensor.numel() <= _PART:
        return (tensor,)
    return tuple(tensor.split(max(1, _PART * tensor.shape[0] // tensor.numel())))


def finite(values: torch.Tensor) -> torch.Tensor:
    """The values, with 0 for infinities and NaN."""
    import torch

    return values if are_finite(values) else torch.where(values.isfinite(), values, torch.zeros_like(values))


def are_finite(values: torch.Tensor) -> bool:
    """True if the sum of the values is finite, and so is each of them: adding takes less time than looking at each."""
    return bool(values.sum().isfinite())


def misplaced(first: torch.Tensor, second: torch.Tensor) -> int:
    """The number of elements that are NaN or infinite in one of two tensors, and not the same in the other."""
    if first.is_floating_point() and first.element_size() == 1:  # torch has no isfinite for float8
        first, second = first.float(), second.float()
    alike = (first == second) | (first.isnan() & second.isnan()) | (first.isfinite() & second.isfinite())
    return int((~alike).sum())


def median(values: torch.Tensor) -> float:
    """The median of flat values without NaN, whose order it changes; of an even number the lower one in the middle."""
    if values.device.type != "cpu":
        return float(values.median())
    middle = (values.numel() - 1) // 2
    array = values.numpy()
    array.partition(middle)  # several times as fast as torch's
    return float(array[middle])
