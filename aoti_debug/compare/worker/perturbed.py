"""The inputs of a region, and results in it, moved by rounding errors. Runs in a child process."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from aoti_debug.compare.evaluate.arguments import is_floating
from aoti_debug.compare.evaluate.wide_values import LARGE, Narrow
from aoti_debug.compare.measure.ulp import unit
from aoti_debug.reference.program import Node, ValueKey

if TYPE_CHECKING:
    import torch

_APPROXIMATED = ("aten.erf.default", "aten.tanh.default", "aten.log.default")
_PART = 1 << 20  # elements
_ABSOLUTE_ERROR = 2.0**-23  # of vectorised approximations in float32, such as at::vec's erf near zero


def perturbed(known: dict[ValueKey, Any], generator: torch.Generator) -> dict[ValueKey, Any]:
    """The inputs, with every floating number moved by one unit of the kernel's arithmetic, up or down.

    They are in float64; large ones become that when they are read.
    """
    import torch

    def moved(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or not is_floating(str(value.dtype)) or value.dtype.is_complex:
            return value
        upwards = _drawn(value.shape, generator).to(value.device)
        narrow = Narrow(value, torch.float64, upwards, unit(value.dtype))
        return narrow if value.nbytes >= LARGE else narrow.wide()

    return {key: moved(value) for key, value in known.items()}


def _drawn(shape: torch.Size, generator: torch.Generator) -> torch.Tensor:
    """Booleans, drawn a part at a time: the generator makes integers of 64 bits."""
    import torch

    drawn = torch.empty(shape, dtype=torch.bool)
    for part in drawn.view(-1).split(_PART):
        part.copy_(torch.randint(0, 2, part.shape, generator=generator))
    return drawn


def approximated(generator: torch.Generator) -> Callable[[Node, list[Any], Any], Any]:
    """Moves the results of functions that kernels approximate with an absolute error."""
    import torch

    def moved(node: Node, _: list[Any], result: Any) -> Any:
        if node.target not in _APPROXIMATED or not isinstance(result, torch.Tensor):
            return result
        sign = torch.randint(0, 2, result.shape, generator=generator).to(result.device) * 2 - 1
        return result + _ABSOLUTE_ERROR * sign

    return moved
