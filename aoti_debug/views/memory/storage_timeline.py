"""The memory that a model's calls take over their launches: which storage lives when, under which names.

Sizes and addresses come from the journal, which has them for every tensor of every launch. When a buffer is dropped, or
its memory used again under another name, the wrapper says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import Enum
from functools import cached_property

from aoti_debug.base.abi import CallKind
from aoti_debug.base.lazy.dataclass import dataclass
from aoti_debug.runs.rundir.timeline import Launch


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
