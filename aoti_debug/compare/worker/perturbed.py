"""The inputs of a region, and results in it, moved by rounding errors. Runs in a child process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from aoti_debug.compare.evaluate.arguments import is_floating
from aoti_debug.compare.evaluate.wide_values import LARGE, Narrow
from aoti_debug.compare.measure.ulp import unit
from aoti_debug.reference.program import Node, ValueKey

if TYPE_CHECKING:
    import torch

_APPROXIMATED = ("aten.erf.default", "aten.tanh.default", "aten.log.default")
_PART = 1 << 20  # elements
_UNITS = 8.0
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


def rounded_otherwise(generator: torch.Generator, dtypes: Iterable[str]) -> Callable[[Node, list[Any], Any], Any]:
    """Moves what every operator of a program computes by several units of the coarsest dtype that it has.

    A view, or a tensor that was overwritten in place, stays what it is.
    """
    import torch

    unit_of = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23}
    step = _UNITS * max((unit_of.get(dtype, 2.0**-52) for dtype in dtypes), default=2.0**-52)

    def moved(_: Node, args: list[Any], result: Any) -> Any:
        if not isinstance(result, torch.Tensor) or not (result.is_floating_point() or result.is_complex()):
            return result
        held = {a.untyped_storage().data_ptr() for a in _tensors(args)}
        if result.untyped_storage().data_ptr() in held:
            return result
        return result * (1 + step * (2 * torch.rand(result.shape, generator=generator, dtype=torch.float64) - 1)).to(
            result.device
        )

    return moved


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    import torch

    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _tensors(item)
