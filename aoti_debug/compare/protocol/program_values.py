"""The values that the program gives for the outputs of the first wrong launch, in float64, as files beside its repro.

The process that evaluates saves them as FOLDER/program_values/ARGUMENT.safetensors; a repro that has
tensors/program_ARGUMENT.safetensors prints how its outputs differ from them.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from aoti_debug.runs.rundir.formats.tensor_file_format import escape

if TYPE_CHECKING:
    import torch

_FOLDER = "program_values"


def save(folder: Path, argument: str, value: torch.Tensor) -> None:
    """Saves what the program gives for an output, complex numbers in complex64. Runs in a child process.

    Raises:
        OSError: it cannot be written.
    """
    import torch
    from safetensors.torch import save_file

    if value.is_complex():  # the format has no complex128
        value = value.resolve_conj().to(torch.complex64)
    (folder / _FOLDER).mkdir(exist_ok=True)
    save_file({argument: value.cpu().contiguous()}, folder / _FOLDER / f"{escape(argument)}.safetensors")


def move_to_repro(folder: Path, repro: Path) -> None:
    """Moves the saved values into a repro's folder; none were saved if nothing was wrong.

    Raises:
        OSError: they cannot be moved.
    """
    for path in (folder / _FOLDER).glob("*.safetensors"):
        shutil.move(path, repro / "tensors" / f"program_{path.name}")
    shutil.rmtree(folder / _FOLDER, ignore_errors=True)
