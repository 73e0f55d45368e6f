"""The records of a journal (runtime_shims/formats/journal_format.h), decoded.

They are named tuples, not dataclasses: a journal has hundreds of thousands of them, and named tuples are created three
times as fast.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from aoti_debug.base import abi
from aoti_debug.base.abi import CallKind, FaultDomain, NoteCode, Phase, SaveStatus, WatchAction, WatchStatistic
from aoti_debug.package.argument_values import Absent, Layout, Tensor, Value, number
from aoti_debug.package.manifest import CType
from aoti_debug.runs.rundir.formats.statistics import Statistics


class LaunchKey(NamedTuple):
    """The identity of a launch in its run: the kind of call, the call, the launch within it."""

    kind: CallKind
    call: int
    launch: int

    def __str__(self) -> str:
        return f"{'c' if self.kind is CallKind.CONSTANT else ''}{self.call}.{self.launch}"


class SlotValues(NamedTuple):
    """The values of a launch, decoded on demand: once for all launches of a block that have equal ones."""

    text: bytes
    layouts: Mapping[int, Layout]
    decoded: dict[bytes, Mapping[int, Value]]

    def decode(self) -> Mapping[int, Value]:
        """The values by slot index."""
        text, layouts, decoded = self
        known = decoded.get(text)
        if known is None:
            values: dict[int, Value] = {}
            for tag, type_, slot, layout, bits in _iter_slot_values(text):
                if tag == _TENSOR and layout in layouts:
                    values[slot] = Tensor(bits, layouts[layout])
                else:
                    values[slot] = _other_value(tag, type_, bits)
            known = decoded[text] = values
        return known


new_record = tuple.__new__  # makes a record from its fields in half of the time that a call of its class takes
_iter_slot_values = abi.SLOT_VALUE.codec.iter_unpack
_TYPES = {type_.value: type_ for type_ in CType}
_TENSOR, _NUMBER = abi.ValueTag.TENSOR.value, abi.ValueTag.NUMBER.value
_ABSENT = {
    abi.ValueTag.UNSET.value: Absent.UNSET,
    abi.ValueTag.NULL.value: Absent.NULL,
    abi.ValueTag.TEXT.value: Absent.TEXT,
    abi.ValueTag.OPAQUE.value: Absent.OPAQUE,
    abi.ValueTag.UNDEFINED.value: Absent.UNDEFINED,
}


def _other_value(tag: int, type_: int, bits: int) -> Value:
    """A value that is no tensor, or one whose layout the block does not have."""
    if tag == _TENSOR:
        return Absent.UNDEFINED
    if tag == _NUMBER and type_ in _TYPES:
        return number(bits, _TYPES[type_])
    return _ABSENT.get(tag, Absent.OPAQUE)


class CallBegin(NamedTuple):
    """The beginning of a call of the model."""

    time_ns: int
    thread: int
    kind: CallKind
    call: int
    level: int  # the recording level in this call
    stream_slot: int
    model: int
    stream: int
    capturing: bool


class CallEnd(NamedTuple):
    """The end of a call of the model."""

    time_ns: int
    thread: int
    kind: CallKind
    call: int
    failed: bool
    launches: int


class ClockRecord(NamedTuple):
    """The wall clock at a time of the journal."""

    time_ns: int
    thread: int
    unix_ns: int


class LaunchBegin(NamedTuple):
    """The beginning of a launch, with the values of its arguments."""

    time_ns: int
    thread: int
    key: LaunchKey
    site: int
    sequence: int
    stream_slot: int
    loops: tuple[int, ...]
    values: SlotValues


class GridRecord(NamedTuple):
    """A device kernel that a launch started."""

    time_ns: int
    thread: int
    key: LaunchKey
    kernel: int
    grid: tuple[int, int, int]
    num_warps: int
    shared_bytes: int
    arguments: tuple[int, ...]  # AotiDebugValue::bits of each argument


class LaunchEnd(NamedTuple):
    """The return of a launch."""

    time_ns: int
    thread: int
    key: LaunchKey
    status: int
    not_started: bool
    breadcrumb: bool  # the device was asked to write one after it
    values: SlotValues  # of the output slots after the launch


class TensorFile(NamedTuple):
    """A tensor that was saved, or the reason why it was not."""

    time_ns: int
    thread: int
    key: LaunchKey
    slot: int
    phase: Phase
    status: SaveStatus
    bytes: int  # of the logical tensor
    hash: tuple[int, int]
    path: str  # relative to the run directory; "" if it was skipped
    reason: str


class TensorStats(NamedTuple):
    """The record of a tensor at one phase of a launch, at level 2 or hash."""

    time_ns: int
    thread: int
    key: LaunchKey
    slot: int
    phase: Phase
    uninitialised: bool  # an output before its launch
    statistics: Statistics | None  # None: not read (see `reason`), or only the hash was computed
    hash: int | None  # of the bytes, row-major; None: not read
    layout: Layout | None
    values: bytes  # the elements, row-major; empty if there are too many
    reason: str
    replay: int | None = None  # of the CUDA graph that captured the call, from 1; None: the call was not captured
    begun: int = 0  # replays that had begun by then


class FaultRecord(NamedTuple):
    """An exception or an error code."""

    time_ns: int
    thread: int
    kind: CallKind
    call: int
    launch: LaunchKey | None  # None: noticed at the end of a call, outside any launch
    domain: FaultDomain
    code: int
    text: str


class GuardDamage(NamedTuple):
    """Bytes around a buffer that a launch overwrote. Offsets count from the buffer's first byte."""

    time_ns: int
    thread: int
    key: LaunchKey
    allocation: int  # index in Manifest.allocations
    data: int  # address of the buffer
    size: int  # bytes of the buffer
    first: int  # offset of the first damaged byte
    last: int
    damaged: int  # bytes
    found: bytes  # the damaged content from `first` on; at most 16 bytes


