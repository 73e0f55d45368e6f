"""Decodes the records in a block of journal.bin (runtime_shims/formats/journal_format.h)."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping

from aoti_debug.base import abi, dtypes
from aoti_debug.base.abi import (
    CallFlag,
    CallKind,
    FaultDomain,
    LaunchFlag,
    NoteCode,
    Phase,
    RecordType,
    RunEndFlag,
    SaveStatus,
    StatsFlag,
    WatchAction,
    WatchStatistic,
)
from aoti_debug.package.argument_values import Layout, Value
from aoti_debug.runs.rundir.formats.journal_index import JournalIndex, Seen, pack
from aoti_debug.runs.rundir.formats.journal_records import (
    CallBegin,
    CallEnd,
    ClockRecord,
    FaultRecord,
    GridRecord,
    GuardDamage,
    LaunchBegin,
    LaunchEnd,
    LaunchKey,
    NoteRecord,
    PrintRecord,
    Record,
    RunEnd,
    SlotValues,
    TensorFile,
    TensorStats,
    WatchCountRecord,
    WatchHitRecord,
    WatchRecord,
    new_record,
)
from aoti_debug.runs.rundir.formats.statistics import Statistics, extrema


class Layouts:
    """The layouts of all blocks of a journal, each made once."""

    def __init__(self) -> None:
        self._known: dict[bytes, tuple[Layout, int | None]] = {}

    def read(self, data: bytes, body: int) -> tuple[int, Layout, int | None]:
        """The number of a layout in its block, the layout, and the bytes of its values; None if they cannot be read."""
        id_, dtype, device_type, device_index, kind, ndim, offset, storage_bytes = abi.LAYOUT.codec.unpack_from(
            data, body
        )
        text = data[body + 4 : body + abi.LAYOUT.size + 16 * ndim]  # the number, which is left out, has 4 bytes
        known = self._known.get(text)
        if known is None:
            dims = struct.unpack_from(f"<{2 * ndim}q", data, body + abi.LAYOUT.size)
            known_dtype = dtypes.of_scalar_type(dtype)
            layout = Layout(
                dtype=dtypes.name_of_number(dtype),
                device=dtypes.device_name(device_type, device_index),
                shape=dims[:ndim],
                strides=dims[ndim:],
                storage_offset=offset,
                storage_bytes=storage_bytes,
                item_bytes=known_dtype.item_bytes if known_dtype else 0,
                kind=dtypes.layout_name(kind),
            )
            has_values = known_dtype is not None and known_dtype.has_values
            known = self._known[text] = (layout, layout.bytes if has_values else None)
        return id_, *known


class JournalBlock:
    """A block of one thread.

    Attributes:
        place: its offset in the file.
        layout_offsets: of its layouts, in the block.
    """

    def __init__(self, data: bytes, place: int, layouts: Layouts) -> None:
        self.data = data
        self.place = place
        _, self.thread, self.sequence = abi.BLOCK_HEADER.codec.unpack_from(data)
        self._known_layouts = layouts
        self.layout_offsets: list[int] = []
        self.layouts: dict[int, Layout] = {}
        self._value_bytes: dict[int, int | None] = {}  # by layout: of its values; None if they cannot be read
        self._key = LaunchKey(CallKind.MODEL, -1, -1)  # of the last record
        self._decoded: dict[bytes, Mapping[int, Value]] = {}

    def walk(self) -> Iterator[tuple[int, int, int, int]]:
        """The offset, type, flags and time of its records.

        Raises:
            ValueError: a size is wrong.
        """
        offset, end = abi.BLOCK_HEADER.size, len(self.data)
        unpack, header_size = abi.RECORD_HEADER.codec.unpack_from, abi.RECORD_HEADER.size
        while offset + header_size <= end:
            size, type_, flags, time_ns = unpack(self.data, offset)
            if size == 0:
                return
            if size < header_size or size % 8 or offset + size > end:
                raise ValueError(f"a record of {size} bytes")
            yield offset, type_, flags, time_ns
            offset += size

    def add_to(self, index: JournalIndex) -> None:
        """Adds its records to the index of the journal; those after a damage are left out."""
        data, place, header_size = self.data, self.place, abi.RECORD_HEADER.size
        add_begin, add_end = index.launches.begin, index.launches.end
        last = -1
        try:
            for offset, type_, flags, time_ns in self.walk():
                body = offset + header_size
                if type_ == _LAUNCH_BEGIN:
                    call, kind, _, _, launch, site, _, count, *_ = _unpack_launch_begin(data, body)
                    self._check(body + _LAUNCH_BEGIN_SIZE, count)
                    add_begin(pack(kind, call, launch), place + offset, time_ns, site)
                elif type_ == _LAUNCH_END:
                    call, launch, status, kind, count = _unpack_launch_end(data, body)
                    self._check(body + _LAUNCH_END_SIZE, count)
                    seen = Seen.ENDED | (Seen.NOT_STARTED if flags & _NOT_STARTED else 0)
                    seen |= (Seen.FAILED if status else 0) | (Seen.CHANGED if count else 0)
                    add_end(pack(kind, call, launch), place + offset, seen)
                elif type_ == _LAYOUT:
                    self._layout(body)
                    continue
                elif (decode := _DECODERS.get(type_)) is not None:
                    index.add(decode(self, body, flags, time_ns), place + offset)
                else:
                    continue
                if time_ns > last:
                    last = time_ns
        except (struct.error, ValueError, IndexError):
            index.damaged_blocks += 1
        if last >= 0:
            index.last_ns = max(last, index.last_ns or 0)

    def values(self, place: int) -> Mapping[int, Value]:
        """The values of the launch that begins at an offset in the file, without its record."""
        body = place - self.place + abi.RECORD_HEADER.size
        count = _unpack_launch_begin(self.data, body)[_COUNT]
        return self._values(body + _LAUNCH_BEGIN_SIZE, count).decode()

    def record(self, place: int) -> Record:
        """The record at an offset in the file, which the index has."""
        offset = place - self.place
        _, type_, flags, time_ns = abi.RECORD_HEADER.codec.unpack_from(self.data, offset)
        return _DECODERS[type_](self, offset + abi.RECORD_HEADER.size, flags, time_ns)

    def read_layouts(self, offsets: Iterable[int]) -> None:
        """Reads its layouts again: records of a block whose index was kept are decoded with them."""
        for offset in offsets:
            self._layout(offset)

    def _layout(self, body: int) -> None:
        id_, layout, value_bytes = self._known_layouts.read(self.data, body)
        self.layout_offsets.append(body)
        self.layouts[id_] = layout
        self._value_bytes[id_] = value_bytes

    def _check(self, values: int, count: int) -> None:
        if values + count * _SLOT_VALUE_SIZE > len(self.data):
            raise ValueError("the values reach past the end of the block")

    def _launch_key(self, kind: int, call: int, launch: int) -> LaunchKey:
        """The key of a launch; consecutive records are often of the same one."""
        key = self._key
        if key.launch != launch or key.call != call or key.kind != kind:
            key = self._key = new_record(LaunchKey, (_KINDS[kind], call, launch))
        return key

    def _text(self, offset: int, size: int) -> str:
        return self.data[offset : offset + size].decode("utf-8", "replace")

    def _values(self, offset: int, count: int) -> SlotValues:
        self._check(offset, count)
        text = self.data[offset : offset + count * _SLOT_VALUE_SIZE]
        return new_record(SlotValues, (text, self.layouts, self._decoded))

    def _call_begin(self, body: int, flags: int, time_ns: int) -> CallBegin:
        call, kind, level, slot, model, stream = abi.CALL_BEGIN.codec.unpack_from(self.data, body)
        capturing = bool(flags & _CAPTURING)
        return CallBegin(time_ns, self.thread, _KINDS[kind], call, level, slot, model, stream, capturing)

    def _call_end(self, body: int, _flags: int, time_ns: int) -> CallEnd:
        call, kind, failed, launches = abi.CALL_END.codec.unpack_from(self.data, body)
        return CallEnd(time_ns, self.thread, _KINDS[kind], call, bool(failed), launches)

    def _clock(self, body: int, _flags: int, time_ns: int) -> ClockRecord:
        (unix_ns,) = abi.WALL_CLOCK.codec.unpack_from(self.data, body)
        return ClockRecord(time_ns, self.thread, unix_ns)

    def _launch_begin(self, body: int, _flags: int, time_ns: int) -> LaunchBegin:
        fields = _unpack_launch_begin(self.data, body)
        call, kind, n_loops, stream_slot, launch, site, sequence, count = fields[:8]
        loops = fields[8 : 8 + n_loops]
        values = self._values(body + _LAUNCH_BEGIN_SIZE, count)
        key = self._launch_key(kind, call, launch)
        return new_record(LaunchBegin, (time_ns, self.thread, key, site, sequence, stream_slot, loops, values))

    def _grid(self, body: int, _flags: int, time_ns: int) -> GridRecord:
        call, launch, kernel, kind, x, y, z, warps, shared, count = abi.GRID.codec.unpack_from(self.data, body)
        arguments = struct.unpack_from(f"<{count}Q", self.data, body + abi.GRID.size)
        key = self._launch_key(kind, call, launch)
        return GridRecord(time_ns, self.thread, key, kernel, (x, y, z), warps, shared, arguments)

    def _launch_end(self, body: int, flags: int, time_ns: int) -> LaunchEnd:
        call, launch, status, kind, count = _unpack_launch_end(self.data, body)
        values = self._values(body + _LAUNCH_END_SIZE, count) if count else _NO_VALUES
        key = self._launch_key(kind, call, launch)
        not_started, breadcrumb = flags & _NOT_STARTED != 0, flags & _CRUMB != 0
        return new_record(LaunchEnd, (time_ns, self.thread, key, status, not_started, breadcrumb, values))

    def _tensor_file(self, body: int, _flags: int, time_ns: int) -> TensorFile:
        call, launch, slot, kind, phase, status, size, hash0, hash1, path_bytes, reason_bytes = (
            abi.TENSOR_FILE.codec.unpack_from(self.data, body)
        )
        text = body + abi.TENSOR_FILE.size
        return TensorFile(
            time_ns,
            self.thread,
            self._launch_key(kind, call, launch),
            slot,
            _PHASES[phase],
            SaveStatus(status),
            size,
            (hash0, hash1),
            self._text(text, path_bytes),
            self._text(text + path_bytes, reason_bytes),
        )

    def _tensor_stats(self, body: int, flags: int, time_ns: int) -> TensorStats:
        data = self.data
        (
            call,
            launch,
            slot,
            kind,
            phase,
            integer,
            numel,
            nan,
            pos_inf,
            neg_inf,
            zero,
            low,
            high,
            at_low,
            at_high,
            mean,
            std,
            hash_,
            value_bytes,
            layout,
        ) = _unpack_tensor_stats(data, body)
        uninitialised, skipped = flags & _UNINITIALISED != 0, flags & _SKIPPED != 0
        unread = uninitialised or skipped
        statistics = None
        if not unread and not flags & _HASH_ONLY:
            has_finite = numel - nan - pos_inf - neg_inf > 0
            least, greatest = extrema(low, high, integer) if has_finite else (None, None)
            statistics = new_record(
                Statistics, (numel, nan, pos_inf, neg_inf, zero, least, greatest, at_low, at_high, mean, std)
            )
        text = body + _TENSOR_STATS_SIZE
        if value_bytes and not skipped and value_bytes != self._value_bytes.get(layout):
            raise ValueError("the values do not have the size of the tensor")
        return new_record(
            TensorStats,
            (
                time_ns,
                self.thread,
                self._launch_key(kind, call, launch),
                slot,
                _PHASES[phase],
                uninitialised,
                statistics,
                None if unread else hash_,
                self.layouts.get(layout),
                b"" if skipped else data[text : text + value_bytes],
                self._text(text, value_bytes) if skipped else "",
                None,
                0,
            ),
        )

    def _replay_stats(self, body: int, flags: int, time_ns: int) -> TensorStats:
        replay, begun = abi.REPLAY_STATS.codec.unpack_from(self.data, body)
        stats = self._tensor_stats(body + abi.REPLAY_STATS.size, flags, time_ns)
        return stats._replace(replay=replay, begun=begun)

    def _fault(self, body: int, _flags: int, time_ns: int) -> FaultRecord:
        call, launch, kind, in_launch, domain, code, size = abi.FAULT.codec.unpack_from(self.data, body)
        text = self._text(body + abi.FAULT.size, size)
        key = self._launch_key(kind, call, launch) if in_launch else None
        return FaultRecord(time_ns, self.thread, _KINDS[kind], call, key, FaultDomain(domain), code, text)

    def _guard_damage(self, body: int, _flags: int, time_ns: int) -> GuardDamage:
        call, launch, allocation, kind, data, size, first, last, damaged, *content = abi.GUARD_DAMAGE.codec.unpack_from(
            self.data, body
        )
        key = self._launch_key(kind, call, launch)
        found = bytes(content[: last + 1 - first])
        return GuardDamage(time_ns, self.thread, key, allocation, data, size, first, last, damaged, found)

    def _printed(self, body: int, _flags: int, time_ns: int) -> PrintRecord:
        call, launch, size, kind = abi.PRINT.codec.unpack_from(self.data, body)
        key = self._launch_key(kind, call, launch)
        return PrintRecord(time_ns, self.thread, key, self._text(body + abi.PRINT.size, size))

    def _watch(self, body: int, _flags: int, time_ns: int) -> WatchRecord:
        watch, size = abi.WATCH.codec.unpack_from(self.data, body)
        return WatchRecord(time_ns, self.thread, watch, self._text(body + abi.WATCH.size, size))

    def _watch_hit(self, body: int, flags: int, time_ns: int) -> WatchHitRecord:
        call, launch, site, watch, thread, slot, kind, phase, statistic, replay, element, value, number = (
            abi.WATCH_HIT.codec.unpack_from(self.data, body)
        )
        return WatchHitRecord(
            time_ns,
            thread,
            self._launch_key(kind, call, launch),
            site,
            watch,
            slot,
            _PHASES[phase],
            WatchStatistic(statistic),
            None if element < 0 else element,
            value,
            number,
            replay or None,
            WatchAction(flags),
        )

    def _watch_count(self, body: int, _flags: int, time_ns: int) -> WatchCountRecord:
        watch, unread, hits, evaluated = abi.WATCH_COUNT.codec.unpack_from(self.data, body)
        return WatchCountRecord(time_ns, self.thread, watch, hits, evaluated, unread)

    def _note(self, body: int, _flags: int, time_ns: int) -> NoteRecord:
        code, size = abi.NOTE.codec.unpack_from(self.data, body)
        return NoteRecord(time_ns, self.thread, NoteCode(code), self._text(body + abi.NOTE.size, size))

    def _run_end(self, _body: int, flags: int, time_ns: int) -> RunEnd:
        return RunEnd(time_ns, self.thread, flags & RunEndFlag.CUT_SHORT != 0)


_LAUNCH_BEGIN, _LAUNCH_END, _LAYOUT = (
    type_.value for type_ in (RecordType.LAUNCH_BEGIN, RecordType.LAUNCH_END, RecordType.LAYOUT)
)
_KINDS, _PHASES = tuple(CallKind), tuple(Phase)
_COUNT = 7  # of values, among the fields of a LAUNCH_BEGIN
_NO_VALUES = SlotValues(b"", {}, {})
_SLOT_VALUE_SIZE = abi.SLOT_VALUE.size
_unpack_launch_begin, _LAUNCH_BEGIN_SIZE = abi.LAUNCH_BEGIN.codec.unpack_from, abi.LAUNCH_BEGIN.size
_unpack_launch_end, _LAUNCH_END_SIZE = abi.LAUNCH_END.codec.unpack_from, abi.LAUNCH_END.size
_unpack_tensor_stats, _TENSOR_STATS_SIZE = abi.TENSOR_STATS.codec.unpack_from, abi.TENSOR_STATS.size
# As numbers: `flags & member` would make a member of the result, which takes longer than decoding the record
_CAPTURING = CallFlag.CAPTURING.value
_NOT_STARTED, _CRUMB = LaunchFlag.NOT_STARTED.value, LaunchFlag.CRUMB.value
_UNINITIALISED, _SKIPPED, _HASH_ONLY = (flag.value for flag in StatsFlag)
_DECODERS: dict[int, Callable[[JournalBlock, int, int, int], Record]] = {
    RecordType.CALL_BEGIN.value: JournalBlock._call_begin,
    RecordType.CALL_END.value: JournalBlock._call_end,
    RecordType.CLOCK.value: JournalBlock._clock,
    RecordType.LAUNCH_BEGIN.value: JournalBlock._launch_begin,
    RecordType.GRID.value: JournalBlock._grid,
    RecordType.LAUNCH_END.value: JournalBlock._launch_end,
    RecordType.TENSOR_FILE.value: JournalBlock._tensor_file,
    RecordType.TENSOR_STATS.value: JournalBlock._tensor_stats,
    RecordType.REPLAY_STATS.value: JournalBlock._replay_stats,
    RecordType.FAULT.value: JournalBlock._fault,
    RecordType.GUARD.value: JournalBlock._guard_damage,
    RecordType.PRINT.value: JournalBlock._printed,
    RecordType.WATCH.value: JournalBlock._watch,
    RecordType.WATCH_HIT.value: JournalBlock._watch_hit,
    RecordType.WATCH_COUNT.value: JournalBlock._watch_count,
    RecordType.NOTE.value: JournalBlock._note,
    RecordType.RUN_END.value: JournalBlock._run_end,
}
