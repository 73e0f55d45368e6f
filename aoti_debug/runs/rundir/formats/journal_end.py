"""The end of a journal that a process is writing: where its records end, open calls, and the newest launch."""

from __future__ import annotations

import os
import struct
from pathlib import Path

from aoti_debug.base import abi
from aoti_debug.base.abi import CallKind, RecordType
from aoti_debug.base.frozen import dataclass
from aoti_debug.runs.rundir.formats.journal_records import LaunchKey

_RECORD_SIZE = struct.Struct("<I")
_OF_CALLS = (RecordType.CALL_BEGIN, RecordType.LAUNCH_BEGIN, RecordType.LAUNCH_END)  # the thread is in one then


@dataclass(frozen=True)
class NewestLaunch:
    """The launch that has begun last.

    Attributes:
        number: of all launches of the process, from 1.
    """

    key: LaunchKey
    number: int


@dataclass(frozen=True)
class RecordingProcess:
    """The process that writes a journal, and what it does where its recording has stopped.

    Attributes:
        lost_records: that it would have written since; it grows while a model runs. 0 before the recording stops.
        open_calls: calls that have begun and not ended.
    """

    process: int
    lost_records: int
    open_calls: int


def writer_of(path: Path) -> RecordingProcess | None:
    """Returns the process that writes a journal; None without one."""
    try:
        with path.open("rb") as file:
            header = file.read(abi.JOURNAL_HEADER.size)
    except FileNotFoundError:
        return None
    if len(header) != abi.JOURNAL_HEADER.size:
        return None
    _, _, _, process, *_, lost_records, open_calls = abi.JOURNAL_HEADER.codec.unpack(header)
    return RecordingProcess(process, lost_records, open_calls)


def has_open_call(path: Path) -> bool:
    """True if a thread of the process that writes a journal is in a call of a model."""
    writer = writer_of(path)
    if writer is not None and writer.lost_records:
        return writer.open_calls > 0
    return any(_has_open_call(block) for _, block in newest_blocks(path).values())


def newest_blocks(path: Path) -> dict[int, tuple[int, bytes]]:
    """The newest block of each thread, by the thread: its number and its bytes.

    The content is read since the file is mapped memory: its time and size do not change. Empty without the file.
    """
    try:
        with path.open("rb") as file:
            return _newest(file.fileno(), os.fstat(file.fileno()).st_size)
    except FileNotFoundError:
        return {}


def _newest(descriptor: int, size: int) -> dict[int, tuple[int, bytes]]:
    newest: dict[int, tuple[int, int]] = {}
    header = abi.BLOCK_HEADER
    for offset in range(abi.JOURNAL_HEADER.size, size, abi.BLOCK_BYTES):
        data = os.pread(descriptor, header.size, offset)
        if len(data) < header.size:
            break
        magic, thread, sequence = header.codec.unpack(data)
        if magic == abi.BLOCK_MAGIC and sequence >= newest.get(thread, (-1, 0))[0]:
            newest[thread] = (sequence, offset)
    return {
        thread: (sequence, os.pread(descriptor, abi.BLOCK_BYTES, offset))
        for thread, (sequence, offset) in sorted(newest.items())
    }


def records_end(block: bytes) -> int:
    """The offset behind the last record of a block."""
    position = abi.BLOCK_HEADER.size
    while position + _RECORD_SIZE.size <= len(block):
        (size,) = _RECORD_SIZE.unpack_from(block, position)
        if size == 0:
            break
        position += size
    return position


def _has_open_call(block: bytes) -> bool:
    """True if the thread of a block is in a call, as far as the block says."""
    is_open, position, header = False, abi.BLOCK_HEADER.size, abi.RECORD_HEADER
    while position + header.size <= len(block):
        size, type_, _, _ = header.codec.unpack_from(block, position)
        if size == 0:
            break
        if type_ == RecordType.CALL_END:
            is_open = False
        elif type_ in _OF_CALLS:
            is_open = True
        position += size
    return is_open


def newest_launch(path: Path) -> NewestLaunch | None:
    """The launch of the model that has begun last; None before the first one.

    Args:
        path: of the journal.
    """
    found = [launch for _, block in newest_blocks(path).values() if (launch := _last_launch(block)) is not None]
    return max(found, key=lambda launch: launch.number, default=None)


def _last_launch(block: bytes) -> NewestLaunch | None:
    found = None
    header, begin = abi.RECORD_HEADER, abi.LAUNCH_BEGIN
    position, end = abi.BLOCK_HEADER.size, len(block) - header.size - begin.size
    while position <= end:
        size, type_, _, _ = header.codec.unpack_from(block, position)
        if size == 0:
            break
        if type_ == RecordType.LAUNCH_BEGIN:
            call, kind, _, _, launch, _, sequence, *_ = begin.codec.unpack_from(block, position + header.size)
            if kind == CallKind.MODEL:
                found = NewestLaunch(LaunchKey(CallKind.MODEL, call, launch), sequence)
        position += size
    return found
