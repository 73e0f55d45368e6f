"""An index of a journal: columns of numbers that say where the records of each launch are.

A run may have millions of launches, too many for an object of each.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, islice
from operator import attrgetter, le, lt

from aoti_debug.base.abi import CallKind
from aoti_debug.base.dtypes import LARGEST, SHARE
from aoti_debug.runs.rundir.formats.journal_records import (
    CallBegin,
    CallEnd,
    ClockRecord,
    FaultRecord,
    GridRecord,
    LaunchKey,
    PrintRecord,
    Record,
    TensorFile,
    TensorStats,
    new_record,
)

_MODEL = 1 << 63  # in a packed key: those of constant folding, which comes first, are smaller
_CALL_BITS = 31
_NONE = 0xFFFFFFFF


class Seen:
    """Bits: the facts about a launch that are known without decoding its records. No enum, whose operators are slow."""

    ENDED = 1
    NOT_STARTED = 2
    FAILED = 4
    MEASURED = 8  # a tensor was saved, or has statistics
    GRIDS = 16
    REPLAYED = 32
    CHANGED = 64  # it has made or replaced tensors of its arguments
    NOTABLE = 128  # statistics of a tensor show NaN, an infinity or a number near to overflow


def pack(kind: int, call: int, launch: int) -> int:
    """The key of a launch, or of a call, as one number.

    Raises:
        ValueError: there is no such kind, or no run has so many calls.
    """
    if kind > 1 or call >> _CALL_BITS:
        raise ValueError(f"call {call} of kind {kind}")
    return (0 if kind else _MODEL) | call << 32 | launch


_KINDS = (CallKind.CONSTANT, CallKind.MODEL)


def unpack(packed: int) -> LaunchKey:
    """The inverse of `pack`."""
    return new_record(LaunchKey, (_KINDS[packed >> 63], (packed >> 32) & (1 << _CALL_BITS) - 1, packed & 0xFFFFFFFF))


def _notable(stats: TensorStats) -> int:
    """The bit of a launch whose tensor has notable statistics; 0 for others."""
    found = stats.statistics
    if found is None:
        return 0
    if found.n_nan or found.n_pos_inf or found.n_neg_inf or stats.layout is None:
        return Seen.NOTABLE
    largest = LARGEST.get(stats.layout.dtype)
    if largest is None or found.min is None or found.max is None:
        return 0
    return 0 if -SHARE * largest <= found.min and found.max <= SHARE * largest else Seen.NOTABLE


class KeyColumn:
    """Packed keys in the order of time, found by value."""

    def __init__(self) -> None:
        self.keys = array("Q")
        self._sorted: array[int] | None = None  # positions in the order of their keys; None: they are in this order

    def sort(self) -> None:
        """Prepares the search; the keys stay where they are."""
        keys = self.keys
        if not all(map(lt, keys, islice(keys, 1, None))):
            self._sorted = array("I", sorted(range(len(keys)), key=keys.__getitem__))

    def find(self, packed: int) -> int | None:
        """The position of a key."""
        keys, order = self.keys, self._sorted
        at = bisect_left(keys, packed) if order is None else bisect_left(order, packed, key=keys.__getitem__)
        if at == len(keys):
            return None
        position = at if order is None else order[at]
        return position if keys[position] == packed else None

    def of_call(self, position: int) -> Sequence[int]:
        """The positions of all launches of the call of one, in the order of time."""
        keys, order = self.keys, self._sorted
        call = keys[position] >> 32
        if order is None:
            return range(bisect_left(keys, call << 32), bisect_left(keys, call + 1 << 32, position))
        first, end = (bisect_left(order, limit << 32, key=keys.__getitem__) for limit in (call, call + 1))
        return sorted(order[first:end])

    def by_call(self) -> Iterator[Sequence[int]]:
        """The positions of the launches of each call."""
        order = self._sorted or range(len(self.keys))
        for _, positions in groupby(order, lambda position: self.keys[position] >> 32):
            yield sorted(positions)


class CallColumns:
    """The calls."""

    def __init__(self) -> None:
        self.times = array("Q")
        self.begins = array("Q")  # places of records: offsets in the file
        self.ends = array("Q")  # 0: none
        self.has_graphs = False  # True: a CUDA graph captured one
        self._open: dict[int, int] = {}  # position by key

    def begin(self, packed: int, place: int, time_ns: int) -> None:
        """Adds a call."""
        self._open[packed] = len(self.times)
        self.times.append(time_ns)
        self.begins.append(place)
        self.ends.append(0)

    def end(self, packed: int, place: int) -> None:
        """Ends a call; nothing is kept of one whose beginning was overwritten."""
        position = self._open.pop(packed, None)
        if position is not None:
            self.ends[position] = place

    def finish(self) -> None:
        """Orders the calls by time, after the last block."""
        order = _order(self.times)
        if order is not None:
            self.times, self.begins, self.ends = (
                _ordered(column, order) for column in (self.times, self.begins, self.ends)
            )


class LaunchColumns(KeyColumn):
    """The launches, and a chain of further records of each.

    Attributes:
        seen: of each launch, bits of `Seen`.
        largest_slots: by site, the largest slot that a record of a tensor names, and the key of its launch.
    """

    def __init__(self) -> None:
        super().__init__()
        self.times = array("Q")
        self.begins = array("Q")  # places of records: offsets in the file
        self.ends = array("Q")  # 0: none
        self.sites = array("I")
        self.seen = array("B")
        self.largest_slots: dict[int, tuple[int, int]] = {}
        self._last_further = array("I")  # of each launch, an index in the two that follow
        self._further = array("Q")  # places of records
        self._before = array("I")  # the index of the launch's record before; _NONE: it is the first one
        self._open: dict[int, int] = {}  # position by key
        self._stray = (array("Q"), array("Q"), array("B"), array("q"))  # key, place, seen, slot: joined in the end

    def begin(self, packed: int, place: int, time_ns: int, site: int) -> None:
        """Adds a launch."""
        self._open[packed] = len(self.keys)
        self.keys.append(packed)
        self.times.append(time_ns)
        self.begins.append(place)
        self.ends.append(0)
        self.sites.append(site)
        self.seen.append(0)
        self._last_further.append(_NONE)

    def end(self, packed: int, place: int, seen: int) -> None:
        """Ends a launch; nothing is kept of one whose beginning was overwritten."""
        position = self._open.pop(packed, None)
        if position is not None:
            self.ends[position] = place
            self.seen[position] |= seen

    def add(self, key: LaunchKey, place: int, seen: int = 0, slot: int = -1) -> None:
        """Adds a further record of a launch.

        Args:
            seen: bits of `Seen`.
            slot: that it is about; -1: none.
        """
        packed = pack(*key)
        position = self._open.get(packed)
        if position is not None:
            self._link(position, place, seen, slot)
            return
        for column, value in zip(self._stray, (packed, place, seen, slot), strict=True):
            column.append(value)

    def _link(self, position: int, place: int, seen: int, slot: int) -> None:
        self.seen[position] |= seen
        self._before.append(self._last_further[position])
        self._last_further[position] = len(self._further)
        self._further.append(place)
        site = self.sites[position]
        if slot > self.largest_slots.get(site, (-1, 0))[0]:
            self.largest_slots[site] = (slot, self.keys[position])

    def finish(self) -> None:
        """Orders the launches by time and joins the records that came after their ends, after the last block."""
        order = _order(self.times)
        if order is not None:
            self.keys, self.times, self.begins, self.ends = (
                _ordered(column, order) for column in (self.keys, self.times, self.begins, self.ends)
            )
            self.sites, self.seen, self._last_further = (
                _ordered(column, order) for column in (self.sites, self.seen, self._last_further)
            )
        self.sort()
        self._open.clear()
        for packed, place, seen, slot in zip(*self._stray, strict=True):
            position = self.find(packed)
            if position is not None:
                self._link(position, place, seen, slot)
        self._stray = (array("Q"), array("Q"), array("B"), array("q"))

    def position(self, key: LaunchKey) -> int | None:
        """The position of a launch; None if there is none."""
        has_place = 0 <= key.call < 1 << _CALL_BITS and 0 <= key.launch < 1 << 32
        return self.find(pack(*key)) if has_place else None

    def fail(self, key: LaunchKey) -> None:
        """Marks a launch in which a fault was noticed."""
        position = self.position(key)
        if position is not None:
            self.seen[position] |= Seen.FAILED

    def further(self, position: int) -> Iterator[int]:
        """The places of the further records of a launch, in no order."""
        index = self._last_further[position]
        while index != _NONE:
            yield self._further[index]
            index = self._before[index]


def _order(times: array[int]) -> Iterable[int] | None:
    """The positions in the order of time; None if they are in this order."""
    if all(map(le, times, islice(times, 1, None))):
        return None
    return array("I", sorted(range(len(times)), key=times.__getitem__))


def _ordered(column: array[int], order: Iterable[int]) -> array[int]:
    return array(column.typecode, map(column.__getitem__, order))


class JournalIndex:
    """The records of a journal: launches and calls in columns, the others decoded.

    Attributes:
        others: ordered by time.
        clocks: times of the journal, and the wall clock at them.
        last_ns: the time of the last record; None without one.
        damaged_blocks: blocks whose end could not be decoded.
    """

    def __init__(self) -> None:
        self.launches = LaunchColumns()
        self.calls = CallColumns()
        self.others: list[Record] = []
        self.clocks = (array("Q"), array("Q"))
        self.last_ns: int | None = None
        self.damaged_blocks = 0
        self._replays: dict[tuple[CallKind, int], tuple[int, int]] = {}

    def add(self, record: Record, place: int) -> None:
        """Adds a record that is neither the beginning nor the end of a launch."""
        match record:
            case TensorStats():
                replayed = 0 if record.replay is None else Seen.REPLAYED
                self.launches.add(record.key, place, Seen.MEASURED | replayed | _notable(record), record.slot)
                if replayed:
                    call, begun = (record.key.kind, record.key.call), (record.time_ns, record.begun)
                    self.calls.has_graphs = True
                    self._replays[call] = max(begun, self._replays.get(call, begun))
            case CallBegin():
                self.calls.begin(pack(record.kind, record.call, 0), place, record.time_ns)
                self.calls.has_graphs |= record.capturing
            case CallEnd():
                self.calls.end(pack(record.kind, record.call, 0), place)
            case ClockRecord():
                self.clocks[0].append(record.time_ns)
                self.clocks[1].append(record.unix_ns)
            case TensorFile():
                self.launches.add(record.key, place, Seen.MEASURED, record.slot)
            case GridRecord():
                self.launches.add(record.key, place, Seen.GRIDS)
            case PrintRecord():
                self.launches.add(record.key, place)
            case _:
                self.others.append(record)

    def finish(self) -> None:
        """Orders everything by time, after the last block."""
        self.launches.finish()
        self.calls.finish()
        self.others.sort(key=attrgetter("time_ns"))
        for record in self.others:
            if isinstance(record, FaultRecord) and record.launch is not None:
                self.launches.fail(record.launch)

    def replays_of(self, kind: CallKind, call: int) -> int | None:
        """The replays of a call's CUDA graph that had begun when they were recorded; None if none were."""
        found = self._replays.get((kind, call))
        return None if found is None else found[1]
