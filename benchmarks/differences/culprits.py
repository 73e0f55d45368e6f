"""Plants two wrong launches among 600, and has `aoti-debug bisect` find both.

usage: python -m benchmarks.differences.culprits [--launches N] [--pairs N]

A chain of matrix products and generated kernels is lowered once, and built unchanged and, for each pair, with a kernel
that adds 0.5 to the first element of two of its launches. Prints a Markdown table. Exit code 1: a planted launch was
not found, another one was blamed, the outputs did not match again, or it took more than 2 * log2 N + 4 runs.
"""

from __future__ import annotations

import argparse
import math
import random
import re
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from aoti_debug.base.machine.processes import python_process
from aoti_debug.compare.bisect.bisect import BisectOptions, bisect_packages
from aoti_debug.compare.what_if.what_if import Recovery
from aoti_debug.instrument.frontend.exported_program import WORKER
from aoti_debug.instrument.frontend.lowered_model import LoweredModel
from aoti_debug.runs.run import runner
from aoti_debug.runs.run.options import RunOptions
from aoti_debug.runs.run.protocol import PRELOADED
from benchmarks.comparison.compare_bench import Bench
from benchmarks.markdown import table
from benchmarks.models.planted_models import Example

_KERNEL = re.compile(r'extern "C"\s+void\s+(cpp_fused_\w+)\(([^)]*)\)\n\{\n.*?\n\}\n', re.DOTALL)
_WRITTEN = re.compile(r"(?:^|,)\s*(?!const )([\w:]+)\* (\w+)")
_WRONG = """{{
    static long launches = 0;
    if ({launches}) {written}[0] += 0.5f;
    launches += 1;
}}
"""


class Chain(nn.Module):
    """Two launches for each step; an error at one of them stays in the outputs."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.steps = steps
        self.linear = nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(self.steps):
            x = x + 0.1 * self.linear(x).sin()
        return x


@dataclass(frozen=True)
class Row:
    """The result of one pair of planted launches."""

    planted: tuple[str, ...]
    found: tuple[str, ...]
    recovery: Recovery
    runs: int
    seconds: float


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--launches", type=int, default=600)
    parser.add_argument("--pairs", type=int, default=1)
    asked = parser.parse_args()
    lowering = ("torch._inductor.compile_fx", "torch._inductor.package", WORKER)
    with (
        tempfile.TemporaryDirectory(prefix="aoti-debug-bisect-") as folder,
        python_process.forking_from(PRELOADED, lowering),
    ):
        launches, rows = _rows(asked.launches, asked.pairs, Path(folder))
    most = math.floor(2 * math.log2(launches) + 4)
    head = ("launches", "planted", "found", "outputs", "runs", "allowed", "seconds")
    table(
        head,
        [
            (
                str(launches),
                " ".join(r.planted),
                " ".join(r.found),
                r.recovery.value,
                str(r.runs),
                str(most),
                f"{r.seconds:.1f}",
            )
            for r in rows
        ],
    )
    return int(any(r.planted != r.found or r.recovery is not Recovery.RECOVERED or r.runs > most for r in rows))


def _rows(launches: int, pairs: int, folder: Path) -> tuple[int, list[Row]]:
    bench = Bench("chain", Example(lambda: Chain(launches // 2), lambda: (torch.randn(4, 16),)), "cpu", folder)
    with bench.edited(lambda lowered: lowered):
        bench.build(bench.package)
    run = runner.run(RunOptions(bench.package, level=3, out=folder / "runs")).run
    names = [launch.kernel for launch in run.launches]
    kernel = max((name for name in set(names) if name.startswith("cpp_fused_")), key=names.count)
    ids = [launch.id for launch in run.launches if launch.kernel == kernel]
    chance, rows = random.Random(0), []
    for number in range(pairs):
        chosen = sorted(chance.sample(range(len(ids)), 2))
        bad = folder / f"bad{number}.pt2"
        with bench.edited(partial(_planted, kernel=kernel, chosen=chosen)):
            bench.build(bad)
        began = time.monotonic()
        found = bisect_packages(BisectOptions(good=bench.package, bad=bad, out=folder / "bisects"))
        rows.append(
            Row(
                tuple(ids[index] for index in chosen),
                tuple(suspect.launch.id for suspect in found.culprits),
                found.outputs.recovery,
                found.runs,
                time.monotonic() - began,
            )
        )
    return len(run.launches), rows


def _planted(lowered: LoweredModel, kernel: str, chosen: list[int]) -> LoweredModel:
    """The sources with a kernel that is wrong in some of its launches."""

    def wrong(match: re.Match[str]) -> str:
        if match[1] != kernel:
            return match[0]
        _, written = _WRITTEN.findall(match[2])[-1]
        launches = " || ".join(f"launches == {index}" for index in chosen)
        return match[0].removesuffix("}\n") + _WRONG.format(launches=launches, written=written) + "}\n"

    kernels = _KERNEL.sub(wrong, lowered.sources.kernels)
    return replace(lowered, sources=replace(lowered.sources, kernels=kernels))


if __name__ == "__main__":
    sys.exit(main())
