"""Counters of memory around each call of a model, in its process."""

from __future__ import annotations

import ctypes
import os
from collections import deque
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from aoti_debug.runs.rundir import memory_file
from aoti_debug.runs.rundir.memory_file import CallCounters, LaunchHeap, MeasuredMemory
from aoti_debug.runs.rundir.run_directory import parse_launch_id

WARM_UP = 2  # calls, at the beginning, that fill caches
_KEPT_CALLS = 32  # per launch; longer lists would take memory from the heap that is measured


class _MallocInfo(ctypes.Structure):
    """`struct mallinfo2` of glibc."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "k")
    )


class LaunchHeapMeter:
    """Counts the allocated bytes around launches. An inspector calls it on the tensors of each launch.

    Args:
        torch: the module.
        device: "cpu", for what malloc has handed out, or "cuda", for what torch's allocator has.
        calls: how many there will be; the last one is not counted, as a profiler takes memory in it.
    """

    def __init__(self, torch: Any, device: str, calls: int) -> None:
        self._of_malloc = _of_malloc()
        self._allocated = torch.cuda.memory_allocated if device == "cuda" else self._of_malloc
        self._last = calls - (device != "cuda")
        self._before: dict[str, int] = {}
        self._grown: dict[int, deque[int]] = {}

    @property
    def is_possible(self) -> bool:
        """False where this system does not count what is allocated."""
        return self._allocated is not None

    def heap(self) -> int:
        """The bytes that malloc has handed out and not got back; 0 where the C library does not tell."""
        return 0 if self._of_malloc is None else self._of_malloc()

    def __call__(self, tensor: Any, launch: Any) -> None:
        """Reads the count: the last one before a launch and the first one after it stay."""
        del tensor
        assert self._allocated is not None
        key = parse_launch_id(launch.id)
        if not WARM_UP <= key.call < self._last:
            return
        if launch.phase == "before":
            self._before[launch.id] = self._allocated()
        elif (before := self._before.pop(launch.id, None)) is not None:
            grown = self._allocated() - before
            self._grown.setdefault(key.launch, deque(maxlen=_KEPT_CALLS)).append(grown)

    def grown(self) -> tuple[LaunchHeap, ...]:
        """By how much the count was larger after each launch than before it."""
        return tuple(
            LaunchHeap(launch, int(median(grown)), min(grown), len(grown))
            for launch, grown in sorted(self._grown.items())
        )


def _of_malloc() -> Callable[[], int] | None:
    """Counts the bytes that malloc has handed out and not got back; None where the C library does not tell."""
    function = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if function is None:
        return None
    function.restype = _MallocInfo

    def allocated() -> int:
        info = function()
        return int(info.uordblks + info.hblkhd)

    return allocated


_EVENTS = 200_000  # of the CUDA allocator that its snapshot keeps


class MemoryMeter:
    """Reads the counters before and after each call.

    On a GPU it also records a snapshot of torch's allocator, on the CPU what that allocator does in the last call.

    Args:
        torch: the module.
        device: "cpu" or "cuda".
        run: the run directory.
        calls: how many there will be.
        launches: what was allocated around each launch.
    """

    def __init__(self, torch: Any, device: str, run: Path, calls: int, launches: LaunchHeapMeter) -> None:
        self._torch = torch
        self._count = calls
        self._launches = launches
        self._profile: Any = None
        self._steps: tuple[tuple[int, int], ...] = ()
        self._cuda = torch.cuda if device == "cuda" else None
        self._run = run
        self._calls: list[CallCounters] = []
        self._before = CallCounters(0, 0)
        self._without_snapshot = self._record_history()
        if self._cuda is None:
            with self._profiler():  # the first one takes memory that it keeps
                pass

    def begin(self) -> None:
        """Reads the counters before a call, and begins new peaks."""
        allocated = 0
        if self._cuda is not None:
            self._cuda.synchronize()
            self._cuda.reset_peak_memory_stats()
            allocated = self._cuda.memory_allocated()
        _reset_peak_resident()
        self._before = CallCounters(_status("VmRSS"), 0, allocated, heap=self._launches.heap())
        if self._cuda is None and len(self._calls) == self._count - 1:
            self._profile = self._profiler()
            self._profile.__enter__()

    def end(self) -> None:
        """Reads the counters after a call."""
        if self._profile is not None:
            self._profile.__exit__(None, None, None)
            self._steps = _steps(self._profile)
            self._profile = None
        peak = reserved = 0
        if self._cuda is not None:
            self._cuda.synchronize()
            peak, reserved = self._cuda.max_memory_allocated(), self._cuda.memory_reserved()
        before = self._before
        self._calls.append(
            CallCounters(before.resident, _status("VmHWM"), before.allocated, peak, reserved, before.heap)
        )

    def write(self) -> None:
        """Writes the counters, and the snapshot, into the run directory."""
        if self._cuda is not None and not self._without_snapshot:
            self._cuda.memory._dump_snapshot(str(self._run / memory_file.SNAPSHOT))
            self._cuda.memory._record_memory_history(enabled=None)
        measured = MeasuredMemory(tuple(self._calls), self._steps, self._without_snapshot, self._launches.grown())
        memory_file.write(measured, self._run)

    def _profiler(self) -> Any:
        profiler = self._torch.profiler
        return profiler.profile(activities=[profiler.ProfilerActivity.CPU], profile_memory=True)

    def _record_history(self) -> str:
        """Begins the history of the CUDA allocator; returns the reason why that is not possible."""
        if self._cuda is None:
            return ""
        if not hasattr(self._cuda.memory, "_record_memory_history"):
            return "this torch does not record the history of its allocator"
        try:
            self._cuda.memory._record_memory_history(max_entries=_EVENTS)
        except (RuntimeError, TypeError) as error:
            return str(error).partition("\n")[0]
        return ""


def _steps(profile: Any) -> tuple[tuple[int, int], ...]:
    """The running count of the allocations and frees that a profile has seen."""
    events = [e for e in profile.profiler.kineto_results.events() if e.name() == "[memory]"]
    steps: list[tuple[int, int]] = []
    for event in sorted(events, key=lambda e: int(e.start_ns())):
        steps.append((event.start_ns(), (steps[-1][1] if steps else 0) + event.nbytes()))
    return tuple(steps)


def _status(field: str) -> int:
    """A field of /proc/self/status in bytes; 0 where there is none."""
    try:
        with open("/proc/self/status") as status:
            line = next((line for line in status if line.startswith(f"{field}:")), "")
    except OSError:
        return 0
    return int(line.split()[1]) * 1024 if line else 0


def _reset_peak_resident() -> None:
    """Sets VmHWM to what is resident now; where the system denies it, the peak is that of the whole process."""
    try:
        descriptor = os.open("/proc/self/clear_refs", os.O_WRONLY)
    except OSError:
        return
    try:
        os.write(descriptor, b"5")
    except OSError:
        return
    finally:
        os.close(descriptor)
