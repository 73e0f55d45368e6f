from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from aoti_debug.base import abi, dtypes
from aoti_debug.base.abi import CallFlag, CallKind, FaultDomain, LaunchFlag, NoteCode, Phase, SaveStatus, StatsFlag
from aoti_debug.base.errors import RunDirError
from aoti_debug.package.argument_values import Absent, Number, Tensor
from aoti_debug.package.manifest import CType
from aoti_debug.runs.rundir import run_directory
from aoti_debug.runs.rundir.formats import journal, journal_records
from aoti_debug.runs.rundir.formats.journal import WallClock
from aoti_debug.runs.rundir.formats.statistics import Statistics
from tests import cut_journals, factories
from tests.factories import JournalWriter, records_of, statistics, tensor
from tests.fuzz import readers

X = tensor(8, 32, data_ptr=0x1000)
W = tensor(64, 32, dtype="bfloat16", device="cuda:1", data_ptr=0x2000, strides=(1, 64), storage_offset=3)


def write(path: Path, writer: JournalWriter) -> Path:
    file = path / "journal.bin"
    file.write_bytes(writer.bytes())
    return file


def read(path: Path, writer: JournalWriter) -> journal.Journal:
    return journal.read(write(path, writer))


def names(content: journal.Journal) -> list[str]:
    return [type(record).__name__ for record in records_of(content)]


def test_header(tmp_path: Path) -> None:
    writer = JournalWriter(level=2, pid=99, crumb_every=16)
    writer.blocks_reused = 5
    header = read(tmp_path, writer).header
    assert header == journal.Header(99, 2, 1_700_000_000_000_000_000, 5, 16, 0)


def test_a_launch_with_every_kind_of_value(tmp_path: Path) -> None:
    writer = JournalWriter()
    writer.call_begin()
    numbers = [
        Number(-5, CType.I32),
        Number(2**64 - 1, CType.U64),
        Number(0.1, CType.F64),
        Number(True, CType.BOOL),
        Number(-(2**63), CType.I64),
    ]
    absent = [Absent.UNSET, Absent.NULL, Absent.TEXT, Absent.OPAQUE, Absent.UNDEFINED]
    writer.launch_begin(3, 7, X, W, *numbers, *absent, call=2, loops=(4, 1), stream_slot=1)
    (call, begin) = records_of(read(tmp_path, writer))
    assert isinstance(call, journal_records.CallBegin)
    assert isinstance(begin, journal_records.LaunchBegin)
    assert str(begin.key) == "2.3"
    assert (begin.site, begin.sequence, begin.loops, begin.stream_slot, begin.thread) == (7, 1, (4, 1), 1, 1)
    assert begin.values.decode() == dict(enumerate([X, W, *numbers, *absent]))


def test_output_slots_are_filled_at_the_end(tmp_path: Path) -> None:
    writer = JournalWriter()
    writer.launch_begin(0, 0, X, Absent.UNSET, Absent.UNSET)
    writer.launch_end(0, {1: W, 2: Absent.NULL}, status=1, flags=LaunchFlag.NOT_STARTED)
    end = records_of(read(tmp_path, writer))[1]
    assert isinstance(end, journal_records.LaunchEnd)
    assert end.values.decode() == {1: W, 2: Absent.NULL}
    assert (end.status, end.not_started) == (1, True)


def test_constant_folding_calls_are_named_apart(tmp_path: Path) -> None:
    writer = JournalWriter()
    writer.call_begin(kind=CallKind.CONSTANT)
    writer.launch_begin(1, 0, kind=CallKind.CONSTANT)
    writer.call_end(kind=CallKind.CONSTANT, launches=1, failed=True)
    _, begin, end = records_of(read(tmp_path, writer))
    assert isinstance(begin, journal_records.LaunchBegin)
    assert isinstance(end, journal_records.CallEnd)
    assert str(begin.key) == "c0.1"
    assert (end.failed, end.launches) == (True, 1)


