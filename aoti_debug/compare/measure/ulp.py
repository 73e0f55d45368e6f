"""Distances of neighbouring numbers, and sizes of tensors of errors. Runs in a child process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aoti_debug.compare.protocol.limits import LARGEST, SMALLEST

if TYPE_CHECKING:
    import torch


def ulp(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The distance between neighbouring numbers of a dtype at float64 values; infinities and NaN have that of 1."""
    import torch

    info = torch.finfo(dtype)
    magnitude = torch.where(values.isfinite(), values.abs(), torch.ones_like(values))
    exponent = torch.frexp(magnitude).exponent.to(torch.float64) - 1
    step = torch.where(magnitude == 0, torch.zeros_like(exponent), torch.exp2(exponent) * info.eps)
    return torch.clamp(step, min=info.smallest_normal * info.eps)


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

    return torch.where(values.isfinite(), values, torch.zeros_like(values))


def rms(values: torch.Tensor) -> float:
    """Root of the mean square."""
    return min(float(values.square().mean().sqrt()), LARGEST)
