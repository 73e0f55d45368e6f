"""`--bench`: time of the launch, and bytes per second against the device's copy speed."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch

from .child import ReplayReport
from .job import AS_RECORDED, Job
from .kernel import NATIVE
from .options import Options

SECONDS = 1.0  # of measuring, about
MAX_LAUNCHES, MIN_LAUNCHES = 1000, 7  # launches
COPY_BYTES = {"cuda": 1 << 28, "cpu": 1 << 26}


def bench(job: Job, options: Options, report: ReplayReport) -> int:
    """Prints the median time of many launches, all in the same memory."""
    job.prepare(options.settings(job))
    memory = job.memory()
    report.send("begin")
    tensors = job.run(memory)
    device = (job.cuda_devices or ["cpu"])[0]

    def launch() -> None:
        with torch.no_grad():
            job.launch(**memory.views)

    times = _times(launch, device)
    moved = _bytes_moved(job, tensors)
    source = torch.zeros(COPY_BYTES[torch.device(device).type], dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    copied = 2 * source.nbytes / statistics.median(_times(lambda: target.copy_(source), device))
    middle = statistics.median(times)
    quarters = statistics.quantiles(times, n=4)
    how = f" ({options.backend})" if options.backend not in ("", NATIVE) else ""
    cache = ", each with a cold L2 cache" if device != "cpu" else ""
    print(f"{job.title}{how}: {_time(middle)}, the median of {len(times)} launches{cache}")
    print(f"  half of them took {_time(quarters[0])} to {_time(quarters[2])}")
    print(f"  {_size(moved)} of arguments: {_size(moved / middle)}/s, {moved / middle / copied:.1%} of the copy speed")
    print(f"  copying {_size(source.nbytes)} on {device}: {_size(copied)}/s read and written")
    return AS_RECORDED


def _times(action: Callable[[], object], device: str) -> list[float]:
    """Seconds of each call, measured until about SECONDS have passed."""
    measure = _on_cpu if device == "cpu" else _on_cuda
    usual = statistics.median(measure(action, 5, device))
    return measure(action, int(min(max(SECONDS / max(usual, 1e-9), MIN_LAUNCHES), MAX_LAUNCHES)), device)


def _on_cpu(action: Callable[[], object], count: int, device: str) -> list[float]:
    times = []
    for _ in range(count):
        begin = time.perf_counter()
        action()
        times.append(time.perf_counter() - begin)
    return times


def _on_cuda(action: Callable[[], object], count: int, device: str) -> list[float]:
    """Measures with CUDA events.

    Before each call a buffer larger than the L2 cache is cleared: nothing of the call's memory is cached, and the call
    is queued before the device gets to it.
    """
    events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(count)]
    with torch.cuda.device(device):
        scratch = torch.empty(COPY_BYTES["cuda"], dtype=torch.uint8, device=device)
        for begin, end in events:
            scratch.zero_()
            begin.record()
            action()
            end.record()
        torch.cuda.synchronize(device)
    return [begin.elapsed_time(end) / 1000 for begin, end in events]


def _bytes_moved(job: Job, tensors: dict[str, torch.Tensor]) -> int:
    """Every argument read once if it is an input, and written once if it is an output."""
    ways = {"in": 1, "out": 1, "in-out": 2, "unknown": 1}
    passed = sum(_bytes(tensors[a.name]) * ways[a.role] for a in job.arguments)
    return passed + sum(_bytes(tensors[r.name]) for r in job.results)


def _bytes(tensor: torch.Tensor) -> int:
    """Of its elements; those that are repeated count once."""
    count = 1
    for size, step in zip(tensor.shape, tensor.stride(), strict=True):
        count *= int(size) if step or not size else 1
    return count * int(tensor.element_size())


def _time(seconds: float) -> str:
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def _size(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.3g} {unit}"
        count /= 1024
    return f"{count:.3g} TiB"
