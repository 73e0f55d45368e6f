"""Redacts a journal in place, record by record. Records of unknown types are blanked."""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection

from aoti_debug.base import abi
from aoti_debug.base.abi import RecordType, SaveStatus, StatsFlag, Struct, ValueTag
from aoti_debug.views.report.redaction import Redaction

_REASON = b"not in this bundle"
_WITHOUT_VALUES = {
    RecordType.CALL_BEGIN.value,
    RecordType.CALL_END.value,
    RecordType.CLOCK.value,
    RecordType.LAYOUT.value,
    RecordType.RUN_END.value,
}


def redact(data: bytes, redaction: Redaction, included: Collection[str]) -> bytes:
    """The journal without the parts that are left out, of the same length.

    Args:
        data: journal.bin.
        included: paths of the saved tensors that are in the bundle; the others are marked as not saved.
    """
    journal = bytearray(data)
    _, _, block_bytes, *_ = abi.JOURNAL_HEADER.codec.unpack_from(data)
    for start in range(abi.JOURNAL_HEADER.size, len(journal), block_bytes):
        _JournalBlock(journal, start, min(start + block_bytes, len(journal)), redaction, included).redact()
    return bytes(journal)


class _JournalBlock:
    def __init__(self, data: bytearray, start: int, end: int, redaction: Redaction, included: Collection[str]) -> None:
        self._data = data
        self._offset = start
        self._end = end
        self._redaction = redaction
        self._included = included

    def redact(self) -> None:
        """Redacts every record and blanks the bytes behind the last one, which may be left from an older block."""
        if self._end - self._offset < abi.BLOCK_HEADER.size:
            self._blank(self._offset, self._end)
            return
        magic, *_ = abi.BLOCK_HEADER.codec.unpack_from(self._data, self._offset)
        if magic == abi.BLOCK_MAGIC:
            self._offset += abi.BLOCK_HEADER.size
            while self._offset + abi.RECORD_HEADER.size <= self._end and self._record():
                pass
        self._blank(self._offset, self._end)

    def _record(self) -> bool:
        size, type_, _, _ = abi.RECORD_HEADER.codec.unpack_from(self._data, self._offset)
        if size < abi.RECORD_HEADER.size or size % 8 or self._offset + size > self._end:
            return False
        body, end = self._offset + abi.RECORD_HEADER.size, self._offset + size
        if type_ not in _WITHOUT_VALUES:
            redact = _REDACTORS.get(type_)
            if redact is not None:
                try:
                    redact(self, body, end)
                except struct.error:  # it ends within its fields: the rest of the block is damaged
                    return False
            elif self._redaction.parts:
                self._blank(body, end)
        self._offset = end
        return True

    def launch_begin(self, body: int, _end: int) -> None:
        *_, count, _, _, _, _ = abi.LAUNCH_BEGIN.codec.unpack_from(self._data, body)
        self._numbers(body + abi.LAUNCH_BEGIN.size, count)

    def launch_end(self, body: int, _end: int) -> None:
        *_, count = abi.LAUNCH_END.codec.unpack_from(self._data, body)
        self._numbers(body + abi.LAUNCH_END.size, count)

    def _numbers(self, offset: int, count: int) -> None:
        """Blanks the numbers passed to a launch: they may have been read from a tensor."""
        if not self._redaction.removes_tensors:
            return
        codec = abi.SLOT_VALUE.codec
        for position in range(offset, offset + count * codec.size, codec.size):
            tag, _, slot, _, _ = codec.unpack_from(self._data, position)
            if tag == ValueTag.NUMBER:
                codec.pack_into(self._data, position, ValueTag.OPAQUE, 0, slot, 0, 0)

    def grid(self, body: int, end: int) -> None:
        if self._redaction.removes_tensors:
            self._blank(body + abi.GRID.size, end)

    def tensor_file(self, body: int, end: int) -> None:
        fields = list(abi.TENSOR_FILE.codec.unpack_from(self._data, body))
        text, path_bytes = body + abi.TENSOR_FILE.size, fields[9]
        path = bytes(self._data[text : text + path_bytes]).decode("utf-8", "replace")
        if path and path not in self._included:
            reason = _REASON[: end - text]
            fields[5], fields[9:] = SaveStatus.SKIPPED, [0, len(reason)]
            self._blank(text, end)
            self._data[text : text + len(reason)] = reason
        if self._redaction.removes_tensors:
            fields[7:9] = [0, 0]
        abi.TENSOR_FILE.codec.pack_into(self._data, body, *fields)

    def replay_stats(self, body: int, end: int) -> None:
        self.tensor_stats(body + abi.REPLAY_STATS.size, end)

    def tensor_stats(self, body: int, end: int) -> None:
        if not self._redaction.removes_tensors:
            return
        names = [name for name, _ in abi.TENSOR_STATS.fields if not name.startswith("reserved")]
        fields = dict(zip(names, abi.TENSOR_STATS.codec.unpack_from(self._data, body), strict=True))
        kept = ("call", "launch", "slot", "kind", "phase", "layout")
        reason = _REASON[: end - body - abi.TENSOR_STATS.size]
        redacted = {name: fields[name] if name in kept else 0 for name in names} | {"value_bytes": len(reason)}
        self._blank(body, end)
        abi.TENSOR_STATS.codec.pack_into(self._data, body, *redacted.values())
        text = body + abi.TENSOR_STATS.size
        self._data[text : text + len(reason)] = reason
        size, type_, _, time_ns = abi.RECORD_HEADER.codec.unpack_from(self._data, self._offset)
        abi.RECORD_HEADER.codec.pack_into(self._data, self._offset, size, type_, StatsFlag.SKIPPED, time_ns)

    def guard_damage(self, body: int, _end: int) -> None:
        if self._redaction.removes_tensors:
            *leading, _ = abi.GUARD_DAMAGE.fields
            kept_bytes = struct.calcsize("<" + "".join(f for _, f in leading))
            self._blank(body + kept_bytes, body + abi.GUARD_DAMAGE.size)

    def fault(self, body: int, end: int) -> None:
        self._text(abi.FAULT, body, end)

    def note(self, body: int, end: int) -> None:
        self._text(abi.NOTE, body, end)

    def _text(self, kind: Struct, body: int, end: int) -> None:
        """Redacts the text that follows a record; its field `text_bytes` is the length."""
        if not self._redaction.parts:
            return
        names = [name for name, _ in kind.fields if not name.startswith("reserved")]
        fields = dict(zip(names, kind.codec.unpack_from(self._data, body), strict=True))
        text = body + kind.size
        message = bytes(self._data[text : text + fields["text_bytes"]]).decode("utf-8", "replace")
        redacted = self._redaction.redact(message).encode()[: end - text]
        self._blank(text, end)
        self._data[text : text + len(redacted)] = redacted
        kind.codec.pack_into(self._data, body, *(fields | {"text_bytes": len(redacted)}).values())

    def _blank(self, start: int, end: int) -> None:
        self._data[start:end] = bytes(end - start)


_REDACTORS: dict[int, Callable[[_JournalBlock, int, int], None]] = {
    RecordType.LAUNCH_BEGIN.value: _JournalBlock.launch_begin,
    RecordType.GRID.value: _JournalBlock.grid,
    RecordType.LAUNCH_END.value: _JournalBlock.launch_end,
    RecordType.TENSOR_FILE.value: _JournalBlock.tensor_file,
    RecordType.TENSOR_STATS.value: _JournalBlock.tensor_stats,
    RecordType.REPLAY_STATS.value: _JournalBlock.replay_stats,
    RecordType.FAULT.value: _JournalBlock.fault,
    RecordType.NOTE.value: _JournalBlock.note,
    RecordType.GUARD.value: _JournalBlock.guard_damage,
}
