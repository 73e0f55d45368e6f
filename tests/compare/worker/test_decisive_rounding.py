"""The operator whose rounding in eager makes a difference."""

from __future__ import annotations

import torch

from aoti_debug.compare.evaluate.arithmetic import Arithmetic
from aoti_debug.compare.evaluate.evaluation import Adjustment, Evaluation
from aoti_debug.compare.protocol.request import KnownValue, Recorded, Region
from aoti_debug.compare.worker.decisive_rounding import Rounding, decisive_rounding
from aoti_debug.package.reference.program import FORMAT, MODEL, Graph, Node, NodeKind, Reference, TensorType, ValueKey

X = torch.linspace(0.1, 1.0, 12)


def typed(dtype: str) -> tuple[TensorType, ...]:
    return (TensorType(dtype, "cpu", ("12",), ()),)


def cast(name: str, read: str, dtype: str) -> Node:
    target, number = "prims.convert_element_type.default", {"dtype": dtype}
    return Node(name, NodeKind.CALL, target, ({"node": read}, number), types=typed(dtype))


def found(*middle: Node) -> Rounding | None:
    """Of x in float16, with more nodes, back in float32 as `back`."""
    nodes = (Node("x", NodeKind.INPUT, types=typed("float32")), cast("half", "x", "float16"), *middle)
    nodes = (*nodes, cast("back", nodes[-1].name, "float32"))
    graph = Graph("", MODEL, nodes, ())
    reference = Reference(FORMAT, "2.13", (graph,))
    names = tuple(node.name for node in nodes[1:])
    region = Region("0.0", ("0.0",), "", MODEL, names, (), (KnownValue(ValueKey("back"), Recorded("0.0", "b", "")),))

    def back(arithmetic: Arithmetic, adjust: Adjustment | None = None) -> torch.Tensor:
        evaluation = Evaluation(reference, graph, arithmetic, "cpu", adjust=adjust)
        evaluation.set(ValueKey("x"), X)
        for name in names:
            evaluation.run(graph.by_name[name])
        value: torch.Tensor = evaluation.value(ValueKey("back"))
        return value

    exact, eager = back(Arithmetic.DOUBLE), back(Arithmetic.EAGER)
    return decisive_rounding(graph, region, exact, eager, lambda adjust: back(Arithmetic.DOUBLE, adjust))


def plus(number: float) -> Node:
    return Node("add", NodeKind.CALL, "aten.add.Tensor", ({"node": "half"}, number), types=typed("float16"))


def test_a_cast_alone() -> None:
    rounding = found()
    assert rounding is not None
    assert rounding.node == "half"
    assert rounding.share > 0.999


def test_a_sum_that_is_rounded_more_than_the_cast_before_it() -> None:
    rounding = found(plus(2048.0))
    assert rounding is not None
    assert rounding.node == "add"
    assert rounding.share > 0.99


def test_roundings_that_make_about_as_much_of_it() -> None:
    nodes = [plus(1.0)]
    for number in range(8):
        name, read = f"mul_{number}", nodes[-1].name
        nodes.append(Node(name, NodeKind.CALL, "aten.mul.Tensor", ({"node": read}, 1.03), types=typed("float16")))
    assert found(*nodes) is None
