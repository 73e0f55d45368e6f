"""The process that measures what this machine can do.

`python -m aoti_debug.views.profile.measure_peaks REQUEST.json ANSWER.json`

They are measured once for a device, a number of threads and a version of torch, and again if a launch has reached more
than they say.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from aoti_debug.base.machine import cache
from aoti_debug.base.machine.compiler import this_processor
from aoti_debug.base.machine.files import atomic_write, json_data
from aoti_debug.views.profile.roofline import Peaks, PeaksRequest

_NAME = "peaks.json"
_REACHED = "float32"
_KIND = "peaks"
_VERSION = "1"  # of the way in which they are measured
_SECONDS = 0.6  # for each quantity
_MIN_TIMES = 5  # times
# By device: bytes of the tensors that are copied and summed, and in how many pieces; rows of the matrices; dtypes. A
# product of small matrices is over before another process takes the core; larger ones keep many cores busy.
_BYTES = {"cpu": 256 << 20, "cuda": 1 << 30}
_PIECES = {"cpu": (1, 64), "cuda": (1,)}
_ROWS = {"cpu": (256, 512, 1536), "cuda": (8192,)}
_DTYPES = {"cpu": ("float32",), "cuda": ("float32", "bfloat16", "float16")}


def main() -> int:
    """Measures, or reads what was measured before; 0."""
    question, answer = map(Path, sys.argv[1:])
    request = json_data.parse(PeaksRequest, question.read_bytes())
    device, reached = request.device, request.reached
    import torch

    name = torch.cuda.get_device_name() if device == "cuda" else this_processor().name
    threads = 0 if device == "cuda" else torch.get_num_threads()
    identity = f"{name}, {threads} threads" if threads else name
    cores = ",".join(map(str, sorted(os.sched_getaffinity(0))))
    precision = torch.get_float32_matmul_precision()
    key = cache.key(_VERSION, device, identity, cores, precision, str(torch.__version__))

    def fill(folder: Path) -> None:
        atomic_write.write(folder / _NAME, json_data.to_text(_measured(device, identity)))

    path = cache.entry(_KIND, key, fill) / _NAME
    known = json_data.parse(Peaks, path.read_text())
    if known.flops_of(_REACHED) < reached:
        known = _higher(known, _measured(device, identity), reached)
        atomic_write.write(path, json_data.to_text(known))
    atomic_write.write(answer, json_data.to_text(known))
    return 0


def _higher(known: Peaks, again: Peaks, reached: float) -> Peaks:
    """The higher of two measurements: a busy machine makes them lower; and at least what was reached."""
    flops = {dtype: max(rate, again.flops.get(dtype, 0.0)) for dtype, rate in known.flops.items()}
    flops[_REACHED] = max(flops[_REACHED], reached)
    return Peaks(known.device, max(known.bandwidth, again.bandwidth), flops)


def _measured(device: str, identity: str) -> Peaks:
    flops = {dtype: max(_flops(dtype, rows, device) for rows in _ROWS[device]) for dtype in _DTYPES[device]}
    return Peaks(identity, _bandwidth(device), flops)


def _bandwidth(device: str) -> float:
    """Bytes per second in a copy, which reads and writes, or in a sum, which reads.

    Tensors larger than caches are gone through as a whole and in pieces, of which the fastest counts: a piece is over
    before another process takes the core.
    """
    import torch

    size = _BYTES[device]
    source, target = (torch.ones(size // 4, device=device) for _ in range(2))
    rates = []
    for pieces in _PIECES[device]:
        parts = list(zip(target.chunk(pieces), source.chunk(pieces), strict=True))
        rates.append(2 * size / pieces / min(_times([partial(a.copy_, b) for a, b in parts], device)))
        rates.append(size / pieces / min(_times([b.sum for _, b in parts], device)))
    return max(rates)


def _flops(dtype: str, rows: int, device: str) -> float:
    """Operations per second in a product of two square matrices."""
    import torch

    a, b = (torch.rand(rows, rows, device=device).to(getattr(torch, dtype)) for _ in range(2))
    out = torch.empty_like(a)
    return 2 * rows**3 / min(_times([lambda: torch.mm(a, b, out=out)], device))


def _times(works: Sequence[Callable[[], Any]], device: str) -> list[float]:
    """The seconds of each piece of work, again and again."""
    import torch

    wait = torch.cuda.synchronize if device == "cuda" else (lambda: None)
    for work in works:
        work()
    wait()
    found: list[float] = []
    while len(found) < _MIN_TIMES * len(works) or sum(found) < _SECONDS:
        for work in works:
            begin = time.perf_counter()
            work()
            wait()
            found.append(time.perf_counter() - begin)
    return found


if __name__ == "__main__":
    sys.exit(main())