class PrintRecord(NamedTuple):
    """A text that a print operator of the model printed."""

    time_ns: int
    thread: int
    key: LaunchKey
    text: str  # at most 16 KiB of it


class WatchRecord(NamedTuple):
    """A watchpoint of the run."""

    time_ns: int
    thread: int
    watch: int  # its number
    text: str


class WatchHitRecord(NamedTuple):
    """A condition of a watchpoint that held."""

    time_ns: int
    thread: int  # the one that ran the launch
    key: LaunchKey
    site: int
    watch: int
    slot: int
    phase: Phase
    statistic: WatchStatistic  # of the comparison that held
    element: int | None  # row-major index of an element that made it hold; None: none can be named
    value: float  # of that element, otherwise of the statistic
    number: int  # of the watchpoint's hits, from 1
    replay: int | None  # of the CUDA graph that captured the call, from 1; None: the call was not captured
    actions: WatchAction


class WatchCountRecord(NamedTuple):
    """The number of times that a watchpoint was evaluated, hit, and could not be evaluated up to now."""

    time_ns: int
    thread: int
    watch: int
    hits: int
    evaluated: int
    unread: int


class NoteRecord(NamedTuple):
    """A message of the runtime about its own state."""

    time_ns: int
    thread: int
    code: NoteCode
    text: str


class RunEnd(NamedTuple):
    """The normal unload of the package."""

    time_ns: int
    thread: int
    cut_short: bool  # the recording had stopped before


Record: TypeAlias = (
    CallBegin
    | CallEnd
    | ClockRecord
    | LaunchBegin
    | GridRecord
    | LaunchEnd
    | TensorFile
    | TensorStats
    | FaultRecord
    | GuardDamage
    | PrintRecord
    | WatchRecord
    | WatchHitRecord
    | WatchCountRecord
    | NoteRecord
    | RunEnd
)
