"""Distances of neighbouring numbers, and sizes of tensors of errors. Runs in a child process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aoti_debug.compare.protocol.limits import LARGEST, SMALLEST

if TYPE_CHECKING:
    import torch

_EXPONENT = 0x7FF << 52  # the bits of the exponent of a float64; all of them are set in infinities and NaN


def ulp(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The distance between neighbouring numbers of a dtype at float64 values; infinities and NaN have that of 1."""
    import torch

    info = torch.finfo(dtype)
    power = (values.view(torch.int64) & _EXPONENT).view(torch.float64)  # the power of two at or below each value
    step = power.masked_fill_(power == torch.inf, 1.0).mul_(info.eps)
    return step.clamp_(min=info.smallest_normal * info.eps)


def unit(dtype: torch.dtype) -> float:
    """The relative distance of neighbouring numbers in the arithmetic that kernels use for a dtype."""
    import torch

    return 2.0**-52 if dtype == torch.float64 else 2.0**-23


def relative_difference(actual: torch.Tensor, expected: torch.Tensor) -> float:
    """Root of the mean squared difference, divided by the root of the mean square of the expected values."""
    import torch

    if actual.is_complex():
        actual, expected = torch.view_as_real(actual.resolve_conj()), torch.view_as_real(expected.resolve_conj())
    wide = expected.to(torch.float64)
    difference = rms(finite(actual.to(torch.float64) - wide)) if actual.numel() else 0.0
    return min(difference / max(rms(finite(wide)), SMALLEST), LARGEST) if difference else 0.0


def finite(values: torch.Tensor) -> torch.Tensor:
    """The values, with 0 for infinities and NaN."""
    import torch

    return values if are_finite(values) else torch.where(values.isfinite(), values, torch.zeros_like(values))


def are_finite(values: torch.Tensor) -> bool:
    """True if the sum of the values is finite, and so is each of them: adding takes less time than looking at each."""
    return bool(values.sum().isfinite())


def median(values: torch.Tensor) -> float:
    """The median of flat values without NaN, whose order it changes; of an even number the lower one in the middle."""
    if values.device.type != "cpu":
        return float(values.median())
    middle = (values.numel() - 1) // 2
    array = values.numpy()
    array.partition(middle)  # several times as fast as torch's
    return float(array[middle])


def rms(values: torch.Tensor) -> float:
    """Root of the mean square."""
    return min(float(values.square().mean().sqrt()), LARGEST)
