"""Journals that end anywhere: a reader may claim what was complete by then, and nothing more."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import aoti_debug
from aoti_debug.base import abi
from aoti_debug.base.errors import RunDirError
from aoti_debug.runs.rundir import run_directory
from aoti_debug.runs.rundir.formats import journal
from aoti_debug.runs.rundir.formats.journal_records import Record, SlotValues
from tests import factories

_SIZE = 4  # bytes at the start of the header of the file, of a block and of a record, which are stored last
_MAGIC = len(abi.JOURNAL_MAGIC)


@dataclass(frozen=True)
class Part:
    """A record, or the header of a block, from its first byte to the one behind it.

    Attributes:
        said: what the record says; "" for a layout and for a header.
    """

    begin: int
    end: int
    said: str


def parts(path: Path) -> list[Part]:
    """The parts of a journal, in the order of the file."""
    return list(_parts(journal.read(path)))


def _parts(whole: journal.Journal) -> Iterator[Part]:
    for place in sorted(whole.places):
        block = whole.block(place)
        yield Part(place, place + abi.BLOCK_HEADER.size, "")
        for offset, *_ in block.walk():
            (size, *_) = abi.RECORD_HEADER.codec.unpack_from(block.data, offset)
            try:
                said = _said(block.record(place + offset))
            except KeyError:
                said = ""
            yield Part(place + offset, place + offset + size, said)


def _said(record: Record) -> str:
    return repr([value.decode() if isinstance(value, SlotValues) else value for value in record])


def problem(path: Path, data: bytes, whole: list[Part], cut: int, *, killed: bool) -> str:
    """What is wrong with what is read of a journal that ends at a byte; "" if nothing is.

    Args:
        path: where it is written.
        data: all of it.
        whole: `parts` of all of it.
        killed: the process has been killed: zeros follow, and what it has not completed has no size. Otherwise nothing
            follows, as where a copy was cut.
    """
    with path.open("r+b") as file:  # a file that is emptied first goes to the disk when it is closed
        file.truncate(file.write(_killed(data, whole, cut) if killed else data[:cut]))
    if cut < abi.JOURNAL_HEADER.size:
        if killed:
            return "it has begun" if journal.has_begun(path) else ""
        try:
            journal.read(path)
        except RunDirError:
            return ""
        return "a part of a header is read"
    found = sorted(_said(record) for record in factories.records_of(journal.read(path)))
    expected = sorted(part.said for part in whole if part.said and part.end <= cut)
    return "" if found == expected else f"{len(found)} records are read, {len(expected)} are complete"


def _killed(data: bytes, whole: list[Part], cut: int) -> bytes:
    written = bytearray(data[:cut] + bytes(len(data) - cut))
    if cut < abi.JOURNAL_HEADER.size:
        written[:_MAGIC] = bytes(_MAGIC)
    for part in whole:
        if part.begin < cut < part.end:
            written[part.begin : part.begin + _SIZE] = bytes(_SIZE)
    return bytes(written)


def problem_of_run(run: Path) -> str:
    """Why a run whose journal ends anywhere cannot be looked at; "" if it can, or one error says why it cannot."""
    try:
        opened = run_directory.open_run(run)
        aoti_debug.diagnose(opened)
        for launch in opened.launches:
            _ = launch.status, launch.kernel, [(argument.before, argument.after) for argument in launch.args]
        return "" if opened.state else "it has no state"
    except RunDirError as error:
        return "" if error.hint else f"no hint: {error}"
