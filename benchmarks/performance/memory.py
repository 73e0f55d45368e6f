"""Compares the peak that `aoti-debug memory` computes with that of torch's own counters, on models of the test suite.

usage: python memory.py [MODEL ...] [--device cpu|cuda]    without a name, all of them

The peak is that of calls of the model, without that of its constant folding, which the plain package does only once.
The counter is of a second call of the plain package: on the CPU the allocations and frees that torch.profiler sees
(profile_memory=True), on a GPU torch.cuda.max_memory_allocated. Both count what operators allocate while they run, too.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from aoti_debug.base.abi import CallKind
from aoti_debug.instrument.builder import build as builder
from aoti_debug.runs.run import memory_meter, runner
from aoti_debug.runs.run.options import recording_everything
from aoti_debug.runs.run.supervise import Observer
from aoti_debug.views.memory.lifetimes import run_memory
from benchmarks import checkout
from benchmarks.models.ordinary_models import ordinary
from benchmarks.models.planted_models import Example

GOAL = 0.01  # of torch's counter


def counted_on_cpu(call: Callable[[], Any]) -> int:
    """The peak of what torch's CPU allocator hands out during a call, in bytes."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as found:
        kept = call()
    del kept
    events = [e for e in found.profiler.kineto_results.events() if e.name() == "[memory]"]
    there = peak = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        there += event.nbytes()
        peak = max(peak, there)
    return peak


def counted_on_cuda(call: Callable[[], Any]) -> int:
    """The peak of torch's CUDA allocator during a call, beyond what was there before, in bytes."""
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    kept = call()
    torch.cuda.synchronize()
    del kept
    return int(torch.cuda.max_memory_allocated() - before)


@dataclass(frozen=True)
class Peak:
    """The peaks of a model's call in bytes.

    Attributes:
        computed: with the workspace of operators, as far as it is measured.
        buffers: without it.
        counted: by torch, of the plain package.
        launch: that of the computed one.
    """

    computed: int
    buffers: int
    counted: int
    launch: str


def measure(example: Example, device: str, folder: Path) -> Peak:
    """The peaks of a model."""
    module = example.module().eval().to(device, example.dtype)
    inputs = tuple(x.to(device) if isinstance(x, torch.Tensor) else x for x in example.inputs())
    with torch.no_grad():
        program = torch.export.export(module, inputs, dynamic_shapes=example.dynamic, strict=False)
        plain = torch._inductor.aoti_compile_and_package(
            program, package_path=str(folder / "plain.pt2"), inductor_configs=dict(example.configs)
        )
        model = torch._inductor.aoti_load_package(plain)
        model(*inputs)
        count = counted_on_cuda if device == "cuda" else counted_on_cpu
        counted = count(lambda: model(*inputs))
    torch.save({"args": inputs, "kwargs": {}}, folder / "inputs.pt")
    package = builder.build(
        plain,
        output=folder / "instrumented.pt2",
        inputs=folder / "inputs.pt",
        imports=example.imports,
        trusted=True,
    )
    options = replace(recording_everything(package, folder / "runs"), level=3, calls=2, memory=True)
    run = runner.run(options, Observer()).run
    calls = run_memory(run, memory_meter.read_memory(run.path)).calls
    call = max((call for call in calls if call.kind is CallKind.MODEL), key=lambda call: call.peak_bytes)
    return Peak(call.peak_bytes, max(call.allocated), counted, call.launches[call.peak].id)


def main() -> int:
    """Exit code 1 if a peak is off by more than 1 %."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    arguments = parser.parse_args()
    examples = ordinary()
    os.environ["PYTHONPATH"] = checkout.python_path()  # of processes
    off = 0
    print(f"{'model':28} {'buffers':>12} {'computed':>12} {'counted':>12}  {'error':>7}  launch")
    for name in arguments.models or examples:
        example = examples[name]
        torch.manual_seed(0)
        with tempfile.TemporaryDirectory() as folder:
            try:
                peak = measure(example, arguments.device, Path(folder))
            except Exception as error:  # noqa: BLE001 - the others go on
                print(f"{name:28} failed: {str(error).splitlines()[0]}")
                continue
        excess = peak.computed / peak.counted - 1 if peak.counted else 0.0
        off += abs(excess) > GOAL
        sizes = f"{peak.buffers:12} {peak.computed:12} {peak.counted:12}"
        print(f"{name:28} {sizes}  {excess:+7.2%}  {peak.launch}", flush=True)
    return 1 if off else 0


if __name__ == "__main__":
    sys.exit(main())
