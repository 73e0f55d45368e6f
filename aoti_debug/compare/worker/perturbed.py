"""The inputs of a region, moved by rounding errors. Runs in a child process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aoti_debug.compare.evaluate.arguments import is_floating
from aoti_debug.compare.measure.ulp import unit
from aoti_debug.reference.program import ValueKey

if TYPE_CHECKING:
    import torch


def perturbed(known: dict[ValueKey, Any], generator: torch.Generator) -> dict[ValueKey, Any]:
    """The inputs, in float64, with every floating number moved by one unit of the kernel's arithmetic, up or down."""
    import torch

    def moved(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or not is_floating(str(value.dtype)) or value.dtype.is_complex:
            return value
        sign = torch.randint(0, 2, value.shape, generator=generator).to(value.device, torch.float64) * 2 - 1
        return value.to(torch.float64) * (1 + unit(value.dtype) * sign)

    return {key: moved(value) for key, value in known.items()}
