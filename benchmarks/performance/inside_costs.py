"""Measures what prints, inspectors, watchpoints and summaries cost, beside the plain package.

usage: python -m benchmarks.performance.inside_costs [--device cpu|cuda] [--calls N] [--launches N]

Prints a Markdown table, in µs. The models are chains of small reductions, for tensors of 1 KiB, 64 KiB and 1 MiB, and
layers of a transformer, with tensors of up to 1 MiB. A chain writes to two buffers in turn, and a buffer has to be
looked at before it is written to again: it is the most expensive kind of model. The packages are called in turn in one
process, each several times in a row, since a run adapts to how fast launches come; what they print goes to /dev/null,
and the fastest of N calls counts. The time to read a tensor once is its size by the speed at which torch sums 256 MiB.
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
from torch.profiler import ProfilerActivity, profile

import aoti_debug
from aoti_debug.base.abi import Variable
from aoti_debug.instrument.builder.build import BuildOptions, build_report
from aoti_debug.runs.run import load_model, runner
from aoti_debug.runs.run.options import RunOptions
from aoti_debug.runs.rundir import summaries

QUIET = {Variable.LEVEL: "3", Variable.PRINT: "none"}
WATCH = "*: nan"
BEYOND_READING = "a watched argument beyond reading it"
IN_A_ROW = 5  # calls of one package
GOAL = 2.0  # µs for a watched argument beyond reading it, on CUDA


class Chain(nn.Module):
    """Reductions along another axis each time, never one kernel; each may be followed by a print of one element."""

    def __init__(self, launches: int, *, prints: bool) -> None:
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
class Case:
    """A model that is measured, and the shape of its input.

    Attributes:
        printing: the same model with prints; None to measure none.
    """

    name: str
    model: Callable[[int], nn.Module]
    shape: tuple[int, ...]
    printing: Callable[[int], nn.Module] | None = None

    def path(self, work: Path, kind: str) -> Path:
        """The file of its program or of one of its packages: "program", "built", "plain", "printing"."""
        return work / f"{self.name.replace(' ', '_')}.{kind}.pt2"


def chain(launches: int) -> nn.Module:
    return Chain(launches, prints=False)


def printing_chain(launches: int) -> nn.Module:
    return Chain(launches, prints=True)


def transformer(launches: int) -> nn.Module:
    """Layers of a transformer; each of them has more than ten launches."""
    layer = nn.TransformerEncoderLayer(256, nhead=4, dim_feedforward=1024, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, max(1, launches // 10), enable_nested_tensor=False)


CASES = (
    Case("1 KiB", chain, (16, 16), printing_chain),
    Case("64 KiB", chain, (128, 128), printing_chain),
    Case("1 MiB", chain, (512, 512), printing_chain),
    Case("transformer", transformer, (1, 128, 256)),
)


@dataclass(frozen=True)
class Packages:
    """The packages of one model.

    Attributes:
        printing: None without one.
        launches, watched, summarised: numbers of launches, of tensors that a watchpoint looks at, and of those that
            summaries have, in one call.
        watched_bytes: the mean size of a tensor that is looked at.
    """

    plain: Path
    built: Path
    printing: Path | None
    launches: int
    watched: int
    summarised: int
    watched_bytes: float


def build(work: Path, case: Case, device: str, launches: int, kind: str) -> None:
    """Builds an instrumented package, and for "built" its plain twin."""
    make = case.printing if kind == "printing" else case.model
    assert make is not None
    with torch.no_grad():
        x = torch.rand(case.shape, device=device)
        program = torch.export.export(make(launches).to(device).eval(), (x,))
    path = case.path(work, f"program-{kind}")
    torch.export.save(program, path)
    plain = case.path(work, "plain") if kind == "built" else None
    build_report(BuildOptions(program=path, output=case.path(work, kind), plain=plain))


def build_all(work: Path, device: str, launches: int) -> None:
    """Builds the packages of all models, in processes of their own."""
    wanted = [(case, kind) for case in CASES for kind in ("built", "printing") if kind == "built" or case.printing]
    jobs = max(1, min(len(wanted), (os.cpu_count() or 1) // 2))
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        for future in [pool.submit(build, work, case, device, launches, kind) for case, kind in wanted]:
            future.result()


def packages_of(work: Path, case: Case) -> Packages:
    """The packages of a model, and how many of their tensors are looked at."""
    built = case.path(work, "built")
    run = runner.run(RunOptions(built, out=work / "runs", watch=(WATCH,), on_hit="count", summaries=1, level=3)).run
    kept = summaries.read(run)
    assert kept is not None
    samples = [(sample, series.dtype) for series in kept.series for sample in series.samples]
    return Packages(
        plain=case.path(work, "plain"),
        built=built,
        printing=case.path(work, "printing") if case.printing else None,
        launches=len(run.timeline.launches),
        watched=run.timeline.watchpoints[0].evaluated,
        summarised=len(samples),
        watched_bytes=sum(s.numel * getattr(torch, dtype).itemsize for s, dtype in samples) / len(samples),
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


@dataclass(frozen=True)
class Measured:
    """What was measured of one model.

    Attributes:
        fastest: the µs of the fastest call with each variant.
        inspected: how often an inspector is called in one call.
        kernels: how many kernels measure watched arguments in one call; 0 on a CPU.
        kernel_us: how long one of them takes on the device.
    """

    fastest: dict[str, float]
    inspected: int
    kernels: float
    kernel_us: float


def measure(packages: Packages, case: Case, device: str, calls: int) -> Measured:
    """Calls the variants of a model in turn."""
    inspected = [0]

    def look(tensor: Tensor, launch: object) -> None:
        inspected[0] += 1

    variants: dict[str, Callable[[Tensor], Any]] = {"plain": load_model.load_file(packages.plain, "model")}
    x = torch.rand(case.shape, device=device)
    loaded = {
        "level 0": (packages.built, {Variable.LEVEL: "0"}),
        "level 3": (packages.built, QUIET),
        "watch": (packages.built, {**QUIET, Variable.WATCH: WATCH, Variable.ON_HIT: "count"}),
        "summaries": (packages.built, {**QUIET, Variable.SUMMARIES: "1"}),
    }
    if packages.printing is not None:
        loaded["print"] = (packages.printing, {Variable.LEVEL: "0"})
    with torch.no_grad(), contextlib.ExitStack() as stack:
        for label, (package, variables) in loaded.items():
            with environment(variables):
                variants[label] = load_model.load_file(package, "model")
                variants[label](x)
        variants["inspect"] = stack.enter_context(aoti_debug.inspect(packages.built, look))
        inspected[0] = 0
        variants["inspect"](x)
        count = inspected[0]
        wait = torch.cuda.synchronize if device == "cuda" else (lambda: None)
        times: dict[str, list[float]] = {label: [] for label in variants}
        for turn in range(1 + calls // IN_A_ROW):
            for label, model in variants.items():
                for number in range(IN_A_ROW):
                    varied = x + 0.001 * number
                    wait()
                    start = time.perf_counter()
                    model(varied)
                    wait()
                    if turn > 0:
                        times[label].append(1e6 * (time.perf_counter() - start))
        kernels = statistics_kernels(variants["watch"], x) if device == "cuda" else (0, 0.0)
    return Measured({label: min(found) for label, found in times.items()}, count, *kernels)


def statistics_kernels(model: Callable[[Tensor], Any], x: Tensor) -> tuple[float, float]:
    """How many kernels measure arguments in one call, and the mean of the µs that one is on the device."""
    calls = 2 * IN_A_ROW
    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as profiler:
        for _ in range(calls):
            model(x)
            torch.cuda.synchronize()
    found = [event.time_range.elapsed_us() for event in profiler.events() if "aoti_debug_statistics" in event.name]
    return len(found) / calls, sum(found) / max(1, len(found))


def reading(device: str, size: float) -> float:
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
    return float(1e6 * best * size / (large.numel() * 4))


def columns(case: Case, device: str, calls: int, work: Path) -> dict[str, float]:
    """The rows of the table for one model, in µs; without a print if it has none."""
    packages = packages_of(work, case)
    with silent():
        measured = measure(packages, case, device, calls)
    found = measured.fastest
    launches = packages.launches
    watched = (found["watch"] - found["level 3"]) / packages.watched
    read = reading(device, packages.watched_bytes)
    rows = {
        "a launch of the plain package": found["plain"] / launches,
        "a launch at level 0, more than plain": (found["level 0"] - found["plain"]) / launches,
        "a launch at level 3, more than plain": (found["level 3"] - found["plain"]) / launches,
        "a watched argument, more than level 3": watched,
        "reading the argument once": read,
        BEYOND_READING: watched - read,
        "a tensor in summaries, more than level 3": (found["summaries"] - found["level 3"]) / packages.summarised,
        "an argument of an inspector that returns at once, more than level 3": (found["inspect"] - found["level 3"])
        / measured.inspected,
    }
    if measured.kernels:
        rows["arguments that one statistics kernel measures"] = packages.watched / measured.kernels
        rows["a statistics kernel on the device"] = measured.kernel_us
    if "print" in found:
        rows["a print of one element at level 0, more than plain"] = (found["print"] - found["plain"]) / launches
    return rows


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
        found = {case.name: columns(case, options.device, options.calls, Path(temporary)) for case in CASES}
    machine = torch.cuda.get_device_name() if options.device == "cuda" else f"{os.cpu_count()} CPU cores"
    print(
        f"{machine}, torch {torch.__version__}, Python {platform.python_version()}; "
        f"µs, the fastest of {options.calls} calls\n"
    )
    print(f"| | {' | '.join(found)} |\n|---|{'---|' * len(found)}")
    for row in next(iter(found.values())):
        print(f"| {row} | {' | '.join(f'{v[row]:.2f}' if row in v else '' for v in found.values())} |")
    if options.device == "cuda":
        worst = max(values[BEYOND_READING] for values in found.values())
        print(f"\n{BEYOND_READING}: at most {worst:.2f} µs; the goal is {GOAL:g} µs")


if __name__ == "__main__":
    main()
