"""Finds programs of the CUDA toolkit."""

from __future__ import annotations

import os
import shutil
from pathlib import Path


def find_cuda_program(name: str) -> str | None:
    """The path of a program on PATH or in a CUDA toolkit; None if there is none."""
    toolkits = [Path(os.environ[variable]) for variable in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(variable)]
    toolkits += [Path("/usr/local/cuda"), *sorted(Path("/usr/local").glob("cuda-*"), reverse=True)]
    places = [shutil.which(name), *(str(toolkit / "bin" / name) for toolkit in toolkits)]
    return next((place for place in places if place and os.access(place, os.X_OK)), None)
