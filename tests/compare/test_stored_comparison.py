"""A comparison is kept in the directory of its run, and read again."""

from __future__ import annotations

import errno
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from aoti_debug.base.errors import RunDirError
from aoti_debug.base.machine.files import atomic_write
from aoti_debug.base.machine.steps import Steps
from aoti_debug.compare import stored_comparison
from aoti_debug.compare.measure.output_errors import OutputError
from aoti_debug.compare.modules import LaunchTimes, SiteTime
from aoti_debug.compare.protocol.measurement import Advance, StateChange
from aoti_debug.compare.stored_comparison import document
from aoti_debug.compare.suspects import (
    Alteration,
    InexactOperator,
    LostOperator,
    OverwritingOperator,
    UndefinedOperator,
)
from aoti_debug.runs.rundir.run_directory import RunDir
from tests import schema
from tests.views.report.subjects import comparison_of, run

SCHEMA = json.loads((schema.DOCS / "compare.schema.json").read_text())


@pytest.fixture
def compared(tmp_path: Path) -> RunDir:
    opened = run(tmp_path, 2, fault=False)
    stored_comparison.write(comparison_of(opened), opened.path)
    return opened


def test_what_is_read_is_what_was_written(compared: RunDir) -> None:
    comparison = stored_comparison.read(compared)
    assert comparison is not None
    assert comparison == comparison_of(compared)
    assert schema.problems(json.loads(json.dumps(document(comparison), allow_nan=False)), SCHEMA) == []


def test_times_are_kept(compared: RunDir) -> None:
    times = LaunchTimes(sites=(SiteTime(0, 0.25), SiteTime(3, 0.5)), call=1.0, calls=30, source="as measured")
    comparison = replace(comparison_of(compared), times=times)
    stored_comparison.write(comparison, compared.path)
    assert stored_comparison.read(compared) == comparison
    stored_comparison.write(replace(comparison, times=replace(times, call=0.0)), compared.path)
    with pytest.raises(RunDirError, match="call is no time"):
        stored_comparison.read(compared)


@pytest.mark.parametrize("relative", [0.25, math.inf])
def test_errors_of_outputs_are_kept(compared: RunDir, relative: float) -> None:
    wrong = OutputError(
        index=0, dtype="float32", elements=8, different=3, relative=relative, double=0.5, eager_double=1e-7
    )
    lost = LostOperator("tanh", "aten.tanh.default", "tanh = aten.tanh.default(x)", None)
    comparison = replace(
        comparison_of(compared),
        outputs=(wrong, OutputError(index=2, dtype="int64", elements=4, different=0, relative=0.0)),
        alteration=Alteration(relative, lost=(lost,)),
        program="/home/user/model.pt2",
        undefined=(UndefinedOperator(node="op", operator="mine.op.default", seen="overwrites x", outputs=(0, 2)),),
        inexact=(InexactOperator(node="to", operator="aten.to.dtype", seen="converts 1 of 2 elements", is_open=True),),
        overwriting=(OverwritingOperator(node="add_", operator="aten.add_.Tensor", seen="overwrites x", state="x"),),
    )
    stored_comparison.write(comparison, compared.path)
    assert stored_comparison.read(compared) == comparison
    assert schema.problems(json.loads((compared.path / stored_comparison.NAME).read_text()), SCHEMA) == []


def test_a_directory_that_cannot_be_written_is_said(compared: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    comparison = stored_comparison.read(compared)
    assert comparison is not None
    steps = Steps()
    stored_comparison.keep_in_run(comparison, steps)
    assert steps.done == []
    monkeypatch.setattr(atomic_write, "write", Mock(side_effect=OSError(errno.EROFS, "Read-only file system")))
    stored_comparison.keep_in_run(comparison, steps)
    (step,) = steps.done
    assert step.text.startswith("not written: Read-only file system; ")


def test_a_run_that_was_not_compared(tmp_path: Path) -> None:
    assert stored_comparison.read(run(tmp_path)) is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 2}, "format 2; this aoti-debug reads format 1"),
        ({"launches": 3}, "launches is 3"),
        ({"launches": [{"id": "0.0"}]}, r"launches\[0\]"),
    ],
)
def test_a_damaged_file(compared: RunDir, change: dict[str, Any], message: str) -> None:
    path = compared.path / stored_comparison.NAME
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(RunDirError, match=message) as caught:
        stored_comparison.read(compared)
    assert "aoti-debug compare" in caught.value.hint


def test_the_file_of_another_run(compared: RunDir) -> None:
    path = compared.path / stored_comparison.NAME
    path.write_text(path.read_text().replace("cpp_fused_mul_0", "cpp_fused_other_0"))
    with pytest.raises(RunDirError, match=r"launch 0\.0 cpp_fused_other_0, which this run has not"):
        stored_comparison.read(compared)


def test_a_map_of_another_size(compared: RunDir) -> None:
    path = compared.path / stored_comparison.NAME
    path.write_text(path.read_text().replace('"columns": 8', '"columns": 100000000'))
    with pytest.raises(RunDirError, match="another size than its rows and columns"):
        stored_comparison.read(compared)


@pytest.mark.parametrize(
    "change", [{"shape": [0, 8]}, {"worst": {"index": 32, "actual": "", "expected": "", "eager": ""}}]
)
def test_an_element_that_is_not_there(compared: RunDir, change: dict[str, Any]) -> None:
    path = compared.path / stored_comparison.NAME
    data = json.loads(path.read_text())
    data["launches"][1]["outputs"][0] |= change
    path.write_text(json.dumps(data))
    with pytest.raises(RunDirError, match="is no element of the output"):
        stored_comparison.read(compared)


def test_no_link_is_followed(compared: RunDir, tmp_path: Path) -> None:
    path = compared.path / stored_comparison.NAME
    path.rename(tmp_path / "elsewhere.json")
    path.symlink_to(tmp_path / "elsewhere.json")
    with pytest.raises(RunDirError, match="symbolic link"):
        stored_comparison.read(compared)


def test_states_are_kept(compared: RunDir) -> None:
    states = (
        StateChange(name="cache", call=1, launch="0.1", advance=Advance.TWICE, change=0.5, difference=0.25),
        StateChange(name="gain", call=0, launch="", advance=Advance.UNTOUCHED),
    )
    comparison = replace(comparison_of(compared), states=states)
    stored_comparison.write(comparison, compared.path)
    assert stored_comparison.read(compared) == comparison
