"""The counters of memory around each call of a run: memory.json in the run directory."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.files import atomic_write, json_data

NAME = "memory.json"
SNAPSHOT = "memory_snapshot.pickle"  # for https://pytorch.org/memory_viz


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


def write(measured: MeasuredMemory, run: Path) -> None:
    """Writes the file into a run directory."""
    atomic_write.write(run / NAME, json_data.to_text(measured, indent=None) + "\n")


def read(run: Path) -> MeasuredMemory:
    """Reads the file of a run directory; without calls if there is none.

    Raises:
        RunDirError: it is damaged, or cannot be read.
    """
    try:
        return json_data.read_file(
            run, NAME, partial(json_data.from_data, MeasuredMemory), hint="run the package again"
        )
    except FileNotFoundError:
        return MeasuredMemory()
