"""The memory that a recorded launch saw: storages, and arguments that are views of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy
import torch
from safetensors.torch import load_file

ALIGNMENT = 128


@dataclass(frozen=True)
class Storage:
    """A block of memory behind one argument, or behind several that share it.

    Attributes:
        bytes: its size.
        address: where it began, modulo 128.
    """

    name: str
    bytes: int
    address: int
    device: str


@dataclass(frozen=True)
class Argument:
    """A tensor that the launch takes. `before_<name>.safetensors` holds its values, row-major.

    Attributes:
        role: "in", "out", "in-out" or "unknown".
        stride, offset: in elements; the offset counts from the storage's beginning.
    """

    name: str
    role: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    storage: str
    offset: int

    @property
    def written(self) -> bool:
        return self.role != "in"


@dataclass(frozen=True)
class Result:
    """A tensor that the launch allocates. `after_<name>.safetensors` holds what was recorded."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]


def arguments_in_memory(
    arguments: Sequence[Argument], storages: Sequence[Storage], tensors: Path
) -> dict[str, torch.Tensor]:
    """The arguments as they were just before the launch; those that shared a storage share it again.

    Raises:
        FileNotFoundError, ValueError: as `load`.
        ValueError: an argument's alignment cannot be had on its device.
    """
    blocks = {s.name: _allocate(s) for s in storages}
    views = {a.name: _view(a, *blocks[a.storage]) for a in arguments}
    for argument in arguments:
        _fill(views[argument.name], load(tensors / f"before_{argument.name}.safetensors", argument))
    return views


def load(path: Path, described: Argument | Result) -> torch.Tensor:
    """The values in a file, row-major, on the CPU. What safetensors has no dtype for lies there as pairs or as bytes.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it does not hold what is described.
    """
    (tensor,) = load_file(path).values()
    if tensor.dtype != described.dtype:
        tensor = torch.view_as_complex(tensor) if described.dtype.is_complex else tensor.view(described.dtype)
    if tuple(tensor.shape) != described.shape:
        raise ValueError(f"{path} has shape {tuple(tensor.shape)}; {described.name} has {described.shape}")
    return tensor


def _allocate(storage: Storage) -> tuple[torch.UntypedStorage, int]:
    """Zeros at the recorded alignment: the storage, and where in it the recorded one begins (bytes)."""
    if torch.device(storage.device).type == "cpu":
        block = numpy.zeros(storage.bytes + ALIGNMENT, dtype=numpy.uint8)
        first = (storage.address - block.ctypes.data) % ALIGNMENT
        return torch.from_numpy(block[first : first + storage.bytes]).untyped_storage(), 0
    memory = torch.zeros(storage.bytes + ALIGNMENT, dtype=torch.uint8, device=storage.device)
    return memory.untyped_storage(), (storage.address - memory.data_ptr()) % ALIGNMENT


def _view(argument: Argument, block: torch.UntypedStorage, first: int) -> torch.Tensor:
    skipped, rest = divmod(first, argument.dtype.itemsize)
    if rest:
        raise ValueError(f"{argument.name} cannot have its recorded alignment on {block.device}")
    empty = torch.empty(0, dtype=argument.dtype, device=block.device)
    return empty.set_(block, skipped + argument.offset, argument.shape, argument.stride)


def _fill(view: torch.Tensor, values: torch.Tensor) -> None:
    for dim, stride in enumerate(view.stride()):
        if stride == 0 and view.shape[dim] > 1:
            view, values = view.narrow(dim, 0, 1), values.narrow(dim, 0, 1)
    view.copy_(values)
