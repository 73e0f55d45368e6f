"""Reads journal.bin (runtime_shims/formats/journal_format.h): its header, and its records ordered by time.

A process may die at any instruction: every record before that instruction is read. Parts that cannot be decoded (a
block that the runtime was about to reuse, the end of a truncated file) are counted and skipped.
"""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Callable, Iterator, Mapping
from operator import attrgetter
from pathlib import Path
from typing import BinaryIO

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
from aoti_debug.base.errors import RunDirError
from aoti_debug.base.lazy.dataclass import dataclass
from aoti_debug.base.machine.files import untrusted_files
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
    ReplayStats,
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

_LARGEST_BLOCK = 64 << 20  # bytes; the runtime's have 64 KiB


@dataclass(frozen=True)
class Header:
    """The header of a journal."""

    pid: int
    level: int
    start_unix_ns: int  # wall clock when `time_ns` was 0
    blocks_reused: int  # > 0: older launches were overwritten
    crumb_every: int  # the most launches without a breadcrumb, outside of CUDA graphs; 0: none are written


@dataclass(frozen=True)
class Journal:
    """The content of a journal, its records ordered by time."""

    header: Header
    records: tuple[Record, ...]
    damaged_blocks: int  # blocks whose end could not be decoded


def has_begun(path: Path) -> bool:
    """True if a journal has its header, which is written last: a process may be killed before, or be about to.

    Raises:
        RunDirError: it cannot be opened.
    """
    try:
        with untrusted_files.open_file(path.parent, path.name) as file:
            return any(file.read(len(abi.JOURNAL_MAGIC)))
    except OSError as error:
        raise RunDirError(f"cannot read {path}: {error.strerror}") from error


def read(path: Path) -> Journal:
    """Reads a journal, also one that is still being written.

    Raises:
        RunDirError: it cannot be opened, its header is truncated, or it has another version.
    """
    try:
        with untrusted_files.open_file(path.parent, path.name) as file:
            header, block_bytes = _read_header(path, file)
            blocks = [block for o in _offsets(file, block_bytes) if (block := _read_block(file, o, block_bytes))]
    except OSError as error:
        raise RunDirError(f"cannot read {path}: {error.strerror}") from error
    blocks.sort(key=lambda block: block.sequence)
    records = [record for block in blocks for record in block.decode()]
    records.sort(key=attrgetter("time_ns"))
    return Journal(header, tuple(records), sum(block.damaged for block in blocks))


def _read_header(path: Path, file: BinaryIO) -> tuple[Header, int]:
    data = file.read(abi.JOURNAL_HEADER.size)
    if len(data) < abi.JOURNAL_HEADER.size:
        raise RunDirError(f"{path} is truncated: it ends within its header", hint="run the package again")
    magic, version, block_bytes, pid, level, start, reused, every = abi.JOURNAL_HEADER.codec.unpack(data)
    if magic != abi.JOURNAL_MAGIC:
        raise RunDirError(f"{path} is not a journal of aoti-debug", hint="run the package again")
    if version != abi.JOURNAL_VERSION:
        raise RunDirError(
            f"{path} has version {version}; this aoti-debug reads version {abi.JOURNAL_VERSION}",
            hint="read it with the version of aoti-debug that built the package",
        )
    if not abi.BLOCK_HEADER.size < block_bytes <= _LARGEST_BLOCK:
        raise RunDirError(f"{path} is damaged: blocks of {block_bytes} bytes", hint="run the package again")
    return Header(pid, level, start, reused, every), block_bytes


def _offsets(file: BinaryIO, block_bytes: int) -> Iterator[int]:
    """The offsets of the blocks; those in holes of a sparse file are left out, which may be as large as it says."""
    descriptor, first = file.fileno(), abi.JOURNAL_HEADER.size
    end = os.fstat(descriptor).st_size
    offset = data_end = first
    while offset < end:
        if offset >= data_end:
            try:
                data = os.lseek(descriptor, offset, os.SEEK_DATA)
                data_end = os.lseek(descriptor, data, os.SEEK_HOLE)
            except OSError as error:
                if error.errno == errno.ENXIO:  # nothing but a hole up to the end
                    return
                raise
            offset = first + (data - first) // block_bytes * block_bytes
        yield offset
        offset += block_bytes


