"""Tensor files as the runtime writes them."""

from __future__ import annotations

import ctypes
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

from aoti_debug.base import dtypes
from aoti_debug.package.argument_values import Layout, Tensor
from aoti_debug.package.pt2 import program_weights
from aoti_debug.runs.rundir.formats.stored_tensor import StoredTensor
from tests import archives


def save(path: Path, name: str, value: Any, *, stored: Any = None, **changed: str) -> None:
    """Writes a tensor as the runtime does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    metadata = {
        "dtype": str(value.dtype),
        "shape": json.dumps(list(value.shape)),
        "strides": json.dumps(list(value.stride())),
        "storage_offset": str(value.storage_offset()),
        "storage_bytes": str(value.untyped_storage().nbytes()),
        "format": "1",
    }
    save_file({name: value.contiguous().clone() if stored is None else stored}, path, metadata | changed)


def program_of(path: Path, weight: Any) -> Path:
    """An archive that holds the elements of a weight, and nothing else that matters here."""
    with zipfile.ZipFile(path, "w") as archive:
        archives.write_aligned(archive, "model/data/weights/weight_0", tensor_bytes(weight))
    return path


def write_reference(path: Path, name: str, value: Any, program: Path, weight: Any, **changed: Any) -> Path:
    """Writes a reference to a view of a weight as the runtime does; `program` is that of `program_of`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    begin = program.read_bytes().index(tensor_bytes(weight)) + value.storage_offset() * value.element_size()
    known = program_weights.describe(program, {})
    described = {
        "format": 1,
        "name": name,
        "file": known.path,
        "size": known.size,
        "sha256": known.sha256,
        "begin": begin,
        "dtype": dtypes.bare_name(value.dtype),
        "shape": list(value.shape),
        "strides": list(value.stride()),
        "storage_offset": value.storage_offset(),
        "storage_bytes": value.untyped_storage().nbytes(),
        "hash": [1, 2],
    }
    path.write_text(json.dumps(described | changed))
    return path


def stored(value: Any) -> StoredTensor:
    """The elements of a torch tensor as those of a file."""
    return StoredTensor(np.frombuffer(tensor_bytes(value), np.uint8), dtypes.bare_name(value.dtype), value.numel())


def tensor_bytes(value: Any) -> bytes:
    """The elements of a torch tensor, one after the other."""
    storage = value.detach().clone(memory_format=torch.contiguous_format).untyped_storage()
    return ctypes.string_at(storage.data_ptr(), storage.nbytes()) if storage.nbytes() else b""


def described(value: Any, base: int = 0) -> Tensor:
    """What the journal says of a tensor; `base` stands for its storage's address."""
    layout = Layout(
        dtypes.bare_name(value.dtype),
        "cpu",
        tuple(value.shape),
        value.stride(),
        value.storage_offset(),
        value.untyped_storage().nbytes(),
        value.element_size(),
    )
    return Tensor((base or value.untyped_storage().data_ptr()) + layout.storage_offset * layout.item_bytes, layout)
