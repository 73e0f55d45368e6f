"""Compiles native.cpp into a library of operators."""

from __future__ import annotations

import importlib.util
import os
import subprocess
from pathlib import Path

SOURCE = Path(__file__).resolve().parent / "native.cpp"


def build(folder: Path) -> Path:
    """The library, compiled into `folder` if it is not there yet. Does not import torch."""
    library = folder / "corpus_native.so"
    if library.exists():
        return library
    spec = importlib.util.find_spec("torch")
    assert spec is not None
    assert spec.submodule_search_locations
    torch = Path(spec.submodule_search_locations[0])
    include = torch / "include"
    half_done = library.with_suffix(".part")
    command = [os.environ.get("CXX", "g++"), "-std=c++20", "-g1", "-O1", "-shared", "-fPIC", "-w"]
    command += [f"-I{include}", f"-I{include}/torch/csrc/api/include", str(SOURCE), "-o", str(half_done)]
    command += [f"-L{torch}/lib", f"-Wl,-rpath,{torch}/lib", "-ltorch_cpu", "-lc10", "-ltorch"]
    subprocess.run(command, check=True)
    half_done.rename(library)
    return library
