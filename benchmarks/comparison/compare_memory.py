"""Measures the memory of the process that evaluates in `aoti-debug compare`, on models with large weights.

usage: python -m benchmarks.comparison.compare_memory [--only MODEL ...]

Prints a Markdown table: the weights of each model, the tensors of its largest launch, and the bound, which is two of
those and 512 MiB. Then the peaks of the process that evaluates regions, the program and the exported program: of its
anonymous memory, which is sampled every 2 ms, and of its resident size, with the files that it maps, which the system
drops when memory is scarce. The largest other process is the one that compiles a model, or runs it. Exit code 1: the
anonymous memory was beyond the bound.
"""

from __future__ import annotations

import argparse
import contextlib
import resource
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import nn

from aoti_debug.base.machine.steps import Steps
from aoti_debug.compare.compare_run import Scope, compare_run
from aoti_debug.compare.evaluation_process import LOG, EvaluationProcess
from aoti_debug.instrument.builder import build as builder
from aoti_debug.runs.run import runner
from aoti_debug.runs.run.options import RunOptions
from aoti_debug.runs.rundir.run_directory import RunDir

ROOM = 512 << 20  # beyond the tensors of two launches
_SECONDS = 0.002


class Lookup(nn.Module):
    """A wide embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(1 << 18, 1024)
        self.norm = nn.LayerNorm(1024)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.norm(self.table(tokens)).sum(-1)


def _linears(count: int, size: int) -> nn.Module:
    return nn.Sequential(*(layer for _ in range(count) for layer in (nn.Linear(size, size), nn.Tanh())))


def _transformer() -> nn.Module:
    layer = nn.TransformerEncoderLayer(1024, 16, 4096, 0.0, batch_first=True)
    return nn.TransformerEncoder(layer, 12, enable_nested_tensor=False)


def _head() -> nn.Module:
    return nn.Sequential(nn.Linear(2048, 98304), nn.Softmax(-1)).bfloat16()


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], torch.Tensor]]] = {
    "8 linear layers of 4096": (lambda: _linears(8, 4096), lambda: torch.randn(16, 4096)),
    "150 linear layers of 64": (lambda: _linears(150, 64), lambda: torch.randn(4, 64)),
    "12 transformer layers of 1024": (_transformer, lambda: torch.randn(1, 64, 1024)),
    "embedding of 262144 rows": (Lookup, lambda: torch.randint(0, 1 << 18, (4, 64))),
    "98304 classes, bfloat16": (_head, lambda: torch.randn(4, 2048).bfloat16()),
}


class Peaks:
    """The largest sizes of a process in bytes: anonymous memory, and all that is resident."""

    def __init__(self) -> None:
        self.anonymous = self.resident = 0

    def sample(self, process: int) -> None:
        """Looks at the process now."""
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
        sizes = {line.partition(":")[0]: line.split()[1] for line in lines if line.startswith(("RssAnon", "VmHWM"))}
        self.anonymous = max(self.anonymous, 1024 * int(sizes.get("RssAnon", 0)))
        self.resident = max(self.resident, 1024 * int(sizes.get("VmHWM", 0)))


@contextlib.contextmanager
def sampled(process: int) -> Iterator[Peaks]:
    """Samples a process inside the `with`, until it has ended."""
    peaks, ended = Peaks(), threading.Event()

    def sample() -> None:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            while not ended.wait(_SECONDS):
                peaks.sample(process)

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield peaks
    finally:
        ended.set()
        thread.join()


def largest_launch(run: RunDir) -> int:
    """The bytes of the tensors of the launch that has most."""
    sizes = []
    for launch in run.launches:
        layouts = {argument.name: argument.layout for argument in launch.args}
        sizes.append(sum(layout.bytes for layout in layouts.values() if layout is not None))
    return max(sizes)


def measured(name: str, folder: Path) -> bool:
    """Prints the row of a model; returns True if it stays within the bound."""
    make, make_input = MODELS[name]
    torch.manual_seed(0)
    program, package = folder / "model.pt2", folder / "package.pt2"
    with torch.no_grad():
        module = make().eval()
        weights = sum(tensor.nbytes for tensor in module.state_dict().values())
        torch.export.save(torch.export.export(module, (make_input(),)), program)
    del module
    builder.build(program, output=package)
    run = runner.run(RunOptions(package, level=1, phase="both", out=folder / "runs", calls=2)).run
    largest = largest_launch(run)
    bound = 2 * largest + ROOM
    process = EvaluationProcess("cpu", folder / LOG)
    began = time.monotonic()
    with contextlib.closing(process), sampled(process.pid) as peaks:
        comparison = compare_run(run, Scope(exported=program), folder, Steps(None), process)
    seconds = time.monotonic() - began
    sizes = (weights, largest, bound, peaks.anonymous, peaks.resident)
    cells = " | ".join(f"{size >> 20}" for size in sizes)
    compared = f"{comparison.coverage.compared} of {comparison.coverage.launches}"
    print(f"| {name} | {compared} | {cells} | {seconds:.0f} s |", flush=True)
    return peaks.anonymous <= bound


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="MODEL", choices=MODELS, default=tuple(MODELS))
    names = parser.parse_args().only
    print(f"MiB, torch {torch.__version__}\n")
    print("| model | launches compared | weights | largest launch | bound | anonymous | resident | time |")
    print("|---|---|---|---|---|---|---|---|")
    are_within = []
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            are_within.append(measured(name, Path(folder)))
    print(f"\nlargest other process: {resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10} MiB")
    return 0 if all(are_within) else 1


if __name__ == "__main__":
    sys.exit(main())
