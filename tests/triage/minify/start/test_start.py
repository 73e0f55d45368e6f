"""The call of a start that fails in eager."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from aoti_debug.base.machine.files import json_data
from aoti_debug.triage.minify.start.request import END, EagerValue
from aoti_debug.triage.minify.start.start import values_of
from tests.triage.minify import parts

RELU, ADD = "aten.relu.default", "aten.add.Tensor"


def test_the_call_that_ended_the_process_was_begun_last() -> None:
    start = parts.start(RELU, ADD)
    assert start.failing == ""
    cut = replace(start, lines=start.lines[: start.lines.index(END) - 1])
    assert replace(cut, was_killed=True).failing == "node_1"
    assert cut.failing == ""  # an error of the process itself


def test_a_call_that_raised_has_no_value() -> None:
    assert parts.start(RELU, ADD, RELU, missing=("node_1", "node_2")).failing == "node_1"


def test_a_call_that_draws_random_numbers_does_not_fail() -> None:
    assert parts.start(RELU, ADD, random=("node_1",)).failing == ""


def test_a_call_whose_result_cannot_be_kept_does_not_fail() -> None:
    start = parts.start(RELU, ADD)
    assert replace(start, lines=tuple(line for line in start.lines if line.file != "node_1.pt")).failing == ""


def test_a_last_line_that_is_cut_is_none(tmp_path: Path) -> None:
    line = json_data.to_text(EagerValue("relu"), indent=None)
    (tmp_path / "values").write_text(f"{line}\n{line[:9]}")
    assert values_of(tmp_path / "values") == (EagerValue("relu"),)
