"""Counters of memory around each call of a model, in its process; memory.json in the run directory keeps them."""

from __future__ import annotations

import ctypes
import os
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.files import atomic_write, json_data
from aoti_debug.runs.rundir.run_directory import parse_launch_id

MEMORY_FILE = "memory.json"
SNAPSHOT = "memory_snapshot.pickle"  # for https://pytorch.org/memory_viz
WARM_UP = 2  # calls, at the beginning, that fill caches
_KEPT_CALLS = 32  # per launch; longer lists would take memory from the heap that is measured


@dataclass(frozen=True)
class CallCounters:
    """The counters of one call, in bytes.

    Attributes:
        resident: of the process before the call.
        peak_resident: the most during it; 0 where the system does not tell.
        allocated: by torch's CUDA allocator before the call; 0 on the CPU, as the next two.
        peak_allocated: the most during it.
        reserved: by that allocator from the device after the call.
        heap: what malloc had handed out before the call; 0 where the C library does not tell.
    """

    resident: int
    peak_resident: int
    allocated: int = 0
    peak_allocated: int = 0
    reserved: int = 0
    heap: int = 0


@dataclass(frozen=True)
class LaunchHeap:
    """By how much more was allocated after a launch than before it, in calls that were measured.

    Attributes:
        launch: its number in the call.
        bytes: the median of the calls.
        least: of the calls.
        calls: how many were measured.
    """

    launch: int
    bytes: int
    least: int
    calls: int


@dataclass(frozen=True)
class MeasuredMemory:
    """The counters of a run.

    Attributes:
        steps: of the last call on the CPU: (nanoseconds since 1970, bytes that torch's allocator has handed out since
            the call began) after each allocation and each free.
        launches: of a run of several calls; () where the system does not count what is allocated.
        without_snapshot: why there is no snapshot of the CUDA allocator; "" if there is one, or on the CPU.
    """

    calls: tuple[CallCounters, ...] = ()
    steps: tuple[tuple[int, int], ...] = ()
    without_snapshot: str = ""
    launches: tuple[LaunchHeap, ...] = ()


def write_memory(measured: MeasuredMemory, run: Path) -> None:
    """Writes the file into a run directory."""
    atomic_write.write(run / MEMORY_FILE, json_data.to_text(measured, indent=None) + "\n")


def read_memory(run: Path) -> MeasuredMemory:
    """Reads the file of a run directory; without calls if there is none.

    Raises:
        RunDirError: it is damaged, or cannot be read.
    """
    try:
        return json_data.read_file(
            run, MEMORY_FILE, partial(json_data.from_data, MeasuredMemory), hint="run the package again"
        )
    except FileNotFoundError:
        return MeasuredMemory()


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
            self._cuda.memory._dump_snapshot(str(self._run / SNAPSHOT))
            self._cuda.memory._record_memory_history(enabled=None)
        measured = MeasuredMemory(tuple(self._calls), self._steps, self._without_snapshot, self._launches.grown())
        write_memory(measured, self._run)

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