def test_grid(tmp_path: Path) -> None:
    writer = JournalWriter()
    writer.grid(4, 2, (65, 2, 3), 0xFFFF_0000_0000, 4096)
    (grid,) = records_of(read(tmp_path, writer))
    assert isinstance(grid, journal_records.GridRecord)
    assert (grid.kernel, grid.grid, grid.num_warps, grid.shared_bytes) == (2, (65, 2, 3), 4, 128)
    assert grid.arguments == (0xFFFF_0000_0000, 4096)


def test_tensor_files(tmp_path: Path) -> None:
    writer = JournalWriter(level=1)
    writer.tensor_file(0, 2, Phase.AFTER, "tensors/0/0000_k/ä.safetensors", size=40, content=7)
    writer.tensor_file(0, 3, Phase.BEFORE, "", status=SaveStatus.SKIPPED, reason="the disk is full")
    saved, skipped = records_of(read(tmp_path, writer))
    assert isinstance(saved, journal_records.TensorFile)
    assert isinstance(skipped, journal_records.TensorFile)
    assert (saved.slot, saved.phase, saved.status, saved.bytes) == (2, Phase.AFTER, SaveStatus.WRITTEN, 40)
    assert (saved.path, saved.hash, saved.reason) == ("tensors/0/0000_k/ä.safetensors", (7, 7), "")
    assert (skipped.path, skipped.status, skipped.reason) == ("", SaveStatus.SKIPPED, "the disk is full")


def test_the_path_and_the_reason_of_a_tensor_file_are_told_apart(tmp_path: Path) -> None:
    writer = JournalWriter()
    writer.tensor_file(0, 2, Phase.AFTER, "tensors/x", reason="why")
    (record,) = records_of(read(tmp_path, writer))
    assert isinstance(record, journal_records.TensorFile)
    assert (record.path, record.reason) == ("tensors/x", "why")


@pytest.mark.parametrize("size", [8, 20, 1 << 20])
def test_a_record_of_an_impossible_size_ends_its_block(tmp_path: Path, size: int) -> None:
    writer = JournalWriter()
    writer.run_end()
    writer._append(abi.RECORD_HEADER.codec.pack(size, abi.RecordType.RUN_END, 0, 1) + bytes(8))
    content = read(tmp_path, writer)
    assert (names(content), content.damaged_blocks) == (["RunEnd"], 1)


FLOATS = Statistics(10, 1, 2, 3, 1, -1e300, 1e300, 4, 9, 0.5, 2.0)
INTEGERS = Statistics(2, 0, 0, 0, 0, -(2**53) - 1, 2**53 + 1, 0, 1, 0.0, 1.0)
UNSIGNED = Statistics(2, 0, 0, 0, 0, 0, 2**64 - 1, 0, 1, 0.0, 1.0)
NOTHING_FINITE = Statistics(3, 3, 0, 0, 0, None, None, 0, 0, 0.0, 0.0)


@pytest.mark.parametrize(("statistics", "integer"), [(FLOATS, 0), (INTEGERS, 1), (UNSIGNED, 2), (NOTHING_FINITE, 0)])
def test_statistics(tmp_path: Path, statistics: Statistics, integer: int) -> None:
    writer = JournalWriter(level=2)
    writer.tensor_stats(1, 2, Phase.AFTER, statistics, integer=integer, values=bytes(X.layout.bytes), layout=X.layout)
    (record,) = records_of(read(tmp_path, writer))
    assert isinstance(record, journal_records.TensorStats)
    assert record.statistics == statistics
    assert (record.values, record.layout, record.reason) == (bytes(X.layout.bytes), X.layout, "")
    assert record.hash == 0xDEADBEEF12345678


def test_statistics_that_were_not_taken(tmp_path: Path) -> None:
    writer = JournalWriter(level=2)
    writer.tensor_stats(0, 0, Phase.BEFORE, None, flags=StatsFlag.UNINITIALISED)
    writer.tensor_stats(0, 1, Phase.BEFORE, None, flags=StatsFlag.SKIPPED, values=b"a sparse tensor")
    unset, skipped = records_of(read(tmp_path, writer))
    assert isinstance(unset, journal_records.TensorStats)
    assert isinstance(skipped, journal_records.TensorStats)
    assert (unset.uninitialised, unset.statistics) == (True, None)
    assert (unset.hash, skipped.hash) == (None, None)
    assert (skipped.uninitialised, skipped.statistics, skipped.reason) == (False, None, "a sparse tensor")


