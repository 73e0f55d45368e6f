"""An evaluation in which everything is rounded otherwise: how far do the results move? Runs in a child process."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from aoti_debug.compare.evaluate.arithmetic import LARGE, Narrow, unit
from aoti_debug.compare.evaluate.function_bounds import bound_of
from aoti_debug.package.program_graphs import Node, operator_name

if TYPE_CHECKING:
    import torch


_PART = 1 << 20  # elements
_UNITS: Mapping[str, float] = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float64": 2.0**-52, "complex128": 2.0**-52}
_UNIT = 2.0**-23  # of any other dtype


class RoundingNoise:
    """The errors of one evaluation; the same seed makes the same ones.

    Args:
        units: how far a number is moved at most, in distances of neighbouring numbers of its dtype in the program.
    """

    def __init__(self, seed: int, units: float) -> None:
        import torch

        self._generator = torch.Generator().manual_seed(seed)
        self._units = units

    def begun(self, value: Any) -> Any:
        """An input or a weight, moved by the rounding of the kernel that reads it."""
        return moved(value, self._generator, self._units)

    def arguments(self, node: Node, args: list[Any], terms: int) -> list[Any]:
        """The arguments of an operator that adds so many terms, as far as rounding in sums moves them."""
        if terms <= 1 or node.mutates:
            return args
        scale = 1 + math.sqrt(terms) / 4
        return [self._moved(item, _UNIT * self._units * scale) for item in args]

    def result(self, node: Node, args: Sequence[Any], result: Any) -> Any:
        """The result of an operator, moved; in place where it overwrites an argument. A view stays what it is."""
        import torch

        if isinstance(result, list | tuple):
            return type(result)(self.result(node, args, item) for item in result)
        if not isinstance(result, torch.Tensor) or not _has_numbers(result):
            return result
        dtype = next((type_.dtype for type_ in node.types[:1] if type_ is not None), "")
        bound = bound_of(node.target)
        least = 0.0 if bound is None else bound.on(str(result.device)) * _UNIT
        step = max(self._units * _UNITS.get(dtype, _UNIT), least if dtype == "float32" else 0.0)
        held = {tensor.untyped_storage().data_ptr() for tensor in _tensors(args)}
        if result.untyped_storage().data_ptr() in held:
            return result.mul_(self._factors(result, step)) if node.mutates else result
        return self._moved(result, step)

    def _moved(self, value: Any, step: float) -> Any:
        import torch

        if not isinstance(value, torch.Tensor) or not _has_numbers(value):
            return value
        return value * self._factors(value, step)

    def _factors(self, value: torch.Tensor, step: float) -> torch.Tensor:
        import torch

        drawn = torch.rand(value.shape, generator=self._generator, dtype=torch.float64)
        return drawn.mul_(2).sub_(1).mul_(step).add_(1).to(value.device)


_REDUCES = frozenset({"sum", "mean", "var", "var_mean", "std", "std_mean", "prod", "linalg_vector_norm"})


def approximated(node: Node, result: Any, generator: torch.Generator) -> Any:
    """The result of a function that kernels approximate, moved by its bound, or of a reduction, moved by its rounding.

    All that reads the result of a reduction has the same error: in a mean of what is left it does not average out. The
    result of any other operator is what it is.
    """
    import torch

    if isinstance(result, list | tuple):
        return type(result)([approximated(node, item, generator) for item in result])
    if not isinstance(result, torch.Tensor) or not result.is_floating_point():
        return result
    bound = bound_of(node.target)
    if bound is not None:
        step = _UNIT * bound.on(str(result.device))
    elif operator_name(node.target) in _REDUCES:
        dtype = next((type_.dtype for type_ in node.types[:1] if type_ is not None), "")
        step = min(_UNIT, _UNITS.get(dtype, _UNIT))
    else:
        return result
    signs = torch.randint(0, 2, result.shape, generator=generator).to(result.device, result.dtype) * 2 - 1
    return result * (1 + signs * step)


def moved(value: Any, generator: torch.Generator, units: float) -> Any:
    """An input in float64, every number moved up or down by so many units of the kernel's arithmetic.

    A large one is moved when it is read; what is no tensor of floating real numbers stays what it is.
    """
    import torch

    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return value
    upwards = torch.empty(value.shape, dtype=torch.bool)
    for part in upwards.view(-1).split(_PART):  # the generator makes integers of 64 bits
        part.copy_(torch.randint(0, 2, part.shape, generator=generator))
    narrow = Narrow(value, torch.float64, upwards.to(value.device), units * unit(value.dtype))
    return narrow if value.nbytes >= LARGE else narrow.wide()


def _has_numbers(value: torch.Tensor) -> bool:
    return bool(value.is_floating_point() or value.is_complex())


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    import torch

    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _tensors(item)
