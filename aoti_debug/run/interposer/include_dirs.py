"""Where the headers are that the runtime is compiled with, for a package that does not say it."""

from __future__ import annotations

from pathlib import Path

from aoti_debug.errors import ToolchainError
from aoti_debug.machine import cuda_toolkit
from aoti_debug.machine.compiler import Torch


def include_dirs(device: str, torch: Torch) -> tuple[str, ...]:
    """
    Raises:
        ToolchainError: the model is for a GPU, and there is no cuda.h.
    """
    of_torch = torch.directory / "include"
    found = (str(of_torch), str(of_torch / "torch/csrc/api/include"))
    return (*found, str(_cuda())) if device == "cuda" else found


def _cuda() -> Path:
    folder = cuda_toolkit.find_header_directory("cuda.h")
    if folder is None:
        raise ToolchainError("there is no cuda.h", hint="install the CUDA toolkit, or set CUDA_HOME to where it is")
    return folder