def test_a_hash_without_statistics(tmp_path: Path) -> None:
    writer = JournalWriter(level=4)
    writer.tensor_stats(0, 1, Phase.AFTER, None, flags=StatsFlag.HASH_ONLY, layout=X.layout)
    (record,) = records_of(read(tmp_path, writer))
    assert isinstance(record, journal_records.TensorStats)
    assert (record.statistics, record.hash, record.layout) == (None, 0xDEADBEEF12345678, X.layout)


def test_statistics_of_a_replay(tmp_path: Path) -> None:
    writer = JournalWriter(level=2)
    writer.tensor_stats(1, 2, Phase.AFTER, FLOATS, values=bytes(X.layout.bytes), layout=X.layout, replay=(731, 732))
    (record,) = records_of(read(tmp_path, writer))
    assert isinstance(record, journal_records.TensorStats)
    assert (record.replay, record.begun) == (731, 732)
    assert (record.key.launch, record.slot, record.phase) == (1, 2, Phase.AFTER)
    assert (record.statistics, record.values) == (FLOATS, bytes(X.layout.bytes))


def test_faults_and_notes(tmp_path: Path) -> None:
    writer = JournalWriter()
    writer.fault(4, FaultDomain.CUDA, 700, "CUDA_ERROR_ILLEGAL_ADDRESS", call=1)
    writer.fault(None, FaultDomain.EXCEPTION, text="é")
    writer.note(NoteCode.RECORDING_STOPPED, "the disk is full")
    writer.run_end()
    inside, outside, note, end = records_of(read(tmp_path, writer))
    assert isinstance(inside, journal_records.FaultRecord)
    assert isinstance(outside, journal_records.FaultRecord)
    assert isinstance(note, journal_records.NoteRecord)
    assert (str(inside.launch), inside.domain, inside.code) == ("1.4", FaultDomain.CUDA, 700)
    assert inside.text == "CUDA_ERROR_ILLEGAL_ADDRESS"
    assert (outside.launch, outside.code, outside.text) == (None, -1, "é")
    assert (note.code, note.text) == (NoteCode.RECORDING_STOPPED, "the disk is full")
    assert isinstance(end, journal_records.RunEnd)


def test_threads_are_merged_by_time(tmp_path: Path) -> None:
    writer = JournalWriter(block_bytes=512)
    for launch in range(40):
        writer.thread = 1 + launch % 3
        writer.launch_begin(launch, 0, X)
    decoded = records_of(read(tmp_path, writer))
    keys = [(r.thread, r.key.launch) for r in decoded if isinstance(r, journal_records.LaunchBegin)]
    assert keys == [(1 + launch % 3, launch) for launch in range(40)]


def test_layouts_are_numbered_anew_in_each_block(tmp_path: Path) -> None:
    writer = JournalWriter(block_bytes=4096)
    tensors = [tensor(n + 1, dtype="float64") for n in range(100)]
    for launch, t in enumerate(tensors):
        writer.launch_begin(launch, 0, t)
    decoded = records_of(read(tmp_path, writer))
    assert [r.values.decode()[0] for r in decoded if isinstance(r, journal_records.LaunchBegin)] == tensors


def test_a_torn_record_ends_its_block_only(tmp_path: Path) -> None:
    writer = JournalWriter()
    writer.launch_begin(0, 0, X)
    writer.torn_record()
    writer.thread = 2
    writer.launch_begin(1, 0, X)
    content = read(tmp_path, writer)
    assert [r.key.launch for r in records_of(content) if isinstance(r, journal_records.LaunchBegin)] == [0, 1]
    assert content.damaged_blocks == 0


