from __future__ import annotations

from pathlib import Path

from aoti_debug.base import abi
from aoti_debug.base.abi import CallKind
from aoti_debug.runs.rundir.formats.journal_end import NewestLaunch, newest_blocks, newest_launch, records_end
from aoti_debug.runs.rundir.formats.journal_records import LaunchKey
from tests.factories import JournalWriter, tensor


def written(folder: Path, writer: JournalWriter) -> Path:
    path = folder / "journal.bin"
    path.write_bytes(writer.bytes())
    return path


def test_without_a_journal_and_before_the_first_launch(tmp_path: Path) -> None:
    assert newest_blocks(tmp_path / "journal.bin") == {}
    writer = JournalWriter()
    writer.call_begin()
    assert newest_launch(written(tmp_path, writer)) is None


def test_the_launch_that_has_begun_last_of_several_blocks_and_threads(tmp_path: Path) -> None:
    writer = JournalWriter()
    for call in range(300):
        writer.thread = 1 + call % 2
        writer.call_begin(call)
        for launch in range(10):
            writer.launch(launch, 0, tensor(2), call=call)
    writer.call_begin(0, kind=CallKind.CONSTANT)
    writer.launch_begin(77, 0, tensor(2), kind=CallKind.CONSTANT)
    path = written(tmp_path, writer)
    assert path.stat().st_size > 3 * abi.BLOCK_BYTES
    assert newest_launch(path) == NewestLaunch(LaunchKey(CallKind.MODEL, 299, 9), 3000)


def test_the_end_of_the_records_grows(tmp_path: Path) -> None:
    writer = JournalWriter()
    ends = []
    for launch in range(2):
        writer.launch(launch, 0, tensor(2))
        ((_, block),) = newest_blocks(written(tmp_path, writer)).values()
        ends.append(records_end(block))
    assert abi.BLOCK_HEADER.size < ends[0] < ends[1]
