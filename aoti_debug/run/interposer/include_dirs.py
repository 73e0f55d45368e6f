"""Where the headers are that the runtime is compiled with, for a package that does not say it."""

from __future__ import annotations

import os
from pathlib import Path

from aoti_debug.errors import ToolchainError
from aoti_debug.machine.compiler import Torch

_CUDA_HERE = "/usr/local/cuda"


def include_dirs(device: str, torch: Torch) -> tuple[str, ...]:
    """
    Raises:
        ToolchainError: the model is for a GPU, and there is no cuda.h.
    """
    of_torch = torch.directory / "include"
    found = (str(of_torch), str(of_torch / "torch/csrc/api/include"))
    return (*found, str(_cuda(torch))) if device == "cuda" else found


def _cuda(torch: Torch) -> Path:
    """The toolkit's headers, or those that pip installs beside torch."""
    homes = [home for name in ("CUDA_HOME", "CUDA_PATH") if (home := os.environ.get(name))]
    beside = sorted((torch.directory.parent / "nvidia").glob("*/include"))
    for folder in (*(Path(home) / "include" for home in (*homes, _CUDA_HERE)), *beside):
        if (folder / "cuda.h").is_file():
            return folder
    raise ToolchainError("there is no cuda.h", hint="install the CUDA toolkit, or set CUDA_HOME to where it is")