@pytest.mark.parametrize("killed", [False, True], ids=["cut", "killed"])
def test_a_journal_that_ends_anywhere(tmp_path: Path, *, killed: bool) -> None:
    data = readers.journal_of_every_record(block_bytes=512).bytes()
    path = tmp_path / "journal.bin"
    path.write_bytes(data)
    whole = cut_journals.parts(path)
    assert len({part.said for part in whole}) > 10
    problems = ((cut, cut_journals.problem(path, data, whole, cut, killed=killed)) for cut in range(len(data)))
    assert [(cut, problem) for cut, problem in problems if problem] == []


def test_bytes_that_are_no_records_end_a_block_and_are_counted(tmp_path: Path) -> None:
    writer = JournalWriter()
    writer.launch_begin(0, 0, X)
    data = bytearray(writer.bytes())
    at = -(-len(data.rstrip(b"\0")) // 8) * 8
    data[at : at + 4] = (13).to_bytes(4, "little")
    (tmp_path / "journal.bin").write_bytes(data)
    content = journal.read(tmp_path / "journal.bin")
    assert names(content) == ["LaunchBegin"]
    assert content.damaged_blocks == 1


def test_unknown_record_types_are_passed_over(tmp_path: Path) -> None:
    writer = JournalWriter()
    writer.launch_begin(0, 0)
    writer.note(NoteCode.CAPTURING, "x")
    data = writer.bytes().replace(abi.RecordType.NOTE.to_bytes(2, "little"), b"\x63\x00")
    (tmp_path / "journal.bin").write_bytes(data)
    assert names(journal.read(tmp_path / "journal.bin")) == ["LaunchBegin"]


def test_unused_blocks_of_an_allocated_file(tmp_path: Path) -> None:
    writer = JournalWriter()
    writer.launch_begin(0, 0, X)
    file = write(tmp_path, writer)
    os.truncate(file, file.stat().st_size + 3 * abi.BLOCK_BYTES)
    assert names(journal.read(file)) == ["LaunchBegin"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is truncated: it ends within its header"),
        (JournalWriter().bytes()[:40], "is truncated: it ends within its header"),
        (b"NOTOURS!" + JournalWriter().bytes()[8:], "is not a journal of aoti-debug"),
        (
            JournalWriter().bytes()[:8] + b"\x02" + JournalWriter().bytes()[9:],
            "has version 2; this aoti-debug reads version 1",
        ),
        (JournalWriter().bytes()[:12] + bytes(4) + JournalWriter().bytes()[16:], "is damaged: blocks of 0 bytes"),
        (
            JournalWriter().bytes()[:12] + b"\1\0\0\x80" + JournalWriter().bytes()[16:],
            "is damaged: blocks of 2147483649 bytes",
        ),
    ],
    ids=["empty", "cut", "magic", "version", "no blocks", "blocks larger than memory"],
)
def test_unreadable_header(tmp_path: Path, data: bytes, message: str) -> None:
    file = tmp_path / "journal.bin"
    file.write_bytes(data)
    with pytest.raises(RunDirError) as caught:
        journal.read(file)
    assert str(caught.value) == f"{file} {message}"
    assert caught.value.hint


def test_missing_journal(tmp_path: Path) -> None:
    with pytest.raises(RunDirError, match="No such file"):
        journal.read(tmp_path / "journal.bin")


def test_speed(tmp_path: Path) -> None:
    writer = JournalWriter()
    for launch in range(20_000):
        writer.launch(launch, 0, X, W, X)
    file = write(tmp_path, writer)
    began = time.process_time()
    content = journal.read(file)
    took = time.process_time() - began
    assert len(records_of(content)) == 40_000
    assert took < 2.0


def test_a_record_that_fills_its_block_to_the_end(tmp_path: Path) -> None:
    writer = JournalWriter(block_bytes=abi.BLOCK_HEADER.size + abi.RECORD_HEADER.size)
    writer.run_end()
    content = read(tmp_path, writer)
    assert (names(content), content.damaged_blocks) == (["RunEnd"], 0)


def test_blocks_without_room_for_a_record_are_damage(tmp_path: Path) -> None:
    with pytest.raises(RunDirError, match="is damaged: blocks of 16 bytes"):
        read(tmp_path, JournalWriter(block_bytes=abi.BLOCK_HEADER.size))


