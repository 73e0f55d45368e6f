"""Finds the ptxas that a package's machine code came from: another version assigns other registers and barriers."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import torch

VARIABLE = "TRITON_PTXAS_PATH"  # Triton's own


def use_ptxas_of(image: bytes) -> None:
    """Has Triton compile with the ptxas that made this machine code, if it is here and the user has not chosen one."""
    version = version_in(image)
    if version is None or VARIABLE in os.environ:
        return
    for path in candidates():
        if version_of(path) == version:
            os.environ[VARIABLE] = str(path)
            return


def version_in(image: bytes) -> str | None:
    """Returns the version "13.0.88" that ptxas writes into a cubin since CUDA 13; None if there is none."""
    version = re.search(rb"Cuda compilation tools, release [\d.]+, V([\d.]+)", image)
    return version[1].decode() if version else None


def version_of(ptxas: Path) -> str | None:
    """The version of a ptxas; None where it cannot be run."""
    try:
        output = subprocess.run([str(ptxas), "--version"], capture_output=True, timeout=30, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    return version_in(output)


def candidates() -> Iterator[Path]:
    """Yields each ptxas on this machine: Triton's, torch's, those of NVIDIA's packages and of the CUDA toolkit."""
    import triton

    torch_dir, triton_dir = Path(torch.__file__).parent, Path(triton.__file__).parent
    places = [triton_dir / "backends/nvidia/bin", torch_dir / "bin", torch_dir / "_inductor/bin"]
    places += sorted(Path(p) for site in sys.path for p in Path(site or ".").glob("nvidia/*/bin"))
    places += [Path(os.environ[name]) / "bin" for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    places += [Path("/usr/local/cuda/bin")]
    on_path = shutil.which("ptxas")
    for path in [*(place / "ptxas" for place in places), *([Path(on_path)] if on_path else [])]:
        if path.is_file():
            yield path
