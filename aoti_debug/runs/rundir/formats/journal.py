"""Reads journal.bin (runtime_shims/formats/journal_format.h): its header, and its records ordered by time.

A process may die at any instruction: every record before that instruction is read. Parts that cannot be decoded (a
block that the runtime was about to reuse, the end of a truncated file) are counted and skipped.
"""

from __future__ import annotations

import errno
import os
from bisect import bisect_right
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path
from typing import BinaryIO

from aoti_debug.base import abi
from aoti_debug.base.errors import RunDirError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.files import untrusted_files
from aoti_debug.runs.rundir.formats.journal_block import JournalBlock
from aoti_debug.runs.rundir.formats.journal_records import ClockRecord, Record

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


class WallClock:
    """Turns times of a journal into nanoseconds since 1970.

    The journal's own counter is off by some ten microseconds a second; calls on a device record the wall clock as they
    begin and end, and between two such records the time is interpolated.

    Attributes:
        is_recorded: False without such records: the start of the journal is the only time that is known.
    """

    def __init__(self, journal: Journal) -> None:
        known = sorted({(r.time_ns, r.unix_ns) for r in journal.records if isinstance(r, ClockRecord)})
        self.is_recorded = bool(known)
        self._known = known or [(0, journal.header.start_unix_ns)]
        self._times = [time for time, _ in self._known]

    def unix_ns(self, time_ns: int) -> int:
        """The wall clock at a time of the journal."""
        after = bisect_right(self._times, time_ns)
        time, unix = self._known[max(after - 1, 0)]
        if 0 < after < len(self._known):
            next_time, next_unix = self._known[after]
            return unix + (time_ns - time) * (next_unix - unix) // (next_time - time)
        return unix + time_ns - time


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
    if len(data) == abi.JOURNAL_HEADER.size and not data.startswith(abi.JOURNAL_MAGIC):
        raise RunDirError(f"{path} is not a journal of aoti-debug", hint="run the package again")
    block_bytes, pid, level, start, reused, every = abi.JOURNAL_HEADER.read_header(
        path, data, abi.JOURNAL_MAGIC, abi.JOURNAL_VERSION
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


def _read_block(file: BinaryIO, offset: int, block_bytes: int) -> JournalBlock | None:
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
    return JournalBlock(data, thread, sequence)
