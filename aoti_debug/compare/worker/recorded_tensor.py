"""The recorded tensor of a file, and whether it holds the same bits as another one. Runs in a child process."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from aoti_debug.base.errors import RunDirError
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
