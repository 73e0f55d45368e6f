"""Compiles cpp/ops.cpp, the library of an operator that faults, and builds a package that calls it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from paths import CPP

from aoti_debug.builder import build as builder

SOURCE = CPP / "ops.cpp"


def compiled(folder: Path) -> Path:
    """The library, with debug information."""
    import torch

    root = Path(torch.__file__).parent
    library = folder / "libnative_ops.so"
    flags = ["-std=c++17", "-g", "-O1", "-w", "-fno-optimize-sibling-calls", "-fPIC", "-shared", "-pthread"]
    include = [f"-I{root / 'include'}", f"-I{root / 'include/torch/csrc/api/include'}"]
    link = [f"-L{root / 'lib'}", "-ltorch_cpu", "-lc10", "-o", str(library)]
    done = subprocess.run(
        [os.environ.get("CXX", "g++"), *flags, *include, str(SOURCE), *link],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return library


def package(folder: Path) -> Path:
    """Two launches; the second one is the operator."""
    import torch

    library = compiled(folder)
    torch.ops.load_library(library)

    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.softmax(torch.ops.native.act(torch.relu(x)), -1)

    program = torch.export.export(Model().eval(), (torch.linspace(-1, 1, 8).reshape(2, 4),))
    torch.export.save(program, folder / "model.pt2")
    return builder.build(folder / "model.pt2", output=folder / "native.pt2", libraries=(library,))


def line_of(text: str) -> int:
    """The line of ops.cpp that holds a text."""
    return next(n for n, line in enumerate(SOURCE.read_text().splitlines(), 1) if text in line)
