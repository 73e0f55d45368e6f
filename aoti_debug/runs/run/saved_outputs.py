"""Tensors of Python's as tensor files, as the runtime writes those of launches; the results of a model in a folder.

The folder holds 0.safetensors, 1.safetensors, … in the order of the results. A number is saved as a tensor without
dimensions. Another result that is no tensor has no file; a tensor that cannot be saved has the reason, as 0.unsaved.
memory.json holds the inputs whose memory each result has, by their numbers.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aoti_debug.base import dtypes
from aoti_debug.package.argument_values import Layout, extent_elements
from aoti_debug.runs.rundir.formats import tensor_file_format

if TYPE_CHECKING:
    import torch

_SUFFIX, _UNSAVED, _MEMORY = ".safetensors", ".unsaved", "memory.json"


def write_tensor(path: Path, name: str, tensor: torch.Tensor) -> None:
    """Writes the logical tensor, row-major; the folder is made if need be.

    Raises:
        OSError: it cannot be written.
        TypeError: tensors of its dtype or layout cannot be saved.
    """
    import torch

    dtype = dtypes.bare_name(str(tensor.dtype))
    if tensor.layout is not torch.strided or not tensor_file_format.is_storable(dtype):
        raise TypeError(f"a tensor of {dtype}, {tensor.layout}, cannot be saved")
    values = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()
    layout = Layout(
        dtype,
        "cpu",
        tuple(values.shape),
        tuple(values.stride()),
        storage_offset=0,
        storage_bytes=values.numel() * values.element_size(),
        item_bytes=values.element_size(),
    )
    data = values.reshape(-1).view(torch.uint8).numpy().tobytes() if values.numel() else b""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(tensor_file_format.header(name, layout) + data)


def save(result: Any, folder: Path, given: Any = ()) -> None:
    """Saves the tensors and numbers of a result, however they are nested. Runs in a child process.

    Args:
        given: the inputs of the call, nested as well. An input that shares memory with another one is left out of
            what is noted: eager is given a copy of each, which share none.

    Raises:
        OSError: they cannot be written.
    """
    from torch.utils import _pytree as pytree

    folder.mkdir(parents=True, exist_ok=True)
    leaves, inputs = pytree.tree_leaves(result), [_memory(leaf) for leaf in pytree.tree_leaves(given)]
    alone = _separate(inputs)
    shared = {index: [n for n in alone if _overlap(own, inputs[n])] for index, own in enumerate(map(_memory, leaves))}
    (folder / _MEMORY).write_text(json.dumps({index: numbers for index, numbers in shared.items() if numbers}))
    for index, leaf in enumerate(leaves):
        value = as_tensor(leaf)
        if value is not None:
            try:
                write_tensor((folder / f"{index}{_SUFFIX}"), str(index), value)
            except TypeError as error:
                (folder / f"{index}{_UNSAVED}").write_text(str(error), encoding="utf-8")


def _memory(value: Any) -> range:
    """The bytes of a tensor; none of another value, or of a tensor whose memory is hidden."""
    import torch

    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided or not value.numel():
        return range(0)
    extent = value.element_size() * extent_elements(value.shape, value.stride())
    return range(value.data_ptr(), value.data_ptr() + extent)


def _overlap(first: range, second: range) -> bool:
    return max(first.start, second.start) < min(first.stop, second.stop)


def _separate(memory: Sequence[range]) -> list[int]:
    """The numbers of those that overlap no other one."""
    found = {number for number, own in enumerate(memory) if own}
    last: int | None = None  # the one that reaches furthest
    for number in sorted(found, key=lambda number: memory[number].start):
        if last is not None and _overlap(memory[last], memory[number]):
            found -= {last, number}
        if last is None or memory[number].stop > memory[last].stop:
            last = number
    return sorted(found)


def shared_inputs(folder: Path) -> dict[int, tuple[int, ...]]:
    """The numbers of the inputs whose memory each result had, by the index of the result; {} if that is not known.

    Raises:
        OSError: it cannot be read.
    """
    try:
        text = (folder / _MEMORY).read_text()
    except FileNotFoundError:
        return {}
    return {int(index): tuple(numbers) for index, numbers in json.loads(text).items()}


def as_tensor(value: Any) -> torch.Tensor | None:
    """A tensor as it is, and a number as one without dimensions; None for anything else."""
    import torch

    if isinstance(value, bool | int | float | complex):
        return torch.tensor(value)
    return value if isinstance(value, torch.Tensor) else None


def saved(folder: Path) -> dict[int, Path]:
    """The files of a folder, by the index of the result; none if there is no folder.

    Raises:
        OSError: it cannot be read. A glob would find nothing then, as if the model had returned no tensor.
    """
    return _files(folder, _SUFFIX)


def unsaved(folder: Path) -> dict[int, str]:
    """The reasons why tensors of a result have no file, by their index.

    Raises:
        OSError: it cannot be read.
    """
    return {number: path.read_text(encoding="utf-8") for number, path in _files(folder, _UNSAVED).items()}


def _files(folder: Path, suffix: str) -> dict[int, Path]:
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return {}
    numbers = sorted(int(name.removesuffix(suffix)) for name in names if name.endswith(suffix))
    return {number: folder / f"{number}{suffix}" for number in numbers}
