"""Redaction: removes values of tensors, or source, from texts, findings and journals."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from enum import Enum

from aoti_debug.base import abi
from aoti_debug.base.abi import RecordType, SaveStatus, StatsFlag, Struct, ValueTag
from aoti_debug.base.frozen import dataclass
from aoti_debug.package.manifest import Manifest
from aoti_debug.runs.diagnosis.findings import Finding, Place

LEFT_OUT = "[left out]"
_MIN_LINE = 6  # characters; shorter source lines are not searched for
# A number that is not part of a name: 64010, -1.5e3, 0x7f; not the 3 of buf3. Paths and ids of launches are kept.
_NUMBER = re.compile(
    r"(?P<kept>(?<!\S)[(\"']?[.~]{0,2}/\S+|\blaunch c?\d+\.\d+|[\w-]+\.(?:py|cpp|h|cu):\d+)"
    r"|(?<![\w.#])[-+]?(?:0x[0-9a-f]+|(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?)(?![\w.])",
    re.IGNORECASE,
)
_PUNCTUATION = re.compile(r"[^\w\s]")  # tells a line of source from plain words
_CODE = re.compile(r"[{}=]|;\s*$|\w\(|->|\w\[\w*[a-z_]\w*\]|^\s*(?:File \"|def |return )", re.MULTILINE)
_REASON = b"not in this bundle"
_WITHOUT_VALUES = {
    RecordType.CALL_BEGIN.value,
    RecordType.CALL_END.value,
    RecordType.CLOCK.value,
    RecordType.LAYOUT.value,
    RecordType.RUN_END.value,
}


class RedactedPart(str, Enum):
    """A kind of content that a bundle or a report can leave out."""

    TENSORS = "tensors"  # values of tensors and everything computed from them
    SOURCE = "source"  # source of kernels and of the model, stacks


@dataclass(frozen=True)
class Redaction:
    """The parts to leave out, and how texts and findings are stripped of them.

    Attributes:
        parts: what is left out.
        lines: lines of source that no text may quote.
    """

    parts: frozenset[RedactedPart] = frozenset()
    lines: frozenset[str] = frozenset()

    @property
    def removes_tensors(self) -> bool:
        """True if values of tensors are left out."""
        return RedactedPart.TENSORS in self.parts

    @property
    def removes_source(self) -> bool:
        """True if source is left out."""
        return RedactedPart.SOURCE in self.parts

    def redact(self, sentence: str) -> str:
        """The sentence without the numbers, or the source, that it may quote.

        A sentence that merely looks like source is left out as well: better to lose a sentence than to leak a line.
        """
        if self.removes_source:
            sentence = sentence.partition("\n")[0]
            for line in sorted((line for line in self.lines if line in sentence), key=len, reverse=True):
                sentence = sentence.replace(line, LEFT_OUT)
            if _CODE.search(sentence):
                sentence = LEFT_OUT
        if self.removes_tensors:
            sentence = _NUMBER.sub(lambda match: match["kept"] or "#", sentence)
        return sentence

    def redact_all(self, sentences: Iterable[str]) -> tuple[str, ...]:
        """Every sentence, redacted."""
        return tuple(self.redact(sentence) for sentence in sentences)

    def redact_finding(self, finding: Finding) -> Finding:
        """The finding, redacted. The path of the repro stays; the repro itself is left out of a redacted bundle."""
        if not self.parts:
            return finding
        return replace(
            finding,
            what=self.redact(finding.what),
            where=self._place(finding.where),
            origin=self._place(finding.origin),
            chain=tuple(place for each in finding.chain if (place := self._place(each)) is not None),
            evidence=self.redact_all(finding.evidence),
            possible=self.redact_all(finding.possible),
            stack=() if self.removes_source else self.redact_all(finding.stack),
            confirmed_by=self.redact_all(finding.confirmed_by),
            contradicted_by=self.redact_all(finding.contradicted_by),
            warnings=self.redact_all(finding.warnings),
            also=tuple(map(self.redact_finding, finding.also)),
        )

    def _place(self, place: Place | None) -> Place | None:
        """The place without its source line, or without its element: an index may have been read from a tensor."""
        if place is None:
            return None
        frame = place.frame
        if self.removes_source and frame is not None:
            frame = replace(frame, text="")
        if self.removes_tensors:
            place = replace(place, element=None, coordinates=())
        return replace(place, frame=frame)


NO_REDACTION = Redaction()


def redaction_for(parts: Collection[RedactedPart], manifests: Iterable[Manifest], finding: Finding) -> Redaction:
    """The redaction of these parts; source lines are taken from the manifests and the finding."""
    if not parts:
        return NO_REDACTION
    places = [place for each in (finding, *finding.also) for place in (each.where, each.origin, *each.chain)]
    texts = [place.frame.text for place in places if place and place.frame]
    for manifest in manifests:
        texts += [kernel.source for kernel in manifest.kernels]
        texts += [
            manifest.triton_helpers,
            *(text for call in manifest.unrecognised for text in (call.text, call.reason)),
        ]
        for site in manifest.sites:
            texts += [frame.text for frame in site.provenance.source]
            texts += site.provenance.stacks
    lines = {line.strip() for text in texts for line in text.splitlines()}
    quotable = frozenset(line for line in lines if len(line) >= _MIN_LINE and _PUNCTUATION.search(line))
    return Redaction(frozenset(parts), quotable)


def redact_journal(data: bytes, redaction: Redaction, included: Collection[str]) -> bytes:
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
            redact_journal = _REDACTORS.get(type_)
            if redact_journal is not None:
                try:
                    redact_journal(self, body, end)
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
