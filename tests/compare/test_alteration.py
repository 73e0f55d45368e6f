"""What passes have made of a program, in words and in a finding."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from aoti_debug.compare import text
from aoti_debug.compare.alteration import Alteration, LostOperator, alteration_of, changed_text
from aoti_debug.compare.comparison import Comparison
from aoti_debug.compare.measure.output_errors import OutputError
from aoti_debug.compare.protocol.measurement import AlteredOutput, AlteredProgram, Element
from aoti_debug.package.manifest import ModelLine
from aoti_debug.package.reference.program import EXPORTED, FORMAT, Graph, Node, NodeKind, Reference
from tests.views.report.subjects import comparison_of, run

LINE = ModelLine("/home/user/model.py", 8, "forward", "y = tanh(x)")
LOST = LostOperator("tanh", "aten.tanh.default", "tanh = aten.tanh.default(x)", LINE)
WRONG = OutputError(index=1, dtype="float32", elements=8, different=3, relative=0.25, double=0.25, eager_double=1e-7)


def compared(folder: Path, alteration: Alteration | None) -> Comparison:
    right = comparison_of(run(folder, 2, fault=False))
    return replace(right, rows=(), outputs=(WRONG,), alteration=alteration)


def lines(comparison: Comparison) -> str:
    return " ".join(text.output_lines(comparison, 500))


def test_the_operator_and_the_model_line_of_a_lost_value() -> None:
    node = Node("tanh", NodeKind.CALL, "aten.tanh.default", ({"node": "x"},), line=0)
    exported = Graph("", EXPORTED, (node,), ())
    reference = Reference(FORMAT, "2.13.0", (), (LINE,), exported=(exported,))
    assert alteration_of(AlteredProgram(relative=0.5, explained=1.0, lost=("tanh",)), reference) == Alteration(
        0.5, lost=(LOST,)
    )


@pytest.mark.parametrize(
    ("alteration", "proved"),
    [
        (Alteration(0.5), True),
        (Alteration(1e-9), False),
        (Alteration(-1.0), False),
        (Alteration(math.inf), True),
        (Alteration(1e200, explained=1e-9), False),  # float64 rounds where the output should be 0
        (Alteration(0.01, least=0.1, is_rounded=True), False),
        (Alteration(0.5, least=0.1, is_rounded=True), True),
    ],
)
def test_a_proof_needs_more_than_rounding(tmp_path: Path, alteration: Alteration, proved: bool) -> None:
    comparison = compared(tmp_path, alteration)
    assert comparison.is_program_altered is proved
    assert comparison.is_clean is not proved


def test_the_wrong_elements_of_an_output() -> None:
    worst = Element(5, "1.5", "1.25", "1.25")
    assert changed_text(
        AlteredOutput(index=1, elements=1, relative=0.2, explained=1.0, least=1e-6, shape=(2, 4), worst=worst)
    ) == ("has 1 wrong element among 8: [1, 1] is 1.5, should be 1.25")
    assert (
        changed_text(AlteredOutput(index=1, elements=0, relative=0.0, explained=0.0, least=1e-6, shape=(2, 4)))
        == "has 0 wrong elements among 8"
    )


def test_a_proved_alteration_is_wrong(tmp_path: Path) -> None:
    said = lines(compared(tmp_path, Alteration(0.5, lost=(LOST,))))
    assert "WRONG: output 1 has a relative error of 0.25" in said
    assert "a graph pass or a decomposition of Inductor changed the program" in said
    assert "has a relative error of 0.5 in float64" in said
    assert "it has lost the value of tanh = aten.tanh.default(x) at /home/user/model.py:8" in said
    assert "; aoti-debug bisect PROGRAM.pt2 --settings looks for the pass" in said
    known = replace(compared(tmp_path / "known", Alteration(0.5, lost=(LOST,))), program=str(Path.cwd() / "a b.pt2"))
    assert "; aoti-debug bisect 'a b.pt2' --settings looks for the pass" in lines(known)


def test_without_a_proof_it_is_a_note(tmp_path: Path) -> None:
    said = lines(compared(tmp_path, Alteration(1e-12)))
    assert "WRONG" not in said
    assert said.startswith("note: output 1 has a relative error of 0.25")
    assert "computes what the program says, in float64" in said
    assert lines(compared(tmp_path / "unknown", None)).endswith("and no launch that was compared is wrong")
