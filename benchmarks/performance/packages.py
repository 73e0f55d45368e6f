"""Measures what it takes to instrument a compiled package, beside `build` from the exported program.

usage: python -m benchmarks.performance.packages [--device cpu|cuda] [--runs N] [--only MODEL ...]

Prints a Markdown table of seconds: best of N, after one that fills the caches. "wrapper alone" is what no way around
compiling the wrapper can save: the package's own wrapper, not instrumented, with the same flags and headers.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from aoti_debug.base.machine.compiler import find_compiler, find_torch
from aoti_debug.instrument.builder import build as builder
from aoti_debug.instrument.builder.build import BuildOptions
from aoti_debug.instrument.builder.compiling.compile_library import LibraryCompilation
from aoti_debug.instrument.builder.compiling.toolchain import Toolchain
from aoti_debug.instrument.frontend import compiled_package
from aoti_debug.instrument.frontend.protocol.messages import Request
from aoti_debug.package.pt2 import archive
from benchmarks import checkout

MODELS = ("blocks", "mixed", "launches")
COMPILE = """
import sys, torch
from benchmarks.models import timed_models
program = timed_models.export(sys.argv[1], sys.argv[2])
torch.export.save(program, sys.argv[3])
torch._inductor.aoti_compile_and_package(program, package_path=sys.argv[4])
"""
ALLOWED = 2.0  # seconds more than the wrapper alone


@dataclass(frozen=True)
class Row:
    """Seconds."""

    model: str
    wrapper: float
    package: float
    exported: float
    sameness: str

    @property
    def markdown(self) -> str:
        more = self.package - self.wrapper
        return (
            f"| {self.model} | {self.wrapper:.1f} s | {self.package:.1f} s ({more:+.1f} s) | {self.exported:.1f} s "
            f"| {self.sameness} |"
        )


def measure(model: str, device: str, runs: int, folder: Path) -> Row:
    program, compiled = folder / "program.pt2", folder / "compiled.pt2"
    command = [sys.executable, "-c", COMPILE, model, device, str(program), str(compiled)]
    subprocess.run(command, env=checkout.environment(), check=True)
    summary = builder.build_report(BuildOptions(program=compiled, output=folder / "package.pt2"))
    ways: tuple[Callable[[], float], ...] = (
        lambda: _wrapper_alone(compiled, folder),
        lambda: builder.build_report(BuildOptions(program=compiled, output=folder / "a.pt2")).seconds,
        lambda: builder.build_report(BuildOptions(program=program, output=folder / "b.pt2")).seconds,
    )
    times = [[way() for way in ways] for _ in range(runs + 1)]  # in turn: what else the machine does hits all of them
    wrapper, from_package, exported = (min(column) for column in zip(*times[1:], strict=True))
    return Row(model, wrapper, from_package, exported, str(summary.manifest.sameness))


def _wrapper_alone(compiled: Path, folder: Path) -> float:
    """Compiles the wrapper of a package; what it takes to unpack it does not count."""
    tools = Toolchain(find_compiler(), find_torch())
    with tempfile.TemporaryDirectory(dir=folder) as work:
        request = Request(program="", folder=work)
        found = compiled_package.prepare_package(archive.inspect(compiled), "model", request, tools.torch, timeout=600)
        began = time.monotonic()
        with LibraryCompilation(tools, found.sources, Path(work)) as compilation:
            compilation.add_wrapper(found.sources.wrapper)
            compilation.wait()
        return time.monotonic() - began


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", nargs="*", choices=MODELS, default=MODELS)
    arguments = parser.parse_args()
    print(f"torch {torch.__version__}, {arguments.device}\n")
    print("| model | wrapper alone | from the package | from the exported program | kernels |")
    print("|---|---|---|---|---|")
    slow = []
    for model in arguments.only:
        with tempfile.TemporaryDirectory() as folder:
            row = measure(model, arguments.device, arguments.runs, Path(folder))
        print(row.markdown, flush=True)
        slow += [model] if row.package - row.wrapper > ALLOWED else []
    for model in slow:
        print(f"{model}: more than {ALLOWED:g} s beyond the wrapper")
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
