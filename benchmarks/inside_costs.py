"""Measures what prints, inspectors, watchpoints and summaries cost, beside the plain package.

usage: python benchmarks/inside_costs.py [--device cpu|cuda] [--calls N] [--launches N]

Prints a Markdown table, in µs. The model is a chain of small reductions, for tensors of 1 KiB, 64 KiB and 1 MiB; the
packages are called in turn in one process, what they print goes to /dev/null; the fastest of N calls counts. The
time to read a tensor once is its size by the speed at which torch sums 256 MiB.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import aoti_debug
from aoti_debug.abi import Variable
from aoti_debug.builder.build import BuildOptions, build_report
from aoti_debug.run import cpp_loader, runner
from aoti_debug.rundir import summaries

SIDES = {"1 KiB": 16, "64 KiB": 128, "1 MiB": 512}  # rows and columns, float32
QUIET = {Variable.LEVEL: "3", Variable.PRINT: "none"}
WATCH = "*: nan"
GOAL = 2.0  # µs for a watched argument beyond reading it, on CUDA


class Chain(nn.Module):
    """Reductions along another axis each time, never one kernel; each may be followed by a print of one element."""

    def __init__(self, launches: int, prints: bool) -> None:
        super().__init__()
        self.launches = launches
        self.prints = prints

    def forward(self, x: Tensor) -> Tensor:
        for number in range(self.launches):
            x = (3 * x).softmax(number % 2)
            if self.prints:
                aoti_debug.print_("{}", x[0, 0])
        return x


@dataclass(frozen=True)
class Packages:
    """The packages of one size of tensors.

    Attributes:
        watched, summarised: numbers of tensors that a watchpoint looks at, and that summaries have, in one call.
    """

    plain: Path
    built: Path
    printing: Path
    watched: int
    summarised: int


def build(work: Path, side: int, device: str, launches: int, prints: bool) -> None:
    """Builds the instrumented package of a chain, and its plain twin."""
    name = f"{'prints' if prints else 'chain'}{side}"
    with torch.no_grad():
        x = torch.rand(side, side, device=device)
        program = torch.export.export(Chain(launches, prints).to(device).eval(), (x,))
    torch.export.save(program, work / f"{name}.pt2")
    output, plain = work / f"{name}.built.pt2", work / f"{name}.plain.pt2"
    build_report(BuildOptions(program=work / f"{name}.pt2", output=output, plain=plain))


def build_all(work: Path, device: str, launches: int) -> None:
    """Builds the packages of all sizes, in processes of their own."""
    jobs = max(1, min(2 * len(SIDES), (os.cpu_count() or 1) // 2))
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        done = [
            pool.submit(build, work, side, device, launches, prints)
            for side in SIDES.values()
            for prints in (False, True)
        ]
        for future in done:
            future.result()


def packages_of(work: Path, side: int) -> Packages:
    """The packages of one size, and how many of their tensors are looked at."""
    built = work / f"chain{side}.built.pt2"
    run = runner.run(built, out=work / "runs", watch=(WATCH,), on_hit="count", summaries=1, level=3).run
    kept = summaries.read(run)
    assert kept is not None
    return Packages(
        plain=work / f"chain{side}.plain.pt2",
        built=built,
        printing=work / f"prints{side}.built.pt2",
        watched=run.timeline.watchpoints[0].evaluated,
        summarised=sum(len(series.samples) for series in kept.series),
    )


@contextlib.contextmanager
def environment(variables: dict[Variable, str]) -> Iterator[None]:
    names = {variable.value: text for variable, text in variables.items()}
    os.environ.update(names)
    try:
        yield
    finally:
        for name in names:
            del os.environ[name]


def measure(packages: Packages, side: int, device: str, calls: int) -> tuple[dict[str, float], int]:
    """The fastest call with each variant, in µs, and how often an inspector is called in one call."""
    inspected = [0]

    def look(tensor: Tensor, launch: object) -> None:
        inspected[0] += 1

    variants: dict[str, Callable[[Tensor], Any]] = {"plain": cpp_loader.load(packages.plain, "model")}
    x = torch.rand(side, side, device=device)
    loaded = {
        "level 0": (packages.built, {Variable.LEVEL: "0"}),
        "level 3": (packages.built, QUIET),
        "watch": (packages.built, {**QUIET, Variable.WATCH: WATCH, Variable.ON_HIT: "count"}),
        "summaries": (packages.built, {**QUIET, Variable.SUMMARIES: "1"}),
        "print": (packages.printing, {Variable.LEVEL: "0"}),
    }
    with torch.no_grad(), contextlib.ExitStack() as stack:
        for label, (package, variables) in loaded.items():
            with environment(variables):
                variants[label] = cpp_loader.load(package, "model")
                variants[label](x)
        variants["inspect"] = stack.enter_context(aoti_debug.inspect(packages.built, look))
        inspected[0] = 0
        variants["inspect"](x)
        count = inspected[0]
        wait = torch.cuda.synchronize if device == "cuda" else (lambda: None)
        times: dict[str, list[float]] = {label: [] for label in variants}
        for number in range(calls + 3):
            varied = x + 0.001 * number
            for label, model in variants.items():
                wait()
                start = time.perf_counter()
                model(varied)
                wait()
                if number >= 3:
                    times[label].append(1e6 * (time.perf_counter() - start))
    return {label: min(found) for label, found in times.items()}, count


def reading(device: str, size: int) -> float:
    """The µs that reading so many bytes takes, at the speed of one large sum."""
    large = torch.rand(1 << 26, device=device)
    wait = torch.cuda.synchronize if device == "cuda" else (lambda: None)
    best = float("inf")
    for _ in range(5):
        wait()
        start = time.perf_counter()
        large.sum()
        wait()
        best = min(best, time.perf_counter() - start)
    return 1e6 * best * size / (large.numel() * 4)


def columns(side: int, device: str, calls: int, launches: int, work: Path) -> dict[str, float]:
    """The rows of the table for tensors of one size, in µs."""
    packages = packages_of(work, side)
    with silent():
        found, inspected = measure(packages, side, device, calls)
    watched = (found["watch"] - found["level 3"]) / packages.watched
    read = reading(device, 4 * side * side)
    return {
        "a launch of the plain package": found["plain"] / launches,
        "a launch at level 0, more than plain": (found["level 0"] - found["plain"]) / launches,
        "a launch at level 3, more than plain": (found["level 3"] - found["plain"]) / launches,
        "a watched argument, more than level 3": watched,
        "reading the argument once": read,
        "a watched argument beyond reading it": watched - read,
        "a tensor in summaries, more than level 3": (found["summaries"] - found["level 3"]) / packages.summarised,
        "an argument of an inspector that returns at once, more than level 3": (found["inspect"] - found["level 3"])
        / inspected,
        "a print of one element at level 0, more than plain": (found["print"] - found["plain"]) / launches,
    }


@contextlib.contextmanager
def silent() -> Iterator[None]:
    """Sends what packages print to /dev/null."""
    sys.stdout.flush()
    kept, nothing = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nothing)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--launches", type=int, default=100, help="in one call of the model")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        os.environ[Variable.DIR.value] = str(Path(temporary) / "recorded")
        os.chdir(temporary)
        build_all(Path(temporary), options.device, options.launches)
        found = {
            label: columns(side, options.device, options.calls, options.launches, Path(temporary))
            for label, side in SIDES.items()
        }
    machine = torch.cuda.get_device_name() if options.device == "cuda" else f"{os.cpu_count()} CPU cores"
    print(
        f"{machine}, torch {torch.__version__}, Python {platform.python_version()}; "
        f"µs, the fastest of {options.calls} calls\n"
    )
    print(f"| | {' | '.join(found)} |\n|---|{'---|' * len(found)}")
    for row in next(iter(found.values())):
        print(f"| {row} | {' | '.join(f'{values[row]:.2f}' for values in found.values())} |")
    if options.device == "cuda":
        worst = max(values["a watched argument beyond reading it"] for values in found.values())
        print(f"\na watched argument beyond reading it: at most {worst:.2f} µs; the goal is {GOAL:g} µs")


if __name__ == "__main__":
    main()
