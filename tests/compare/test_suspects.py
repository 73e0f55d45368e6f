"""The operators that a wrong launch may have computed wrongly."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from aoti_debug.compare import text
from aoti_debug.compare.comparison import Comparison
from aoti_debug.compare.measure.output_errors import OutputError
from aoti_debug.compare.protocol.measurement import (
    LARGEST,
    AlteredOutput,
    AlteredProgram,
    Element,
    Measurement,
    RegionResult,
)
from aoti_debug.compare.protocol.request import KnownValue, Recorded, Region
from aoti_debug.compare.suspects import Alteration, LostOperator, alteration_of, changed_text, suspects_of
from aoti_debug.package.manifest import ModelLine
from aoti_debug.package.program_graphs import EXPORTED, FORMAT, MODEL, Graph, Node, NodeKind, Reference, ValueKey
from tests.views.report.subjects import comparison_of, run

LINE = ModelLine("model.py", 3, "forward", "y = norm(x)")


def call(name: str, target: str, *inputs: str | int) -> Node:
    args = tuple({"node": item} if isinstance(item, str) else item for item in inputs)
    return Node(name, NodeKind.CALL, target, args, line=0)


NODES = (
    Node("x", NodeKind.INPUT),
    call("mul", "aten.mul.Tensor", "x", 2),
    call("var_mean", "aten.var_mean.correction", "mul"),
    call("var", "_operator.getitem", "var_mean", 0),
    call("mean", "_operator.getitem", "var_mean", 1),
    call("sub", "aten.sub.Tensor", "mul", "mean"),
    call("exp", "aten.exp.default", "x"),
)
REFERENCE = Reference(FORMAT, "2.13", (Graph("", MODEL, NODES, ()),), (LINE,))


def blamed(wrong: set[str], outputs: tuple[str, ...], indices: tuple[str, ...] = ()) -> list[str]:
    known = tuple(KnownValue(ValueKey(name), Recorded("0.0", name, "")) for name in outputs)
    region = Region(
        launch="0.0",
        launches=("0.0",),
        graph="",
        function=MODEL,
        nodes=tuple(n.name for n in NODES[1:]),
        inputs=(),
        outputs=known,
    )
    measured = tuple(
        Measurement(
            argument=name,
            value=name,
            operator="",
            dtype="int64" if name in indices else "float32",
            shape=(1,),
            count=1,
            wrong=int(name in wrong),
            equals_eager=name not in wrong,
        )
        for name in outputs
    )
    found = suspects_of(REFERENCE, region, RegionResult(launch="0.0", outputs=measured))
    assert all(suspect.line == LINE for suspect in found)
    return [suspect.node for suspect in found]


def test_operators_of_wrong_outputs_only_come_first() -> None:
    assert blamed({"sub"}, ("sub", "exp")) == ["sub", "var_mean", "mul"]
    assert blamed({"sub"}, ("sub", "mul")) == ["sub", "var_mean", "mul"]
    assert blamed({"sub"}, ("sub", "mean")) == ["sub", "var_mean", "mul"]
    assert blamed({"exp"}, ("sub", "exp")) == ["exp"]


def test_an_index_may_be_right_where_the_numbers_are_not() -> None:
    assert blamed({"mul"}, ("mul", "sub")) == ["mul"]
    assert blamed({"sub"}, ("sub", "var_mean"), indices=("var_mean",)) == ["sub", "var_mean", "mul"]
    assert blamed({"mul", "sub"}, ("mul", "sub", "exp"), indices=("exp",)) == ["mul", "sub", "var_mean"]


def test_one_result_of_an_operator_may_be_wrong_alone() -> None:
    assert blamed({"var"}, ("var", "mean", "mul")) == ["var_mean", "mul"]


def test_a_part_of_a_concatenation_may_lie_in_the_wrong_place() -> None:
    joined = Node("joined", NodeKind.CALL, "aten.cat.default", ([{"node": "mul"}, {"node": "exp"}],), line=0)
    graph = Graph("", MODEL, (*NODES, joined), ())
    known = (KnownValue(ValueKey("exp"), Recorded("0.0", "exp", "")),)
    region = Region(launch="0.0", launches=("0.0",), graph="", function=MODEL, nodes=("exp",), inputs=(), outputs=known)
    measured = Measurement(argument="exp", value="exp", operator="", dtype="float32", shape=(1,), count=1, wrong=1)
    found = suspects_of(Reference(FORMAT, "2.13", (graph,)), region, RegionResult(launch="0.0", outputs=(measured,)))
    assert [suspect.node for suspect in found] == ["exp", "joined"]


def test_an_operator_in_the_body_of_a_loop_is_shown_with_the_iteration() -> None:
    body = Graph("while_loop_body_graph_0", MODEL, NODES, ())
    known = (KnownValue(ValueKey("exp"), Recorded("0.4", "exp", "")),)
    region = Region(
        launch="0.4", launches=("0.4",), graph=body.name, function=MODEL, nodes=("exp",), inputs=(), outputs=known
    )
    measured = Measurement(argument="exp", value="exp", operator="", dtype="float32", shape=(1,), count=1, wrong=1)
    (found,) = suspects_of(
        Reference(FORMAT, "2.13", (body,)), region, RegionResult(launch="0.4", outputs=(measured,)), (2,)
    )
    assert found.place == "in iteration 2 of while_loop_body_graph_0: exp = aten.exp.default(x)"


LOST_LINE = ModelLine("/home/user/model.py", 8, "forward", "y = tanh(x)")
LOST = LostOperator("tanh", "aten.tanh.default", "tanh = aten.tanh.default(x)", LOST_LINE)
WRONG = OutputError(index=1, dtype="float32", elements=8, different=3, relative=0.25, double=0.25, eager_double=1e-7)


def compared(folder: Path, alteration: Alteration | None) -> Comparison:
    right = comparison_of(run(folder, 2, fault=False))
    return replace(right, rows=(), outputs=(WRONG,), alteration=alteration)


def lines(comparison: Comparison) -> str:
    return " ".join(text.output_lines(comparison, 500))


def test_a_difference_that_is_not_finite_is_infinite() -> None:
    reference = Reference(FORMAT, "2.13.0", (), ())
    assert alteration_of(AlteredProgram(relative=LARGEST, explained=1.0), reference).relative == math.inf


def test_the_operator_and_the_model_line_of_a_lost_value() -> None:
    node = Node("tanh", NodeKind.CALL, "aten.tanh.default", ({"node": "x"},), line=0)
    exported = Graph("", EXPORTED, (node,), ())
    reference = Reference(FORMAT, "2.13.0", (), (LOST_LINE,), exported=(exported,))
    lost = AlteredProgram(relative=0.5, explained=1.0, lost=("tanh",))
    assert alteration_of(lost, reference) == Alteration(0.5, lost=(LOST,))
    signs = alteration_of(replace(lost, lost_signs=("tanh",)), reference)
    assert signs == Alteration(0.5, lost=(replace(LOST, only_signs=True),))
    order = alteration_of(replace(lost, lost_order=("tanh",)), reference)
    assert order == Alteration(0.5, lost=(replace(LOST, only_order=True),))
    kept = AlteredProgram(relative=0.5, explained=1.0, kept=("tanh",))
    assert alteration_of(kept, reference) == Alteration(0.5, kept=(LOST,))


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
    value = "tanh = aten.tanh.default(x) at /home/user/model.py:8"
    assert f"it has no value like that of {value}: the change may begin there; aoti-debug bisect" in said
    assert "; aoti-debug bisect PROGRAM.pt2 --settings looks for the pass" in said
    known = replace(compared(tmp_path / "known", Alteration(0.5, lost=(LOST,))), program=str(Path.cwd() / "a b.pt2"))
    assert "; aoti-debug bisect 'a b.pt2' --settings looks for the pass" in lines(known)


def test_a_value_of_which_only_the_signs_of_zeros_are_others(tmp_path: Path) -> None:
    said = lines(compared(tmp_path, Alteration(0.5, lost=(replace(LOST, only_signs=True),))))
    value = "tanh = aten.tanh.default(x) at /home/user/model.py:8"
    assert f"it has the numbers of {value} only with other signs of zeros: the change may begin there" in said
    assert "no value like" not in said


def test_what_rounding_may_make_is_not_called_the_same(tmp_path: Path) -> None:
    said = lines(compared(tmp_path, Alteration(0.004, least=LARGEST, is_rounded=True)))
    assert "has a relative error of 0.004, in float64 but for what rounds there, too: that may make as much" in said
    assert "computes what the program says" not in said


def test_a_value_of_which_only_the_order_is_another(tmp_path: Path) -> None:
    said = lines(compared(tmp_path, Alteration(0.5, lost=(replace(LOST, only_order=True),))))
    value = "tanh = aten.tanh.default(x) at /home/user/model.py:8"
    assert f"it has the numbers of {value} only in another order: the change may begin there" in said


def test_a_value_that_is_computed_and_not_returned_is_named(tmp_path: Path) -> None:
    said = lines(compared(tmp_path, Alteration(0.5, kept=(LOST,))))
    assert (
        "it has the numbers of tanh = aten.tanh.default(x) at /home/user/model.py:8, and returns others for it" in said
    )


def test_without_a_proof_it_is_a_note(tmp_path: Path) -> None:
    said = lines(compared(tmp_path, Alteration(1e-12)))
    assert "WRONG" not in said
    assert said.startswith("note: output 1 has a relative error of 0.25")
    assert "computes what the program says, in float64" in said
    assert lines(compared(tmp_path / "unknown", None)).endswith("and no launch that was compared is wrong")
