"""Decodes the records in a block of journal.bin (runtime_shims/formats/journal_format.h)."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping

from aoti_debug.base import abi, dtypes
from aoti_debug.base.abi import (
    CallFlag,
    CallKind,
    FaultDomain,
    LaunchFlag,
    NoteCode,
    Phase,
    RecordType,
    SaveStatus,
    StatsFlag,
    WatchAction,
    WatchStatistic,
)
from aoti_debug.package.recording.values import Layout, Value
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
from aoti_debug.runs.rundir.formats.statistics import Statistics


class JournalBlock:
    """A block of one thread.

    Attributes:
        damaged: True if the end of it could not be decoded.
    """

    def __init__(self, data: bytes, thread: int, sequence: int) -> None:
        self.data = data
        self.thread = thread
        self.sequence = sequence
        self.layouts: dict[int, Layout] = {}
        self._value_bytes: dict[int, int | None] = {}  # by layout: of its values; None if they cannot be read
        self._key = LaunchKey(CallKind.MODEL, -1, -1)  # of the last record
        self._decoded: dict[bytes, Mapping[int, Value]] = {}
        self.damaged = False

    def decode(self) -> list[Record]:
        """The records, in their order; those after a damage are left out."""
        data, end = self.data, len(self.data)
        unpack, header_size = abi.RECORD_HEADER.codec.unpack_from, abi.RECORD_HEADER.size
        records: list[Record] = []
        offset = abi.BLOCK_HEADER.size
        try:
            while offset + header_size <= end:
                size, type_, flags, time_ns = unpack(data, offset)
                if size == 0:
                    return records
                if size < header_size or size % 8 or offset + size > end:
                    self.damaged = True
                    return records
                decode = _DECODERS.get(type_)
                if decode is not None:
                    records.append(decode(self, offset + header_size, flags, time_ns))
                elif type_ == RecordType.LAYOUT.value:
                    self._layout(offset + header_size)
                offset += size
        except (struct.error, ValueError, IndexError):
            self.damaged = True
        return records

    def _layout(self, body: int) -> None:
        id_, dtype, device_type, device_index, kind, ndim, offset, storage_bytes = abi.LAYOUT.codec.unpack_from(
            self.data, body
        )
        known_dtype = dtypes.of_scalar_type(dtype)
        dims = struct.unpack_from(f"<{2 * ndim}q", self.data, body + abi.LAYOUT.size)
        layout = self.layouts[id_] = Layout(
            dtype=dtypes.name_of_number(dtype),
            device=dtypes.device_name(device_type, device_index),
            shape=dims[:ndim],
            strides=dims[ndim:],
            storage_offset=offset,
            storage_bytes=storage_bytes,
            item_bytes=known_dtype.item_bytes if known_dtype else 0,
            kind=dtypes.layout_name(kind),
        )
        self._value_bytes[id_] = layout.bytes if known_dtype is not None and known_dtype.has_values else None

    def _launch_key(self, kind: int, call: int, launch: int) -> LaunchKey:
        """The key of a launch; consecutive records are often of the same one."""
        key = self._key
        if key.launch != launch or key.call != call or key.kind != kind:
            key = self._key = new_record(LaunchKey, (_KINDS[kind], call, launch))
        return key

    def _text(self, offset: int, size: int) -> str:
        return self.data[offset : offset + size].decode("utf-8", "replace")

    def _values(self, offset: int, count: int) -> SlotValues:
        if offset + count * _SLOT_VALUE_SIZE > len(self.data):
            raise ValueError("the values reach past the end of the block")
        return new_record(SlotValues, (self.data, offset, count, self.layouts, self._decoded))

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
            least, greatest = _extrema(low, high, integer) if has_finite else (None, None)
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
        watch, hits, evaluated = abi.WATCH_COUNT.codec.unpack_from(self.data, body)
        return WatchCountRecord(time_ns, self.thread, watch, hits, evaluated)

    def _note(self, body: int, _flags: int, time_ns: int) -> NoteRecord:
        code, size = abi.NOTE.codec.unpack_from(self.data, body)
        return NoteRecord(time_ns, self.thread, NoteCode(code), self._text(body + abi.NOTE.size, size))

    def _run_end(self, _body: int, _flags: int, time_ns: int) -> RunEnd:
        return RunEnd(time_ns, self.thread)


_KINDS, _PHASES = tuple(CallKind), tuple(Phase)
_NO_VALUES = SlotValues(b"", 0, 0, {}, {})
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


_BITS, _DOUBLES, _SIGNED = struct.Struct("<2Q"), struct.Struct("<2d"), struct.Struct("<2q")


def _extrema(low: int, high: int, integer: int) -> tuple[int | float, int | float]:
    """Minimum and maximum; `integer` is the type of their bits: 0 double, 1 int64, 2 uint64."""
    if integer == 2:
        return low, high
    least, greatest = (_SIGNED if integer == 1 else _DOUBLES).unpack(_BITS.pack(low, high))
    return least, greatest
