"""The results of a model as tensor files: FOLDER/0.safetensors, FOLDER/1.safetensors, … in their order.

A number is saved as a tensor without dimensions. Another result that is no tensor, or one of a dtype that cannot be
saved, has no file.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aoti_debug.runs.rundir.write_tensor import write_tensor

if TYPE_CHECKING:
    import torch


def save(result: Any, folder: Path) -> None:
    """Saves the tensors and numbers of a result, however they are nested. Runs in a child process.

    Raises:
        OSError: they cannot be written.
    """
    from torch.utils import _pytree as pytree

    folder.mkdir(parents=True, exist_ok=True)
    for index, leaf in enumerate(pytree.tree_leaves(result)):
        value = as_tensor(leaf)
        if value is not None:
            with contextlib.suppress(TypeError):
                write_tensor(path_of(folder, index), str(index), value)


def as_tensor(value: Any) -> torch.Tensor | None:
    """A tensor as it is, and a number as one without dimensions; None for anything else."""
    import torch

    if isinstance(value, bool | int | float | complex):
        return torch.tensor(value)
    return value if isinstance(value, torch.Tensor) else None


def path_of(folder: Path, index: int) -> Path:
    """The file of a result."""
    return folder / f"{index}.safetensors"


def saved(folder: Path) -> dict[int, Path]:
    """The files of a folder, by the index of the result."""
    return {int(path.stem): path for path in sorted(folder.glob("*.safetensors"), key=lambda path: int(path.stem))}