def test_values_that_fill_their_block_to_the_end(tmp_path: Path) -> None:
    begin = abi.RECORD_HEADER.size + abi.LAUNCH_BEGIN.size + 2 * abi.SLOT_VALUE.size
    writer = JournalWriter(block_bytes=abi.BLOCK_HEADER.size + begin)
    writer.launch_begin(0, 0, Absent.UNSET, Absent.NULL)
    content = read(tmp_path, writer)
    assert (names(content), content.damaged_blocks) == (["LaunchBegin"], 0)


def record(type_: abi.RecordType, payload: bytes) -> JournalWriter:
    """A journal of that record in a block that it fills."""
    size = abi.RECORD_HEADER.size + len(payload)
    writer = JournalWriter(block_bytes=abi.BLOCK_HEADER.size + -(-size // 8) * 8)
    writer._record(type_, payload)
    return writer


@pytest.mark.parametrize(
    "damaged",
    [
        record(abi.RecordType.CALL_BEGIN, b""),
        record(abi.RecordType.LAUNCH_END, abi.LAUNCH_END.codec.pack(0, 0, 0, CallKind.MODEL, 1)),
        record(abi.RecordType.CALL_END, abi.CALL_END.codec.pack(0, 99, False, 0)),
    ],
    ids=["too short", "more values than the block holds", "no kind of call"],
)
def test_a_record_that_cannot_be_decoded_is_damage(tmp_path: Path, damaged: JournalWriter) -> None:
    content = read(tmp_path, damaged)
    assert (names(content), content.damaged_blocks) == ([], 1)


def test_blocks_behind_holes_of_a_sparse_file(tmp_path: Path) -> None:
    size = 1 << 16
    writer = JournalWriter(block_bytes=size)
    for thread in range(3):
        writer.thread = thread
        writer.launch_begin(thread, 0)
    data = writer.bytes()
    blocks = [data[start : start + size] for start in range(abi.JOURNAL_HEADER.size, len(data), size)]
    with (tmp_path / "journal.bin").open("wb") as file:
        file.write(data[: abi.JOURNAL_HEADER.size])
        for position, block in zip((3, 40, 1 << 20), blocks, strict=True):  # the last one at 64 GiB
            file.seek(abi.JOURNAL_HEADER.size + position * size)
            file.write(block)
        file.truncate(1 << 40)
    content = journal.read(tmp_path / "journal.bin")
    assert [r.key.launch for r in records_of(content) if isinstance(r, journal_records.LaunchBegin)] == [0, 1, 2]


@pytest.mark.parametrize(("flags", "capturing"), [(0, False), (CallFlag.CAPTURING, True)])
def test_calls_under_capture(tmp_path: Path, flags: int, capturing: bool) -> None:
    writer = JournalWriter()
    writer.call_begin(flags=flags)
    (begin,) = records_of(read(tmp_path, writer))
    assert isinstance(begin, journal_records.CallBegin)
    assert begin.capturing is capturing


@pytest.mark.parametrize(
    ("flags", "not_started", "breadcrumb"),
    [(0, False, False), (LaunchFlag.NOT_STARTED, True, False), (LaunchFlag.CRUMB, False, True)],
)
def test_flags_of_launches(tmp_path: Path, flags: int, not_started: bool, breadcrumb: bool) -> None:
    writer = JournalWriter()
    writer.launch_end(0, flags=flags)
    (end,) = records_of(read(tmp_path, writer))
    assert isinstance(end, journal_records.LaunchEnd)
    assert (end.not_started, end.breadcrumb) == (not_started, breadcrumb)


@pytest.mark.parametrize(
    ("counts", "extremum"), [((1, 0, 0, 0), 2.5), ((4, 1, 1, 1), 2.5), ((3, 1, 1, 1), None), ((0, 0, 0, 0), None)]
)
def test_extrema_are_those_of_finite_elements(
    tmp_path: Path, counts: tuple[int, int, int, int], extremum: float | None
) -> None:
    writer = JournalWriter(level=2)
    writer.tensor_stats(0, 0, Phase.AFTER, Statistics(*counts, 0, 2.5, 2.5, 0, 0, 0.0, 0.0))
    (stats,) = records_of(read(tmp_path, writer))
    assert isinstance(stats, journal_records.TensorStats)
    assert stats.statistics is not None
    assert (stats.statistics.min, stats.statistics.max) == (extremum, extremum)


UNKNOWN_DTYPE = 200


def layout_record(writer: JournalWriter, dtype: int) -> None:
    """Writes a layout of four elements with the number 0, as which X is known already."""
    payload = abi.LAYOUT.codec.pack(0, dtype, 0, -1, 0, 1, 0, 4) + (4).to_bytes(8, "little") + (1).to_bytes(8, "little")
    writer._record(abi.RecordType.LAYOUT, payload)


def test_a_tensor_of_unknown_dtype(tmp_path: Path) -> None:
    writer = JournalWriter()
    writer.launch_begin(0, 0, X)
    layout_record(writer, UNKNOWN_DTYPE)
    (begin,) = records_of(read(tmp_path, writer))
    assert isinstance(begin, journal_records.LaunchBegin)
    value = begin.values.decode()[0]
    assert isinstance(value, Tensor)
    assert (value.layout.shape, value.layout.strides, value.layout.item_bytes) == ((4,), (1,), 0)


@pytest.mark.parametrize(
    ("dtype", "values", "known"),
    [
        ("uint8", b"abcd", True),
        ("uint8", b"abcde", False),
        ("uint8", b"abc", False),
        ("uint8", b"", True),
        ("qint8", b"abcd", False),
        ("qint8", b"", True),
        ("", b"abcd", False),
        ("", b"", True),
    ],
)
def test_recorded_elements_have_the_size_of_their_tensor(
    tmp_path: Path, dtype: str, values: bytes, known: bool
) -> None:
    writer = JournalWriter(level=2)
    writer.launch_begin(0, 0, X)
    numbers = [each.name for each in dtypes.DTYPES]
    layout_record(writer, numbers.index(dtype) if dtype else UNKNOWN_DTYPE)
    writer.tensor_stats(0, 0, Phase.BEFORE, statistics(), layout=X.layout, values=values)
    content = read(tmp_path, writer)
    assert [r.values for r in records_of(content) if isinstance(r, journal_records.TensorStats)] == (
        [values] if known else []
    )
    assert content.damaged_blocks == (not known)


def test_recorded_elements_without_a_layout_are_damage(tmp_path: Path) -> None:
    writer = JournalWriter(level=2)
    writer.tensor_stats(0, 0, Phase.BEFORE, statistics(), values=b"abcd")
    assert read(tmp_path, writer).damaged_blocks == 1


def test_damage_to_a_guard(tmp_path: Path) -> None:
    writer = JournalWriter()
    writer.damage(2, 5, b"abc", at=0x1000, size=64, allocation=9)
    (damage,) = records_of(read(tmp_path, writer))
    assert isinstance(damage, journal_records.GuardDamage)
    assert (damage.first, damage.last, damage.found) == (5, 7, b"abc")


def clock(tmp_path: Path, journal: JournalWriter) -> WallClock:
    run = run_directory.open_run(factories.run_directory(tmp_path, factories.make_manifest(), journal))
    assert run.journal is not None
    return WallClock(run.journal)


def test_times_between_two_records_are_interpolated(tmp_path: Path) -> None:
    journal = JournalWriter()
    journal.time_ns = 9_000
    journal.clock(1_000_000)  # at 10 µs: a record advances the clock
    journal.time_ns = 29_000
    journal.clock(1_040_000)  # the journal's clock runs at half the rate
    found = clock(tmp_path, journal)
    assert found.is_recorded
    assert [found.unix_ns(time) for time in (10_000, 15_000, 30_000)] == [1_000_000, 1_010_000, 1_040_000]
    assert found.unix_ns(8_000) == 998_000
    assert found.unix_ns(31_000) == 1_041_000


def test_a_journal_without_such_records_has_the_time_of_its_start(tmp_path: Path) -> None:
    journal = JournalWriter()
    journal.call_begin()
    found = clock(tmp_path, journal)
    assert not found.is_recorded
    assert found.unix_ns(500) == journal.start_unix_ns + 500
