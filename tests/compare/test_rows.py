"""Outputs that have memory of an input; launches that overflow otherwise than their graph."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from aoti_debug.compare.comparison import Row
from aoti_debug.compare.measure.output_errors import OutputError
from aoti_debug.compare.measure.verdicts import LaunchVerdict
from aoti_debug.compare.protocol.measurement import Measurement
from aoti_debug.compare.rows import shared_memory, without_eager_nonfinite
from aoti_debug.package.program_graphs import EXPORTED, FORMAT, Graph, Node, NodeKind, Reference
from aoti_debug.runs.run import saved_outputs

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


def row(call: int, *outputs: Measurement) -> Row:
    launch: Any = SimpleNamespace(key=SimpleNamespace(call=call), id=f"{call}.0")
    return Row(launch=launch, verdict=LaunchVerdict.WRONG, outputs=outputs)


def test_a_launch_that_overflows_as_eager_does_and_its_graph_does_not() -> None:
    (found,) = without_eager_nonfinite([row(0, OVERFLOW)], [AS_IN_EAGER])
    assert found.verdict is LaunchVerdict.NOT_COMPARABLE
    assert found.outputs == ()
    assert found.reason.startswith("8 of 8 elements of buf3 are NaN or infinite otherwise than what its graph gives")
    (one,) = without_eager_nonfinite([row(0, replace(OVERFLOW, wrong=1, lost=1))], [AS_IN_EAGER])
    assert one.reason.startswith("1 of 8 elements of buf3 is NaN")


@pytest.mark.parametrize(
    ("measured", "errors"),
    [
        (OVERFLOW, []),
        (OVERFLOW, [replace(AS_IN_EAGER, nonfinite=0)]),
        (OVERFLOW, [replace(AS_IN_EAGER, misplaced=1)]),
        (OVERFLOW, [AS_IN_EAGER, replace(AS_IN_EAGER, index=1, fault="is float64[8], where eager returns float32[8]")]),
        (replace(OVERFLOW, lost=7), [AS_IN_EAGER]),
    ],
)
def test_a_launch_that_stays_wrong(measured: Measurement, errors: list[OutputError]) -> None:
    rows = (row(0, measured),)
    assert without_eager_nonfinite(rows, errors) == rows


def test_launches_of_earlier_calls_are_not_judged_by_what_the_last_one_returns() -> None:
    first, last = without_eager_nonfinite([row(0, OVERFLOW), row(1, OVERFLOW)], [AS_IN_EAGER])
    assert (first.verdict, last.verdict) == (LaunchVerdict.WRONG, LaunchVerdict.NOT_COMPARABLE)
