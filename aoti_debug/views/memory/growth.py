"""The launches that keep memory from call to call, by what was allocated around them and where their results lay."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from statistics import median

from aoti_debug.base.lazy.dataclass import dataclass
from aoti_debug.runs.rundir.memory_file import LaunchHeap, MeasuredMemory
from aoti_debug.runs.rundir.timeline import Launch
from aoti_debug.views.memory.storage_timeline import CallMemory, Memory, MemoryBlock

_LEAST = 512  # bytes per call; handles and small objects come and go
_PER_RESULT = ((128 << 10, 1 << 10), (1 << 62, 10 << 10))  # what an allocator adds to a result smaller than the first
_SHARE = 1.25  # of what a call adds that one launch may keep; what is more is freed by a later launch
_CALLS = 5  # that a result must lie at different addresses in


@dataclass(frozen=True)
class KeptMemory:
    """Memory that a launch keeps.

    Attributes:
        launch: of the last call.
        bytes: per call.
        calls: in how many it was seen.
        is_measured: more was allocated after the launch than before it, beyond its results, in each of these calls.
            If not, a result of it lay at another address in each of them: it may be kept.
    """

    launch: Launch
    bytes: int
    calls: int
    is_measured: bool


def growth_per_call(measured: MeasuredMemory) -> int:
    """The growth of what is allocated from before one call to before the next: the median, without the first two."""
    counters = [call.allocated or call.heap for call in measured.calls][2:]
    return int(median(after - before for before, after in pairwise(counters))) if len(counters) > 1 else 0


def kept_memory(memory: Memory, measured: MeasuredMemory) -> tuple[KeptMemory, ...]:
    """The launches that keep memory, those that keep most first; none if what is allocated does not grow."""
    grown = growth_per_call(measured)
    if grown < _LEAST or not memory.calls:
        return ()
    last = memory.calls[-1]
    by_number = {launch.key.launch: position for position, launch in enumerate(last.launches)}
    found = [
        KeptMemory(last.launches[by_number[heap.launch]], kept, heap.calls, is_measured=True)
        for heap in measured.launches
        if heap.launch in by_number and _LEAST <= (kept := _kept(heap, last, by_number[heap.launch])) <= _SHARE * grown
    ]
    rest = grown - sum(kept.bytes for kept in found)
    if rest >= _LEAST:
        found += (kept for kept in _never_reused(memory) if kept.bytes <= 2 * rest)
    return tuple(sorted(found, key=lambda kept: (not kept.is_measured, -kept.bytes)))


def _kept(heap: LaunchHeap, call: CallMemory, position: int) -> int:
    """The bytes that a launch keeps beyond its results in each call; 0 if the allocator may add as much to them."""
    results = [s.bytes for s in call.storages if s.made_by and s.first == position]
    added = sum(next(more for size, more in _PER_RESULT if count < size) for count in results)
    kept = heap.least - sum(results)
    return heap.bytes - sum(results) if kept - added >= _LEAST else 0


def _never_reused(memory: Memory) -> Iterator[KeptMemory]:
    """Results of operators that lay at another address in every call: freed memory is mostly used again."""
    if len(memory.calls) < _CALLS:
        return
    last = memory.calls[-1]
    for storage in last.storages:
        if not storage.made_by or storage.bytes < _LEAST:
            continue
        addresses = [_address(call, storage) for call in memory.calls]
        if 0 not in addresses and len(set(addresses)) == len(addresses):
            yield KeptMemory(last.launches[storage.first], storage.bytes, len(addresses), is_measured=False)


def _address(call: CallMemory, storage: MemoryBlock) -> int:
    """Where a storage of that name lay in a call; 0 if it is not known."""
    if storage.first >= len(call.launches):
        return 0
    for argument in call.launches[storage.first].args:
        if argument.name in storage.names and argument.tensor is not None:
            return argument.tensor.storage_ptr
    return 0
