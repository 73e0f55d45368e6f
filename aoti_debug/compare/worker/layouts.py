"""Recorded tensors in the layout of the values that they hold. Runs in a child process.

A launch may have been passed another view of a buffer than its value has: transposed, with other sizes, or a part.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aoti_debug.compare.evaluate.functions import NotEvaluableError
from aoti_debug.compare.protocol.request import KnownValue
from aoti_debug.inputs.symbolic_sizes import Symbols
from aoti_debug.reference.program import Graph, TensorType
from aoti_debug.rundir import load_tensors
from aoti_debug.values import extent_elements

if TYPE_CHECKING:
    import torch


def load(item: KnownValue, device: str) -> torch.Tensor:
    """The recorded tensor as the launch was passed it."""
    return _on(load_tensors.load_file(Path(item.recorded.path)), device)


def load_value(graph: Graph, item: KnownValue, symbols: Symbols, device: str) -> torch.Tensor:
    """The recorded tensor in the shape of its value.

    Raises:
        NotEvaluableError: only a part of the value was recorded.
    """
    types = graph.by_name[item.value.node].types
    tensor = _on(load_tensors.load_file(Path(item.recorded.path)), device)
    return _in_shape(tensor, types[0], item, symbols) if len(types) == 1 and types[0] else tensor


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


def _in_shape(tensor: torch.Tensor, type_: TensorType, item: KnownValue, symbols: Symbols) -> torch.Tensor:
    shape = [symbols.value(size) for size in type_.shape]
    strides = [symbols.value(stride) for stride in item.recorded.strides]
    sizes, steps = [s for s in shape if s is not None], [s for s in strides if s is not None]
    if len(sizes) < len(shape) or len(steps) < len(shape) or len(strides) != len(shape):
        if tuple(tensor.shape) == tuple(shape) or len(sizes) < len(shape):
            return tensor
    elif _addresses(list(tensor.shape), list(tensor.stride())) == _addresses(sizes, steps):
        return tensor
    elif math.prod(sizes) == tensor.numel() == _extent(tensor) == extent_elements(sizes, steps):
        return tensor.as_strided(sizes, steps, tensor.storage_offset())
    raise NotEvaluableError(f"{item.recorded.argument} of {item.recorded.launch} is a part of {item.value}")


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
