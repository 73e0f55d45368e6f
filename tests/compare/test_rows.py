"""Outputs that have memory of an input; launches that overflow otherwise than their graph."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from aoti_debug.compare.comparison import Comparison, Row
from aoti_debug.compare.measure.output_errors import OutputError
from aoti_debug.compare.measure.verdicts import LaunchVerdict
from aoti_debug.compare.protocol.measurement import Measurement
from aoti_debug.compare.rows import shared_memory, without_eager_nonfinite
from aoti_debug.package.program_graphs import EXPORTED, FORMAT, Graph, Node, NodeKind, Reference
from aoti_debug.runs.run import saved_outputs
from aoti_debug.runs.rundir.run_directory import RunDir
from tests.triage.recorder import Recorder

X = torch.arange(4.0)
GRAPH = Graph("", EXPORTED, (Node("x", NodeKind.INPUT), Node("y", NodeKind.INPUT)), ())


def test_memory_that_an_output_has_in_the_package_alone(tmp_path: Path) -> None:
    reference = Reference(FORMAT, "2.13", (), exported=(GRAPH,))
    y = X + 1
    saved_outputs.save([X, y, X * 2], tmp_path / "run", (X, y))
    saved_outputs.save([X.clone(), y, X * 2], tmp_path / "eager", (X, y))
    (said,) = shared_memory(tmp_path / "run", tmp_path / "eager", reference)
    assert said.startswith("output 0 has memory of input 0 (x), and in eager none of it")
    assert not list(shared_memory(tmp_path / "eager", tmp_path / "run", reference))
    assert not list(shared_memory(None, tmp_path / "eager", reference))
    (unnamed,) = shared_memory(tmp_path / "run", tmp_path / "eager", Reference(FORMAT, "2.13", ()))
    assert "input 0, and" in unnamed


AS_IN_EAGER = OutputError(index=0, dtype="float32", elements=8, different=0, relative=0.0, nonfinite=8)
OVERFLOW = Measurement(
    argument="buf3", value="mul", operator="aten.mul.Tensor", dtype="float32", shape=(8,), count=8, wrong=8, lost=8
)


@pytest.fixture
def recorded(tmp_path: Path) -> RunDir:
    """Two calls, each: buf3 is read for buf4, which is output 0; buf5 for output 1; buf6 for no output."""
    recorder, x = Recorder(tmp_path, inputs=("x",), outputs=("buf4", "buf7")), torch.ones(8)
    for call in range(2):
        recorder.journal.call_begin(call=call)
        recorder.launch("mul", {"x": x}, {"buf3": x, "buf5": x, "buf6": x}, call=call)
        recorder.launch("copy", {"buf3": x}, {"buf4": x}, call=call)
        recorder.launch("gt", {"buf5": x}, {"buf7": x}, call=call)
        recorder.journal.call_end(launches=3, call=call)
    recorder.journal.run_end()
    return recorder.run()


def row(run: RunDir, *outputs: Measurement, call: int = 1) -> Row:
    return Row(launch=run.launch(f"{call}.0"), verdict=LaunchVerdict.WRONG, outputs=outputs)


def test_a_launch_that_overflows_as_eager_does_and_its_graph_does_not(recorded: RunDir) -> None:
    (found,) = without_eager_nonfinite(recorded, [row(recorded, OVERFLOW)], [AS_IN_EAGER])
    assert found.verdict is LaunchVerdict.NOT_COMPARABLE
    assert found.outputs == ()
    assert found.reason.startswith("8 of 8 elements of buf3 are NaN or infinite otherwise than what its graph gives")
    single = row(recorded, replace(OVERFLOW, wrong=1, lost=1))
    (one,) = without_eager_nonfinite(recorded, [single], [AS_IN_EAGER])
    assert one.reason.startswith("1 of 8 elements of buf3 is NaN")


def test_what_overflows_is_named_though_outputs_are_those_of_eager(recorded: RunDir) -> None:
    rows = without_eager_nonfinite(recorded, [row(recorded, OVERFLOW)], [AS_IN_EAGER])
    found = Comparison(run=recorded, rows=rows, outputs=(AS_IN_EAGER,))
    assert found.not_compared == ("mul (NaN or infinite otherwise than its graph)",)
    right = replace(rows[0], reason="it was left out")
    assert replace(found, rows=(right,)).not_compared == ()


@pytest.mark.parametrize(
    ("measured", "errors"),
    [
        (OVERFLOW, []),
        (OVERFLOW, [replace(AS_IN_EAGER, nonfinite=0)]),
        (OVERFLOW, [replace(AS_IN_EAGER, misplaced=1)]),
        (OVERFLOW, [AS_IN_EAGER, replace(AS_IN_EAGER, index=1, fault="is float64[8], where eager returns float32[8]")]),
        (replace(OVERFLOW, lost=7), [AS_IN_EAGER]),
        (replace(OVERFLOW, wrong=1, lost=1, eager_lost=1), [AS_IN_EAGER]),
        (replace(OVERFLOW, bias=2.0), [AS_IN_EAGER]),
        (replace(OVERFLOW, argument="buf5"), [AS_IN_EAGER, replace(AS_IN_EAGER, index=1, nonfinite=0)]),
        (replace(OVERFLOW, argument="buf6"), [AS_IN_EAGER, replace(AS_IN_EAGER, index=1)]),
    ],
)
def test_a_launch_that_stays_wrong(measured: Measurement, errors: list[OutputError], recorded: RunDir) -> None:
    rows = (row(recorded, measured),)
    assert without_eager_nonfinite(recorded, rows, errors) == rows


def test_launches_of_earlier_calls_are_not_judged_by_what_the_last_one_returns(recorded: RunDir) -> None:
    rows = [row(recorded, OVERFLOW, call=call) for call in range(2)]
    first, last = without_eager_nonfinite(recorded, rows, [AS_IN_EAGER])
    assert (first.verdict, last.verdict) == (LaunchVerdict.WRONG, LaunchVerdict.NOT_COMPARABLE)
