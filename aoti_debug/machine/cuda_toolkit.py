"""Finds the CUDA toolkit: its directories, headers and programs, and those that Python packages bring."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from pathlib import Path

DEFAULT = Path("/usr/local/cuda")


def toolkits() -> tuple[Path, ...]:
    """Directories where a toolkit may be, the one that is meant first: $CUDA_HOME, $CUDA_PATH, that of the nvcc on
    PATH, the default one, and its neighbours cuda-VERSION."""
    named = [Path(home) for name in ("CUDA_HOME", "CUDA_PATH") if (home := os.environ.get(name))]
    nvcc = shutil.which("nvcc")
    of_nvcc = [Path(nvcc).resolve().parent.parent] if nvcc else []
    neighbours = sorted(DEFAULT.parent.glob(f"{DEFAULT.name}-*"), reverse=True)
    return tuple(dict.fromkeys((*named, *of_nvcc, DEFAULT, *neighbours)))


def packages() -> tuple[Path, ...]:
    """The directories of NVIDIA's Python packages, each with `include`, `lib` or `bin` as a toolkit has."""
    return tuple(sorted({path for site in sys.path for path in Path(site or ".").glob("nvidia/*") if path.is_dir()}))


def triton_directory() -> Path | None:
    """Where the installed Triton keeps the toolkit's programs and headers that it brings."""
    spec = importlib.util.find_spec("triton")
    directory = Path(spec.origin).parent / "backends/nvidia" if spec and spec.origin else None
    return directory if directory and directory.is_dir() else None


def header_directory(header: str) -> Path | None:
    """The include directory that has a header: a toolkit's, or a package's."""
    places = (place / "include" for place in (*toolkits(), *packages()))
    return next((place for place in places if (place / header).is_file()), None)


def directory(relative: str) -> Path | None:
    """A directory of a toolkit by its place in it: "targets/x86_64-linux/lib"."""
    return next((place / relative for place in toolkits() if (place / relative).is_dir()), None)


def program(name: str) -> Path | None:
    """A program of the toolkit: on PATH, in a toolkit, or in a package."""
    on_path = shutil.which(name)
    if on_path:
        return Path(on_path)
    places = (place / "bin" / name for place in (*toolkits(), *packages()))
    return next((path for path in places if os.access(path, os.X_OK)), None)
