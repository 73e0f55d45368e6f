"""The roofline of a machine: the work of launches, the least time that it takes there, and what bounds it.

The process of this module, `… aoti_debug.views.profile.roofline REQUEST.json ANSWER.json`, measures what this machine
can do: once for a device, a number of threads and a version of torch, and again if a launch has reached more.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any

from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine import cache
from aoti_debug.base.machine.compiler import this_processor
from aoti_debug.base.machine.files import atomic_write, json_data
from aoti_debug.package.manifest import Role
from aoti_debug.runs.rundir.launch import Launch

_LAUNCH_BOUND = 0.1  # of the roofline, below which a short launch is bound by what every launch costs
_SHORT = 20e-6  # seconds
_FLOAT32 = "float32"
_NAME = "peaks.json"
_REACHED = "float32"
_KIND = "peaks"
_VERSION = "1"  # of the way in which they are measured
_SECONDS = 0.6  # for each quantity
_MIN_TIMES = 5
# By device: bytes of the tensors that are copied and summed, and in how many pieces; rows of the matrices; dtypes. A
# product of small matrices is over before another process takes the core; larger ones keep many cores busy.
_BYTES = {"cpu": 256 << 20, "cuda": 1 << 30}
_PIECES = {"cpu": (1, 64), "cuda": (1,)}
_ROWS = {"cpu": (256, 512, 1536), "cuda": (8192,)}
_DTYPES = {"cpu": ("float32",), "cuda": ("float32", "bfloat16", "float16")}


@dataclass(frozen=True)
class Work:
    """The work of launches.

    Attributes:
        read, written: bytes of their distinct tensors, each once a launch; None if they are not known.
        flops: floating-point operations; None if they are not known.
        contracts: True if it multiplies matrices or convolves.
        dtype: of what it contracts, else "".
    """

    read: int | None = None
    written: int | None = None
    flops: int | None = None
    contracts: bool = False
    dtype: str = ""

    @property
    def bytes(self) -> int | None:
        """Bytes read and written; None if they are not known."""
        return None if self.read is None or self.written is None else self.read + self.written

    def __mul__(self, count: int) -> Work:
        def times(value: int | None) -> int | None:
            return None if value is None else value * count

        return Work(times(self.read), times(self.written), times(self.flops), self.contracts, self.dtype)


def moved(launch: Launch) -> tuple[int, int] | None:
    """Bytes that a launch reads and writes if it touches every element of its tensors once; None if it has none.

    A tensor that is passed twice counts once, one that is read and written in both. Of a tensor whose elements share
    memory (expanded), only that memory counts. Where it is not known which of both a launch does, it counts as read.
    """
    read = written = 0
    met = set()
    for argument in launch.args:
        layout = argument.layout
        if layout is None:
            continue
        tensor = argument.tensor
        place = (argument.name if tensor is None else tensor.data_ptr, layout)
        if place in met:
            continue
        met.add(place)
        size = min(layout.bytes, layout.extent_bytes)
        read += size if argument.has_data_before else 0
        written += size if argument.role in (Role.OUT, Role.INOUT) else 0
    return (read, written) if met else None


class Bound(str, Enum):
    """The limit that a launch comes up against."""

    MEMORY = "memory"
    COMPUTE = "compute"
    LAUNCH = "launch"  # what every launch costs, whatever it does


@dataclass(frozen=True)
class Peaks:
    """The highest rates of a machine.

    Attributes:
        device: its name, with the number of threads of a CPU.
        bandwidth: bytes per second, read and written.
        flops: floating-point operations per second in a product of large matrices, by dtype.
    """

    device: str
    bandwidth: float
    flops: Mapping[str, float] = field(default_factory=dict)

    def flops_of(self, dtype: str) -> float:
        """Floating-point operations per second in a dtype; those in float32 where it was not measured."""
        return self.flops.get(dtype) or self.flops[_FLOAT32]


@dataclass(frozen=True)
class PeaksRequest:
    """The request to measure the peaks of this machine.

    Attributes:
        device: "cpu" or "cuda".
        reached: operations per second in float32 that a launch has reached; 0.0 if nothing is known.
    """

    device: str
    reached: float


@dataclass(frozen=True)
class RooflinePlacement:
    """The place of launches below the roofline.

    Attributes:
        least_seconds: the time that the machine needs for their work.
        share: that time in proportion to the measured one; above 1 if the tensors stay in caches.
        bound: what bounds them.
    """

    least_seconds: float
    share: float
    bound: Bound


def place(work: Work, seconds: float, count: int, peaks: Peaks) -> RooflinePlacement | None:
    """Places launches below the roofline.

    Args:
        work: of all of them.
        seconds: that they took, all together.
        count: how many there are.

    Returns:
        The place; None if neither bytes nor operations are known, or no time was measured.
    """
    if seconds <= 0 or (work.bytes is None and work.flops is None):
        return None
    moving = (work.bytes or 0) / peaks.bandwidth
    computing = (work.flops or 0) / peaks.flops_of(work.dtype)
    least = max(moving, computing)
    if least < _LAUNCH_BOUND * seconds and seconds / max(count, 1) < _SHORT:
        bound = Bound.LAUNCH
    else:
        bound = Bound.COMPUTE if computing > moving else Bound.MEMORY
    return RooflinePlacement(least, least / seconds, bound)


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
