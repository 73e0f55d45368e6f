"""Tensor files as the runtime writes them."""

from __future__ import annotations

import ctypes
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

from aoti_debug.base import dtypes
from aoti_debug.package.recording.values import Layout, Tensor
from aoti_debug.runs.rundir.formats.stored_tensor import StoredTensor


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
