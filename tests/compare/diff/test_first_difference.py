from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch

from aoti_debug.compare.diff.first_difference import CallPairs, DifferenceKind, FirstDifference, overlapping
from aoti_debug.compare.diff.pair_launches import launches_by_call
from aoti_debug.runs.rundir.run_directory import RunDir
from tests.triage.recorder import Recorder

X = torch.arange(4.0)
RIGHT = {"x": X, "buf0": X + 1, "read": X + 1, "buf1": X + 2}


def recorded(base: Path, values: Mapping[str, torch.Tensor]) -> RunDir:
    """A run of one call: a launch that writes buf0 from x, and one that reads that and writes buf1."""
    base.mkdir()
    recorder = Recorder(base, inputs=("x",), outputs=("buf1",))
    recorder.journal.call_begin()
    recorder.launch("first", {"x": values["x"]}, {"buf0": values["buf0"]})
    recorder.launch("second", {"buf0": values["read"]}, {"buf1": values["buf1"]})
    recorder.journal.call_end(launches=2)
    recorder.journal.run_end()
    return recorder.run()


def difference(base: Path, **changed: torch.Tensor) -> FirstDifference | None:
    alone, together = recorded(base / "alone", RIGHT), recorded(base / "together", {**RIGHT, **changed})
    calls = [next(iter(launches_by_call(run).values())) for run in (alone, together)]
    return CallPairs(alone, together).first_difference(calls[0], calls[1])


def test_equal_calls(tmp_path: Path) -> None:
    assert difference(tmp_path) is None


def test_a_launch_that_writes_other_values_and_not_its_reader(tmp_path: Path) -> None:
    found = difference(tmp_path, buf0=X, read=X, buf1=X + 1)
    assert found is not None
    assert (found.kind, found.launch.id, found.names) == (DifferenceKind.WROTE, "0.0", ("buf0",))
    assert found.looked_after


def test_memory_that_changes_between_two_launches(tmp_path: Path) -> None:
    found = difference(tmp_path, read=X, buf1=X + 1)
    assert found is not None
    assert (found.kind, found.launch.id, found.names) == (DifferenceKind.READ, "0.1", ("buf0",))
    assert found.writer is not None
    assert found.writer.id == "0.0"


def test_an_input_that_changes_while_the_launch_runs(tmp_path: Path) -> None:
    alone = recorded(tmp_path / "alone", RIGHT)
    base = tmp_path / "together"
    base.mkdir()
    recorder = Recorder(base, inputs=("x",), outputs=("buf1",))
    recorder.journal.call_begin()
    recorder.launch("first", {"x": X}, {"buf0": X}, read_after={"x": X + 3})
    recorder.launch("second", {"buf0": X}, {"buf1": X + 1})
    recorder.journal.call_end(launches=2)
    recorder.journal.run_end()
    calls = [next(iter(launches_by_call(run).values())) for run in (alone, recorder.run())]
    found = CallPairs(alone, recorder.run()).first_difference(calls[0], calls[1])
    assert found is not None
    assert (found.kind, found.launch.id, found.names) == (DifferenceKind.MEANWHILE, "0.0", ("x",))


def test_an_input_that_differs(tmp_path: Path) -> None:
    found = difference(tmp_path, x=X + 5, buf0=X + 6, read=X + 6, buf1=X + 7)
    assert found is not None
    assert (found.kind, found.launch.id, found.names, found.writer) == (DifferenceKind.GIVEN, "0.0", ("x",), None)


def together(base: Path) -> RunDir:
    """A call of thread 1, and later one of thread 2."""
    recorder = Recorder(base, inputs=("x",), outputs=("buf0",))
    journal = recorder.journal
    for call, (thread, begin, begun) in enumerate([(1, 1_000, X), (2, 100_000, X + 1)]):
        journal.thread, journal.time_ns = thread, begin
        journal.call_begin(call=call)
        recorder.launch("scratch", {"x": X}, {"buf0": begun}, call=call)
        journal.call_end(launches=1, call=call)
    journal.run_end()
    return recorder.run()


def test_launches_of_other_threads_at_a_time(tmp_path: Path) -> None:
    run = together(tmp_path)
    other = run.launches[1]
    assert other.end_ns is not None
    for begin, end in [(0, other.begin_ns), (other.begin_ns + 1, other.end_ns - 1), (other.end_ns, other.end_ns + 9)]:
        assert overlapping(run.launches, 1, begin, end) == [other]
        assert other not in overlapping(run.launches, 2, begin, end)
    for begin, end in [(0, other.begin_ns - 1), (other.end_ns + 1, other.end_ns + 9)]:
        assert overlapping(run.launches, 1, begin, end) == []


def test_a_launch_beside_that_writes_to_the_same_memory_is_named(tmp_path: Path) -> None:
    alone = recorded(tmp_path / "alone", RIGHT)
    base = tmp_path / "together"
    base.mkdir()
    recorder = Recorder(base, inputs=("x",), outputs=("buf1",))
    journal = recorder.journal
    journal.call_begin()
    recorder.launch("first", {"x": X}, {"buf0": X + 1})
    after = journal.time_ns
    journal.thread, journal.time_ns = 2, after + 1
    journal.call_begin(call=1)
    recorder.launch("other", {"x": X}, {"buf7": X}, call=1)
    recorder.launch("first", {"x": X}, {"buf0": X}, call=1)
    journal.call_end(launches=2, call=1)
    journal.thread = 1
    recorder.launch("second", {"buf0": X}, {"buf1": X + 1})
    journal.call_end(launches=2)
    journal.run_end()
    run = recorder.run()
    calls = launches_by_call(run)
    first = min(calls)
    found = CallPairs(alone, run).first_difference(launches_by_call(alone)[first], calls[first])
    assert found is not None
    assert found.kind is DifferenceKind.READ
    assert [(beside.launch.id, beside.shares) for beside in found.beside] == [("1.1", "buf0"), ("1.0", "")]
