"""Times calls of several packages of one model, in turn, in one process, and prints one JSON object.

usage: python -m benchmarks.performance.timed_calls PROGRAM.pt2 ROUNDS REPEATS VARIANTS.json call|replay

PROGRAM is the exported program whose example inputs are used. VARIANTS maps a label to [PACKAGE, ENVIRONMENT]; the
environment holds while the package is loaded and called first. A number instead of them stands for plain write(2) of
so many bytes, 8 MiB at a time, into new files of that size. Every round calls each variant REPEATS times, the device
synchronised around each call, so that drift of the machine meets all alike; the inputs differ from round to round.
With `replay` a CUDA graph captures each package after its first calls, and what is timed is its replays.
What the printers print goes to a file.
Printed for each label: `median_ms`, `checksum`; and `peak_growth_mib`, by how much the process's peak
resident memory grew from the first call on.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.export import load

from aoti_debug.runs.run import (
    load_model,  # torch's own Python loader compiles C++ in each process, to know the processor
)
from tests import torch_features


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def checksum(outputs: Any) -> list[float]:
    found = outputs if isinstance(outputs, (tuple, list)) else [outputs]
    return [float(o.double().sum()) for o in found if isinstance(o, torch.Tensor)]


class Writer:
    """Writes bytes as fast as write(2) takes them, into files that stay until the process's directory goes."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.block = memoryview(os.urandom(8 << 20))
        self.files = 0

    def __call__(self, *args: object, **kwargs: object) -> list[torch.Tensor]:
        left = self.total
        while left > 0:
            fd = os.open(f"written-{self.files}", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
            left -= os.write(fd, self.block[: min(left, len(self.block))])
            os.close(fd)
            self.files += 1
        return []


class Replayed:
    """A model as a CUDA graph; a call replays it."""

    def __init__(self, model: Any, args: Any, kwargs: Any) -> None:
        self.model = model  # the graph uses its weights and kernels
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.outputs = model(*args, **kwargs)

    def __call__(self, *args: object, **kwargs: object) -> Any:
        self.graph.replay()
        return self.outputs


def example_inputs(program: Path) -> tuple[Any, Any]:
    """The example inputs of an exported program, also of one with streams of its own."""
    if torch_features.SIDE_STREAMS:
        importlib.import_module("torch._dynamo.variables.streams")  # registers their operators

    args, kwargs = load(program).example_inputs
    return args, kwargs


def main() -> None:
    args, kwargs = example_inputs(Path(sys.argv[1]))
    rounds, repeats, variants = int(sys.argv[2]), int(sys.argv[3]), json.loads(Path(sys.argv[4]).read_text())
    replays = sys.argv[5] == "replay"
    cuda = any(a.is_cuda for a in args)
    wait = torch.cuda.synchronize if cuda else (lambda: None)
    answer = os.dup(1)
    sys.stderr = os.fdopen(os.dup(2), "w")  # for a traceback
    printed = os.open("printed.log", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    os.dup2(printed, 1)
    os.dup2(printed, 2)
    models: dict[str, Callable[..., Any]] = {}
    sums: dict[str, Any] = {}
    times: dict[str, list[float]] = {label: [] for label in variants}
    before = 0.0
    with torch.no_grad():
        for label, variant in variants.items():
            package, environment = ("", {}) if isinstance(variant, int) else variant
            os.environ.update(environment)
            models[label] = (
                Writer(variant)
                if isinstance(variant, int)
                else load_model.load_file(Path(package), "model", single_threaded=replays)
            )
            before = before or peak_mib()
            for _ in range(2 if rounds < 10 else 10):
                sums[label] = checksum(models[label](*args, **kwargs))
            if replays:
                wait()
                models[label] = Replayed(models[label], args, kwargs)
                sums[label] = checksum(models[label]())
            wait()
            for name in environment:
                del os.environ[name]
        for number in range(rounds):
            varied = [a + 0.001 * (number + 1) if a.is_floating_point() else a for a in args]
            for label, model in models.items():
                for _ in range(repeats):
                    wait()
                    start = time.perf_counter()
                    model(*varied, **kwargs)
                    wait()
                    times[label].append(1e3 * (time.perf_counter() - start))
    result: dict[str, Any] = {
        label: {"median_ms": statistics.median(t), "checksum": sums[label]} for label, t in times.items()
    }
    result["peak_growth_mib"] = peak_mib() - before
    os.write(answer, json.dumps(result).encode())


if __name__ == "__main__":
    main()
