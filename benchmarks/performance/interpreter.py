# ruff: noqa: N803 (BLOCK, as in every Triton kernel)
"""Measures the checked interpreter of repros beside Triton's own, which checks nothing, and triton-viz's sanitizer.

usage: python -m benchmarks.performance.interpreter [--triton-viz PYTHON] [--repeat N] [--only KERNEL ...]

PYTHON is an interpreter of an environment with triton 3.7.1 and triton-viz, which does not load with later versions:

    python -m venv viz && viz/bin/pip install torch triton==3.7.1 triton-viz

Prints a Markdown table: seconds for a launch, the best of N after one that is not counted; triton-viz is run once,
because it takes long. Every column runs in a process of its own.
"""

from __future__ import annotations

import argparse
import math
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl

from benchmarks import checkout

COLUMNS = ("checked", "Triton's interpreter", "triton-viz")
TIMEOUT = 900  # seconds for one launch


@triton.jit
def gather(index, source, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    k = tl.load(index + i, mask=mask)
    tl.store(out + i, tl.load(source + k, mask=mask), mask=mask)


@triton.jit
def pointwise(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    a = tl.load(x + i, mask=mask)
    b = tl.load(y + i, mask=mask)
    tl.store(out + i, tl.exp(a) * b + 0.5, mask=mask)


@triton.jit
def softmax(x, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    mask = i < columns
    a = tl.load(x + row * columns + i, mask=mask, other=float("-inf"))
    e = tl.exp(a - tl.max(a, 0))
    tl.store(out + row * columns + i, e / tl.sum(e, 0), mask=mask)


@triton.jit
def histogram(index, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    tl.atomic_add(out + tl.load(index + i, mask=mask), 1.0, mask=mask)


PROGRAMS, BLOCK = 128, 1024


def launches() -> dict[str, tuple[Any, dict[str, Any], dict[str, int]]]:
    """Kernel name -> kernel, arguments, constants; all of 128 programs of 1024 elements."""
    n = PROGRAMS * BLOCK
    index, values = torch.randint(0, n, (n,)), torch.randn(n)
    constants = {"BLOCK": BLOCK}
    return {
        "gather": (gather, {"index": index, "source": values, "out": torch.empty(n), "n": n}, constants),
        "pointwise": (pointwise, {"x": values, "y": values, "out": torch.empty(n), "n": n}, constants),
        "softmax": (softmax, {"x": values, "out": torch.empty(n), "columns": BLOCK}, constants),
        "histogram": (histogram, {"index": index % 256, "out": torch.zeros(256), "n": n}, constants),
    }


def launcher(column: str, name: str) -> Callable[[], None]:
    kernel, arguments, constants = launches()[name]
    if column == "checked":
        from aoti_debug.repro.templates.interpreter import interpret

        return lambda: _clean(interpret(kernel, (PROGRAMS, 1, 1), arguments, constants).n_outside)
    if column == "triton-viz":
        import triton_viz
        from triton_viz.clients import Sanitizer

        kernel = triton_viz.trace(Sanitizer(abort_on_error=False))(kernel)
    return lambda: kernel[(PROGRAMS,)](**arguments, **constants)


def _clean(outside: int) -> None:
    assert outside == 0, f"{outside} accesses outside"


def measure(column: str, name: str, repeat: int) -> float:
    """Seconds for a launch, in this process."""
    launch = launcher(column, name)
    times = []
    for _ in range(1 if column == "triton-viz" else repeat + 1):
        begun = time.perf_counter()
        launch()
        times.append(time.perf_counter() - begun)
    return min(times[1:] or times)


def measured(python: str, column: str, name: str, repeat: int) -> float:
    """Seconds for a launch, in a process of its own; infinite if that takes longer than is waited for.

    Raises:
        SystemExit: it failed.
    """
    interpreted = {"checked": "0"}.get(column, "1")
    command = [python, "-m", "benchmarks.performance.interpreter", "--measure", column, name, "--repeat", str(repeat)]
    try:
        done = subprocess.run(
            command,
            env=checkout.environment(TRITON_INTERPRET=interpreted),
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return math.inf
    if done.returncode != 0:
        raise SystemExit(f"{column}, {name}: {done.stderr or done.stdout}")
    return float(done.stdout.split()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--triton-viz", metavar="PYTHON", help="an interpreter with triton 3.7.1 and triton-viz")
    parser.add_argument("--repeat", type=int, default=9)
    parser.add_argument("--only", nargs="*", choices=["gather", "pointwise", "softmax", "histogram"])
    parser.add_argument("--measure", nargs=2, metavar=("COLUMN", "KERNEL"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        column, kernel = options.measure
        print(measure(column, kernel, options.repeat))
        return
    pythons = dict.fromkeys(COLUMNS[:2], sys.executable)
    if options.triton_viz:
        pythons["triton-viz"] = options.triton_viz
    print(f"{PROGRAMS} programs of {BLOCK} elements; triton {triton.__version__}, {platform.processor() or 'CPU'}\n")
    print("| kernel | " + " | ".join(pythons) + " | checked / Triton's | triton-viz / checked |")
    print("|---" * (len(pythons) + 3) + "|")
    for name in options.only or launches():
        seconds = {column: measured(python, column, name, options.repeat) for column, python in pythons.items()}
        cells = [f"{s:.3f} s" if s < math.inf else f"> {TIMEOUT} s" for s in seconds.values()]
        checked, plain, viz = (seconds.get(column, math.nan) for column in COLUMNS)
        ratios = [f"{checked / plain:.2f}", f"{viz / checked:.0f}" if viz < math.inf else ""]
        print(f"| {name} | " + " | ".join([*cells, *ratios]) + " |", flush=True)


if __name__ == "__main__":
    main()
