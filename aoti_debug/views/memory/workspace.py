"""The memory that operators allocate and free while they run, from the counts of torch's CPU allocator."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping

from aoti_debug.runs.rundir.memory_file import MeasuredMemory
from aoti_debug.views.memory.storage_timeline import CallMemory


def workspaces(call: CallMemory, measured: MeasuredMemory, start_unix_ns: int) -> Mapping[int, int]:
    """The bytes beyond what launches were passed, by position of the launch; launches without any are absent.

    Args:
        call: the call that was counted.
        start_unix_ns: the time of the journal's start.
    """
    times = [time for time, _ in measured.steps]
    counts = [count for _, count in measured.steps]
    found: dict[int, int] = {}
    for position, launch in enumerate(call.launches):
        if launch.end_ns is None:
            continue
        begin = bisect_left(times, start_unix_ns + launch.begin_ns)
        end = bisect_left(times, start_unix_ns + launch.end_ns)
        beyond = max(counts[begin:end], default=0) - call.allocated[position]
        if beyond > 0:
            found[position] = beyond
    return found