def _read_block(file: BinaryIO, offset: int, block_bytes: int) -> _Block | None:
    """The block at an offset; None if none was written yet, or its owner changed while it was read."""
    size = abi.BLOCK_HEADER.size
    before = os.pread(file.fileno(), size, offset)
    if len(before) < size:
        return None
    magic, thread, sequence = abi.BLOCK_HEADER.codec.unpack(before)
    if magic != abi.BLOCK_MAGIC:
        return None
    data = os.pread(file.fileno(), block_bytes, offset)
    if data[:size] != before or os.pread(file.fileno(), size, offset) != before:
        return None
    return _Block(data, thread, sequence)


class _Block:
    """Decodes the records of one thread's block."""

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
            device=abi.device_name(device_type, device_index),
            shape=dims[:ndim],
            strides=dims[ndim:],
            storage_offset=offset,
            storage_bytes=storage_bytes,
            item_bytes=known_dtype.item_bytes if known_dtype else 0,
            kind=abi.layout_name(kind),
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

    def call_begin(self, body: int, flags: int, time_ns: int) -> CallBegin:
        call, kind, level, slot, model, stream = abi.CALL_BEGIN.codec.unpack_from(self.data, body)
        capturing = bool(flags & _CAPTURING)
        return CallBegin(time_ns, self.thread, _KINDS[kind], call, level, slot, model, stream, capturing)

    def call_end(self, body: int, _flags: int, time_ns: int) -> CallEnd:
        call, kind, failed, launches = abi.CALL_END.codec.unpack_from(self.data, body)
        return CallEnd(time_ns, self.thread, _KINDS[kind], call, bool(failed), launches)

    def clock(self, body: int, _flags: int, time_ns: int) -> ClockRecord:
        (unix_ns,) = abi.WALL_CLOCK.codec.unpack_from(self.data, body)
        return ClockRecord(time_ns, self.thread, unix_ns)

    def launch_begin(self, body: int, _flags: int, time_ns: int) -> LaunchBegin:
        fields = _unpack_launch_begin(self.data, body)
        call, kind, n_loops, stream_slot, launch, site, sequence, count = fields[:8]
        loops = fields[8 : 8 + n_loops]
        values = self._values(body + _LAUNCH_BEGIN_SIZE, count)
        key = self._launch_key(kind, call, launch)
        return new_record(LaunchBegin, (time_ns, self.thread, key, site, sequence, stream_slot, loops, values))

    def grid(self, body: int, _flags: int, time_ns: int) -> GridRecord:
        call, launch, kernel, kind, x, y, z, warps, shared, count = abi.GRID.codec.unpack_from(self.data, body)
        arguments = struct.unpack_from(f"<{count}Q", self.data, body + abi.GRID.size)
        key = self._launch_key(kind, call, launch)
        return GridRecord(time_ns, self.thread, key, kernel, (x, y, z), warps, shared, arguments)

    def launch_end(self, body: int, flags: int, time_ns: int) -> LaunchEnd:
        call, launch, status, kind, count = _unpack_launch_end(self.data, body)
        values = self._values(body + _LAUNCH_END_SIZE, count) if count else _NO_VALUES
        key = self._launch_key(kind, call, launch)
        not_started, breadcrumb = flags & _NOT_STARTED != 0, flags & _CRUMB != 0
        return new_record(LaunchEnd, (time_ns, self.thread, key, status, not_started, breadcrumb, values))

    def tensor_file(self, body: int, _flags: int, time_ns: int) -> TensorFile:
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

    def tensor_stats(self, body: int, flags: int, time_ns: int) -> TensorStats:
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
            ),
        )

    def replay_stats(self, body: int, flags: int, time_ns: int) -> ReplayStats:
        replay, begun = abi.REPLAY_STATS.codec.unpack_from(self.data, body)
        stats = self.tensor_stats(body + abi.REPLAY_STATS.size, flags, time_ns)
        return ReplayStats(time_ns, self.thread, replay, begun, stats)

    def fault(self, body: int, _flags: int, time_ns: int) -> FaultRecord:
        call, launch, kind, in_launch, domain, code, size = abi.FAULT.codec.unpack_from(self.data, body)
        text = self._text(body + abi.FAULT.size, size)
        key = self._launch_key(kind, call, launch) if in_launch else None
        return FaultRecord(time_ns, self.thread, _KINDS[kind], call, key, FaultDomain(domain), code, text)

    def guard_damage(self, body: int, _flags: int, time_ns: int) -> GuardDamage:
        call, launch, allocation, kind, data, size, first, last, damaged, *content = abi.GUARD_DAMAGE.codec.unpack_from(
            self.data, body
        )
        key = self._launch_key(kind, call, launch)
        found = bytes(content[: last + 1 - first])
        return GuardDamage(time_ns, self.thread, key, allocation, data, size, first, last, damaged, found)

    def printed(self, body: int, _flags: int, time_ns: int) -> PrintRecord:
        call, launch, size, kind = abi.PRINT.codec.unpack_from(self.data, body)
        key = self._launch_key(kind, call, launch)
        return PrintRecord(time_ns, self.thread, key, self._text(body + abi.PRINT.size, size))

    def watch(self, body: int, _flags: int, time_ns: int) -> WatchRecord:
        watch, size = abi.WATCH.codec.unpack_from(self.data, body)
        return WatchRecord(time_ns, self.thread, watch, self._text(body + abi.WATCH.size, size))

    def watch_hit(self, body: int, flags: int, time_ns: int) -> WatchHitRecord:
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

    def watch_count(self, body: int, _flags: int, time_ns: int) -> WatchCountRecord:
        watch, hits, evaluated = abi.WATCH_COUNT.codec.unpack_from(self.data, body)
        return WatchCountRecord(time_ns, self.thread, watch, hits, evaluated)

    def note(self, body: int, _flags: int, time_ns: int) -> NoteRecord:
        code, size = abi.NOTE.codec.unpack_from(self.data, body)
        return NoteRecord(time_ns, self.thread, NoteCode(code), self._text(body + abi.NOTE.size, size))

    def run_end(self, _body: int, _flags: int, time_ns: int) -> RunEnd:
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
_DECODERS: dict[int, Callable[[_Block, int, int, int], Record]] = {
    RecordType.CALL_BEGIN.value: _Block.call_begin,
    RecordType.CALL_END.value: _Block.call_end,
    RecordType.CLOCK.value: _Block.clock,
    RecordType.LAUNCH_BEGIN.value: _Block.launch_begin,
    RecordType.GRID.value: _Block.grid,
    RecordType.LAUNCH_END.value: _Block.launch_end,
    RecordType.TENSOR_FILE.value: _Block.tensor_file,
    RecordType.TENSOR_STATS.value: _Block.tensor_stats,
    RecordType.REPLAY_STATS.value: _Block.replay_stats,
    RecordType.FAULT.value: _Block.fault,
    RecordType.GUARD.value: _Block.guard_damage,
    RecordType.PRINT.value: _Block.printed,
    RecordType.WATCH.value: _Block.watch,
    RecordType.WATCH_HIT.value: _Block.watch_hit,
    RecordType.WATCH_COUNT.value: _Block.watch_count,
    RecordType.NOTE.value: _Block.note,
    RecordType.RUN_END.value: _Block.run_end,
}


_BITS, _DOUBLES, _SIGNED = struct.Struct("<2Q"), struct.Struct("<2d"), struct.Struct("<2q")


def _extrema(low: int, high: int, integer: int) -> tuple[int | float, int | float]:
    """Minimum and maximum; `integer` is the type of their bits: 0 double, 1 int64, 2 uint64."""
    if integer == 2:
        return low, high
    least, greatest = (_SIGNED if integer == 1 else _DOUBLES).unpack(_BITS.pack(low, high))
    return least, greatest
