"""The memory that a model's calls take over their launches, and the launches that keep some from call to call.

Sizes and addresses come from the journal, which has them for every tensor of every launch. When a buffer is dropped, or
its memory used again under another name, the wrapper says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from enum import Enum
from functools import cached_property
from itertools import pairwise
from statistics import median

from aoti_debug.base.abi import CallKind
from aoti_debug.base.frozen import dataclass
from aoti_debug.runs.run.memory_meter import LaunchHeap, MeasuredMemory
from aoti_debug.runs.rundir.launch import Launch

_LEAST = 512  # bytes per call; handles and small objects come and go
_PER_RESULT = ((128 << 10, 1 << 10), (1 << 62, 10 << 10))  # what an allocator adds to a result smaller than the first
_SHARE = 1.25  # of what a call adds that one launch may keep; what is more is freed by a later launch
_CALLS = 5  # that a result must lie at different addresses in


class Use(str, Enum):
    """The use of a storage."""

    WEIGHT = "weight"
    INPUT = "input"
    BUFFER = "buffer"
    OUTPUT = "output"


@dataclass(frozen=True)
class MemoryBlock:
    """A block of memory in one call.

    Attributes:
        names: the variables of the wrapper that it had, in order: later ones use its memory again, or view it.
        bytes: its size.
        device: "cpu", "cuda:0".
        first, last: positions of launches in the call; it is there while these and all between them run. Weights and
            inputs are there during the whole call.
        made_by: the operator that allocated it; "" if the wrapper or the caller did.
    """

    names: tuple[str, ...]
    use: Use
    bytes: int
    device: str
    first: int
    last: int
    made_by: str = ""

    @property
    def name(self) -> str:
        """The first name of the buffer."""
        return self.names[0]

    @property
    def is_of_call(self) -> bool:
        """True if the call allocates it: neither a weight nor an input."""
        return self.use in (Use.BUFFER, Use.OUTPUT)


@dataclass(frozen=True)
class CallMemory:
    """The memory of one call of the model.

    Attributes:
        launches: of the call, in order; positions count in it.
        workspace: the bytes that operators allocate and free while they run, by position, as far as they were counted.
    """

    kind: CallKind
    call: int
    launches: tuple[Launch, ...]
    storages: tuple[MemoryBlock, ...]
    workspace: Mapping[int, int] = field(default_factory=dict)

    @cached_property
    def allocated(self) -> tuple[int, ...]:
        """The bytes of buffers and outputs, while each launch runs."""
        return tuple(sum(s.bytes for s in self.live(position)) for position in range(len(self.launches)))

    @cached_property
    def taken(self) -> tuple[int, ...]:
        """The bytes that the call has allocated, workspace included, at the worst moment of each launch."""
        return tuple(count + self.workspace.get(position, 0) for position, count in enumerate(self.allocated))

    def live(self, position: int) -> tuple[MemoryBlock, ...]:
        """The storages of the call that are there while a launch runs, largest first."""
        there = (s for s in self.storages if s.is_of_call and s.first <= position <= s.last)
        return tuple(sorted(there, key=lambda s: -s.bytes))

    @property
    def peak(self) -> int:
        """The position of the launch with most bytes allocated; 0 if there is none."""
        return max(range(len(self.taken)), key=self.taken.__getitem__, default=0)

    @property
    def peak_bytes(self) -> int:
        """The most bytes that the call has allocated at a time."""
        return max(self.taken, default=0)

    def total(self, use: Use) -> int:
        """The bytes of all storages of a use."""
        return sum(s.bytes for s in self.storages if s.use is use)


@dataclass(frozen=True)
class Memory:
    """The memory of a run.

    Attributes:
        notes: what is not known exactly, in sentences.
    """

    calls: tuple[CallMemory, ...]
    notes: tuple[str, ...] = ()

    @property
    def worst(self) -> CallMemory | None:
        """The call with the highest peak; None without any."""
        return max(self.calls, key=lambda call: call.peak_bytes, default=None)


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
