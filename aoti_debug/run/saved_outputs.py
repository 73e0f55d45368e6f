"""The results of a model as tensor files: FOLDER/0.safetensors, FOLDER/1.safetensors, … in their order.

A result that is no tensor, or of a dtype that cannot be saved, has no file.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from aoti_debug.rundir.write_tensor import write_tensor


def save(result: Any, folder: Path) -> None:
    """Saves the tensors of a result, however they are nested. Runs in a child process.

    Raises:
        OSError: they cannot be written.
    """
    import torch
    from torch.utils import _pytree as pytree

    folder.mkdir(parents=True, exist_ok=True)
    for index, leaf in enumerate(pytree.tree_leaves(result)):
        if isinstance(leaf, torch.Tensor):
            with contextlib.suppress(TypeError):
                write_tensor(path_of(folder, index), str(index), leaf)


def path_of(folder: Path, index: int) -> Path:
    """The file of a result."""
    return folder / f"{index}.safetensors"


def saved(folder: Path) -> dict[int, Path]:
    """The files of a folder, by the index of the result."""
    return {int(path.stem): path for path in sorted(folder.glob("*.safetensors"), key=lambda path: int(path.stem))}
