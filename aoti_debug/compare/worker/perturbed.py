"""The inputs of a region, and results in it, moved by rounding errors. Runs in a child process."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from aoti_debug.compare.evaluate.arguments import is_floating
from aoti_debug.compare.measure.ulp import unit
from aoti_debug.reference.program import Node, ValueKey

if TYPE_CHECKING:
    import torch

_APPROXIMATED = ("aten.erf.default", "aten.tanh.default", "aten.log.default")
_ABSOLUTE_ERROR = 2.0**-23  # of vectorised approximations in float32, such as at::vec's erf near zero


def perturbed(known: dict[ValueKey, Any], generator: torch.Generator) -> dict[ValueKey, Any]:
    """The inputs, in float64, with every floating number moved by one unit of the kernel's arithmetic, up or down."""
    import torch

    def moved(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or not is_floating(str(value.dtype)) or value.dtype.is_complex:
            return value
        sign = torch.randint(0, 2, value.shape, generator=generator).to(value.device, torch.float64) * 2 - 1
        return value.to(torch.float64) * (1 + unit(value.dtype) * sign)

    return {key: moved(value) for key, value in known.items()}


def approximated(generator: torch.Generator) -> Callable[[Node, list[Any], Any], Any]:
    """Moves the results of functions that kernels approximate with an absolute error."""
    import torch

    def moved(node: Node, _: list[Any], result: Any) -> Any:
        if node.target not in _APPROXIMATED or not isinstance(result, torch.Tensor):
            return result
        sign = torch.randint(0, 2, result.shape, generator=generator).to(result.device) * 2 - 1
        return result + _ABSOLUTE_ERROR * sign

    return moved
