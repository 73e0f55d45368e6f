"""The judge of benchmarks/triage/reports.py: sentences and places of an answer are compared with the truth."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from benchmarks.triage.public_reports import all_reports
from benchmarks.triage.public_reports.answers import Answer, Place
from benchmarks.triage.public_reports.judge import Judgement, judge
from benchmarks.triage.public_reports.report import CLEAN, Example, Report, culprits


class Rows(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.tensor([0.5, 3.0]))

    def forward(self, table: Tensor, rows: Tensor) -> Tensor:
        return table[rows] * self.scale  # culprit


def example() -> Example:
    return Example(Rows(), (torch.zeros(4, 2), torch.tensor([0, 7])))


REPORT = Report(1, "a row past the end", example, "both raise", ("fault",), (r"aten\.index",), ("rows[1]",))
LINE = culprits(example().module)[0]
PLACE = Place(str(LINE.file), LINE.line, "aten.index.Tensor")
ANSWER = Answer("fault", ("rows[1] is 7",), (), (PLACE,), (Place(input="rows", element=1),), 1, 1.0)


def judged(report: Report = REPORT, **changes: Any) -> Judgement:
    return judge(report, replace(ANSWER, **changes))


def test_right_answer() -> None:
    assert judged() == Judgement(True, ("operator", "line", "element"), ("operator", "line", "element"), ())


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"places": ()}, ("element",)),
        ({"places": (), "observed": ("`return table[rows] * self.scale`",)}, ("line", "element")),
        ({"places": (), "observed": ("in cpp_fused_aten.index_0",), "origins": ()}, ()),
        (
            {"places": (), "observed": (f"at {LINE.file.name}:{LINE.line}: rows element 1",), "origins": ()},
            ("line", "element"),
        ),
    ],
)
def test_what_is_named(changes: dict[str, Any], named: tuple[str, ...]) -> None:
    assert judged(**changes).named == named
    assert judged(**changes).names_culprit == bool(named)


@pytest.mark.parametrize(
    "changes",
    [
        {"observed": ("rows[1] is 8",)},
        {"observed": ("rows[2] is 7",)},
        {"observed": ("scale[0] = 0.25 * 2",)},
        {"observed": ("arg2_1[1] is 8",)},
        {"observed": ("the index came from the model's input: table[0, 1] is 0",)},
        {"origins": (Place(input="rows", element=0),)},
        {"origins": (Place(input="arg1_1", element=1),)},
        {"origins": (Place(file=str(LINE.file), line=LINE.line - 1),)},
        {"possible": ("the index is that of rows[0]",)},
        {"observed": ("innermost Python frame: /x/aoti_debug/instrument/frontend/worker.py:3 in lower",)},
        {"kind": "clean"},
        {"code": 0},
    ],
)
def test_wrong_statement(changes: dict[str, Any]) -> None:
    assert judged(**changes).wrong


@pytest.mark.parametrize(
    "changes",
    [
        {"observed": ("scale[1] = 3 * 2", "table[3, 1] is 0.0", "arg2_1[1] is 7", "mul[1] is 9")},
        {"origins": (Place(input="arg2_1", element=1),)},
        {"origins": (Place(file=str(LINE.file), line=LINE.line),)},
        {"possible": ("the index may be that of rows[0]",)},
        {"observed": ("scale[1] is -1.25e-07, should be 0.5",)},  # after the model has overwritten it
    ],
)
def test_true_statement(changes: dict[str, Any]) -> None:
    assert judged(**changes).wrong == ()


def test_false_alarm() -> None:
    healthy = replace(REPORT, kinds=CLEAN, operators=(), elements=())
    assert judged(healthy, origins=()).wrong
    assert not judged(healthy, kind="clean", code=0, origins=()).wrong


def test_sentence_of_the_report() -> None:
    assert judged(replace(REPORT, false=(r"rows\[1\] is",))).wrong


def test_no_report_takes_the_name_of_another_one() -> None:
    titles = [report.title for module in all_reports._MODULES for report in module.REPORTS]
    assert [report.title for report in all_reports.REPORTS.values()] == titles
