"""The operators that a wrong launch may have computed wrongly."""

from __future__ import annotations

from aoti_debug.compare.protocol.measurement import Measurement, RegionResult
from aoti_debug.compare.protocol.request import KnownValue, Recorded, Region
from aoti_debug.compare.suspects import suspects_of
from aoti_debug.package.manifest import ModelLine
from aoti_debug.package.reference.program import FORMAT, MODEL, Graph, Node, NodeKind, Reference, ValueKey

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
