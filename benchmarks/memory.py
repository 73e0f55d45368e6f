"""Compares the peak that `aoti-debug memory` computes with that of torch's own counters, on models of the test suite.

usage: python memory.py [MODEL ...] [--device cpu|cuda]    without a name, all of them

The counter is of a second call of the plain package: on the CPU the allocations and frees that torch.profiler sees
(profile_memory=True), on a GPU torch.cuda.max_memory_allocated. Both count what operators allocate while they run, too.
"""

from __future__ import annotations

import argparse
import gc
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from ordinary_models import ordinary
from planted_models import Example
from torch.profiler import ProfilerActivity, profile

from aoti_debug.builder import build as builder
from aoti_debug.memory.run_memory import run_memory
from aoti_debug.run.options import recording_everything
from aoti_debug.run.runner import run_with
from aoti_debug.run.supervise import Observer

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
    return torch.cuda.max_memory_allocated() - before


def measure(example: Example, device: str, folder: Path) -> tuple[int, int, str]:
    """The peak that is computed, the peak that is counted, in bytes, and the launch of the first."""
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
        del model
        gc.collect()
    torch.save({"args": inputs, "kwargs": {}}, folder / "inputs.pt")
    package = builder.build(
        plain,
        output=folder / "instrumented.pt2",
        inputs=folder / "inputs.pt",
        imports=example.imports,
        trusted=True,
    )
    run = run_with(recording_everything(package, folder / "runs"), Observer()).run
    call = run_memory(run).worst
    assert call is not None
    return call.peak_bytes, counted, call.launches[call.peak].id


def main() -> int:
    """Exit code 1 if a peak is off by more than 1 %."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    arguments = parser.parse_args()
    examples = ordinary()
    off = 0
    print(f"{'model':28} {'computed':>12} {'counted':>12}  {'error':>7}  launch")
    for name in arguments.models or examples:
        example = examples[name]
        torch.manual_seed(0)
        with tempfile.TemporaryDirectory() as folder:
            try:
                computed, counted, launch = measure(example, arguments.device, Path(folder))
            except Exception as error:  # noqa: BLE001 - the others go on
                print(f"{name:28} failed: {str(error).splitlines()[0]}")
                continue
        error = computed / counted - 1 if counted else 0.0
        off += abs(error) > GOAL
        print(f"{name:28} {computed:12} {counted:12}  {error:+7.2%}  {launch}", flush=True)
    return 1 if off else 0


if __name__ == "__main__":
    sys.exit(main())
