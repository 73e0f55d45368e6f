"""Compiles cpp/ops.cpp, the library of operators that fail, and builds a package that calls one."""

from __future__ import annotations

from pathlib import Path

from aoti_debug.base.machine import cache
from aoti_debug.base.machine.compiler import find_compiler, find_torch
from aoti_debug.instrument.builder import build as builder
from aoti_debug.instrument.builder.compiling.toolchain import Toolchain
from tests.paths import CPP

SOURCE = CPP / "ops.cpp"
_FLAGS = ("-std=c++20", "-g1", "-O1", "-w", "-fno-optimize-sibling-calls", "-fPIC", "-shared", "-pthread")


def compiled() -> Path:
    """The library, with line numbers; compiled once. Does not import torch."""
    toolchain = Toolchain(find_compiler(), find_torch())
    torch = toolchain.torch.directory
    words = [*_FLAGS, f"-I{torch}/include", f"-I{torch}/include/torch/csrc/api/include", str(SOURCE)]
    words += [f"-L{torch}/lib", f"-Wl,-rpath,{torch}/lib", "-ltorch_cpu", "-lc10", "-ltorch"]
    name = "libnative_ops.so"

    def fill(folder: Path) -> None:
        toolchain.run([toolchain.compiler.path, *words, "-o", str(folder / name)], f"{SOURCE.name} does not compile")

    return cache.entry("native-operators", toolchain.key(SOURCE.read_text(), *words), fill) / name


def package(folder: Path) -> Path:
    """Two launches; the second one is the operator native::act."""
    import torch

    library = compiled()
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
