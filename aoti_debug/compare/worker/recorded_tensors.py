"""Recorded tensors as they were saved, and in the layout of the values that they hold. Runs in a child process.

A launch may have been passed another view of a buffer than its value has: transposed, with other sizes, or a part. Of
a value of which it was only passed parts, the other elements are filled with numbers; what does not depend on them can
be compared.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aoti_debug.base.errors import RunDirError
from aoti_debug.compare.evaluate.functions import NotEvaluableError
from aoti_debug.compare.protocol.request import KnownValue
from aoti_debug.package.argument_values import extent_elements
from aoti_debug.package.inputs.symbolic_sizes import Symbols
from aoti_debug.package.program_graphs import Graph, TensorType, is_view
from aoti_debug.runs.rundir import load_tensors

if TYPE_CHECKING:
    import torch

_INTEGERS = {1: "uint8", 2: "int16", 4: "int32", 8: "int64"}  # by their size in bytes


def recorded_tensor(path: str | Path) -> torch.Tensor | None:
    """The tensor of a file, on the CPU; None if the file is missing or damaged."""
    try:
        return load_tensors.map_file(Path(path)).cpu()
    except RunDirError:
        return None


def has_equal_bits(first: torch.Tensor, second: torch.Tensor) -> bool:
    """True if two tensors of one dtype have the same shape and the same bits in each element."""
    import torch

    return bool(torch.equal(as_integers(first), as_integers(second)))


def as_integers(tensor: torch.Tensor) -> torch.Tensor:
    """The bits of each element as integers, in the same memory if numbers are not lazily conjugated or negated."""
    import torch

    stored = tensor.resolve_conj().resolve_neg()
    if stored.dtype.itemsize not in _INTEGERS:  # complex128
        stored = torch.view_as_real(stored)
    return stored.view(getattr(torch, _INTEGERS[stored.dtype.itemsize]))


def load(graph: Graph, item: KnownValue, device: str) -> torch.Tensor:
    """The recorded tensor as the launch was passed it."""
    return _logical(graph, item, _on(load_tensors.map_file(Path(item.recorded.path)), device))


def load_value(graph: Graph, item: KnownValue, symbols: Symbols, device: str) -> torch.Tensor:
    """The recorded tensor in the shape of its value; put together, if its parts were recorded.

    Raises:
        NotEvaluableError: only a part of the value was recorded.
    """
    types = graph.by_name[item.value.node].types
    tensor = _on(load_tensors.map_file(Path(item.recorded.path)), device)
    if len(types) != 1 or types[0] is None:
        return _logical(graph, item, tensor)
    whole = _in_shape(tensor, types[0], item, symbols)
    if whole is None:
        parts = RecordedParts(types[0], item, symbols)
        if not parts.covered.all():
            raise NotEvaluableError(f"{item.recorded.argument} of {item.recorded.launch} is a part of {item.value}")
        whole = parts.filled(0).to(device)
    return _logical(graph, item, whole)


def load_part(graph: Graph, item: KnownValue, symbols: Symbols, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    """A value of which only parts were recorded, twice: with different numbers in all other elements.

    Raises:
        NotEvaluableError: it is not known where the parts lie.
    """
    (type_,) = graph.by_name[item.value.node].types
    assert type_ is not None
    parts = RecordedParts(type_, item, symbols)
    first, second = (_logical(graph, item, parts.filled(seed).to(device)) for seed in (0, 1))
    return first, second


class RecordedParts:
    """The parts of a value that were recorded.

    Attributes:
        covered: True for the elements of its storage that they hold.

    Raises:
        NotEvaluableError: it is not known where they lie in it.
    """

    def __init__(self, type_: TensorType, item: KnownValue, symbols: Symbols) -> None:
        import torch

        reason = f"{item.recorded.argument} of {item.recorded.launch} is a part of {item.value}"
        self._sizes, self._steps = _known(type_.shape, symbols), _known(item.recorded.strides, symbols)
        if len(self._sizes) != len(type_.shape) or len(self._steps) != len(type_.shape):
            raise NotEvaluableError(reason)
        extent = extent_elements(self._sizes, self._steps)
        self._storage: torch.Tensor | None = None
        self.covered = torch.zeros(extent, dtype=torch.bool)
        for recorded in (item.recorded, *item.parts):
            part = load_tensors.map_file(Path(recorded.path)).cpu()
            if recorded.storage != extent or part.storage_offset() + _extent(part) > extent or not part.numel():
                raise NotEvaluableError(reason)
            if self._storage is None:
                self._storage = torch.zeros(extent, dtype=part.dtype)
            places = torch.arange(extent).as_strided(part.shape, part.stride(), part.storage_offset()).reshape(-1)
            self._storage[places] = part.reshape(-1)
            self.covered[places] = True

    def filled(self, seed: int) -> torch.Tensor:
        """The value, with recorded numbers, chosen at random, in the elements that were not recorded."""
        import torch

        assert self._storage is not None
        whole, unknown = self._storage.clone(), ~self.covered
        recorded, count = whole[self.covered], int(unknown.sum())
        chance = torch.Generator().manual_seed(seed)
        whole[unknown] = recorded[torch.randint(0, recorded.numel(), (count,), generator=chance)]
        return whole.as_strided(self._sizes, self._steps)


def as_written(value: Any, actual: torch.Tensor, item: KnownValue, symbols: Symbols) -> torch.Tensor:
    """The value as the launch wrote it: in the shape of the recorded view, or the part that the view covers.

    Raises:
        NotEvaluableError: it is no tensor, or the layout of the buffer is not known.
    """
    import torch

    if not isinstance(value, torch.Tensor):
        raise NotEvaluableError(f"{item.value} is no tensor")
    strides = [symbols.value(stride) for stride in item.recorded.strides]
    steps = [stride for stride in strides if stride is not None]
    if len(steps) != value.dim() or len(steps) != len(strides):
        if tuple(value.shape) == tuple(actual.shape):
            return value
        raise NotEvaluableError(f"{item.recorded.argument} is a view of a buffer of unknown layout")
    sizes = list(value.shape)
    if _addresses(sizes, steps) == _addresses(list(actual.shape), list(actual.stride())):
        return value
    if actual.storage_offset() + _extent(actual) > extent_elements(sizes, steps):
        raise NotEvaluableError(f"{item.recorded.argument} reaches beyond {item.value}")
    whole = torch.empty_strided(sizes, steps, dtype=value.dtype, device=value.device)
    whole.copy_(value)
    return whole.as_strided(actual.shape, actual.stride(), actual.storage_offset())


def _in_shape(tensor: torch.Tensor, type_: TensorType, item: KnownValue, symbols: Symbols) -> torch.Tensor | None:
    """The tensor in the shape of its value; None if it is only a part of it."""
    shape = [symbols.value(size) for size in type_.shape]
    sizes, steps = _known(type_.shape, symbols), _known(item.recorded.strides, symbols)
    if len(sizes) < len(shape) or len(steps) < len(shape) or len(item.recorded.strides) != len(shape):
        if tuple(tensor.shape) == tuple(shape) or len(sizes) < len(shape):
            return tensor
    elif _addresses(list(tensor.shape), list(tensor.stride())) == _addresses(sizes, steps):
        return tensor
    elif math.prod(sizes) == tensor.numel() == _extent(tensor) == extent_elements(sizes, steps):
        return tensor.as_strided(sizes, steps, tensor.storage_offset())
    return None


def _known(expressions: Sequence[str], symbols: Symbols) -> list[int]:
    """The values of the expressions that have one."""
    values = (symbols.value(expression) for expression in expressions)
    return [value for value in values if value is not None]


def _logical(graph: Graph, item: KnownValue, tensor: torch.Tensor) -> torch.Tensor:
    """The value of a recorded tensor: the memory of a lazily conjugated one holds the conjugates."""
    is_conjugated = tensor.is_complex() and not item.value.after and _is_conjugated(graph, item.value.node)
    return tensor.conj() if is_conjugated else tensor


def _is_conjugated(graph: Graph, name: str) -> bool:
    """True if a node's result is a view whose numbers are conjugated when they are read."""
    node = graph.by_name[name]
    if node.target == "aten._conj.default":
        return not _is_conjugated(graph, node.inputs[0])
    return is_view(node) and _is_conjugated(graph, node.inputs[0])


def _on(tensor: torch.Tensor, device: str) -> torch.Tensor:
    """The tensor on a device, in the same layout: `to` would close gaps between its rows."""
    if tensor.device.type == device.partition(":")[0] or not tensor.numel():
        return tensor.to(device)
    size = tensor.storage_offset() + _extent(tensor)
    whole = tensor.as_strided((size,), (1,), 0).to(device)
    return whole.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())


def _addresses(sizes: list[int], strides: list[int]) -> tuple[list[int], list[int]]:
    """What determines where the elements of a tensor lie: the strides of dimensions of one element do not."""
    return sizes, [stride for size, stride in zip(sizes, strides, strict=True) if size != 1]


def _extent(tensor: torch.Tensor) -> int:
    return extent_elements(tensor.shape, tensor.stride())
