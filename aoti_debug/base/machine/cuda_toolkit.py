"""Finds the CUDA toolkit: directories, headers and programs, of a toolkit or of Python packages."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from pathlib import Path

DEFAULT = Path("/usr/local/cuda")


def toolkit_directories() -> tuple[Path, ...]:
    """Directories that may hold a toolkit, the most specific first.

    The order: $CUDA_HOME, $CUDA_PATH, the one of the nvcc on PATH, /usr/local/cuda, /usr/local/cuda-VERSION.
    """
    from_environment = [Path(home) for name in ("CUDA_HOME", "CUDA_PATH") if (home := os.environ.get(name))]
    nvcc = shutil.which("nvcc")
    from_nvcc = [Path(nvcc).resolve().parent.parent] if nvcc else []
    versioned = sorted(DEFAULT.parent.glob(f"{DEFAULT.name}-*"), reverse=True)
    return tuple(dict.fromkeys((*from_environment, *from_nvcc, DEFAULT, *versioned)))


def package_directories() -> tuple[Path, ...]:
    """The directories of NVIDIA's Python packages, with `include`, `lib` or `bin` like a toolkit."""
    return tuple(sorted({path for site in sys.path for path in Path(site or ".").glob("nvidia/*") if path.is_dir()}))


def triton_directory() -> Path | None:
    """The folder of the toolkit programs and headers that the installed Triton contains; None without Triton."""
    spec = importlib.util.find_spec("triton")
    directory = Path(spec.origin).parent / "backends/nvidia" if spec and spec.origin else None
    return directory if directory and directory.is_dir() else None


def find_header_directory(header: str) -> Path | None:
    """Finds the include directory that has a header, of a toolkit or of a Python package."""
    candidates = (root / "include" for root in (*toolkit_directories(), *package_directories()))
    return next((folder for folder in candidates if (folder / header).is_file()), None)


def find_directory(relative: str) -> Path | None:
    """Finds a directory of a toolkit by its relative path: "targets/x86_64-linux/lib"."""
    return next((root / relative for root in toolkit_directories() if (root / relative).is_dir()), None)


def find_program(name: str) -> Path | None:
    """Finds a program of the toolkit: on PATH, in a toolkit, or in a Python package."""
    on_path = shutil.which(name)
    if on_path:
        return Path(on_path)
    candidates = (root / "bin" / name for root in (*toolkit_directories(), *package_directories()))
    return next((path for path in candidates if os.access(path, os.X_OK)), None)
