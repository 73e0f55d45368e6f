"""The header directories that the runtime is compiled with, for a package that does not record them."""

from __future__ import annotations

from pathlib import Path

from aoti_debug.base.errors import ToolchainError
from aoti_debug.base.machine import cuda_toolkit
from aoti_debug.base.machine.compiler import Torch


def include_dirs(device: str, torch: Torch) -> tuple[str, ...]:
    """The directories of torch's headers, and of CUDA's for a model on a GPU.

    Raises:
        ToolchainError: the model is for a GPU, and there is no cuda.h.
    """
    include = torch.directory / "include"
    torch_dirs = (str(include), str(include / "torch/csrc/api/include"))
    return (*torch_dirs, str(_cuda_include())) if device == "cuda" else torch_dirs


def _cuda_include() -> Path:
    folder = cuda_toolkit.find_header_directory("cuda.h")
    if folder is None:
        raise ToolchainError("there is no cuda.h", hint="install the CUDA toolkit, or set CUDA_HOME to its directory")
    return folder
