from __future__ import annotations

from typing import Any

from aoti_debug.compare.diff.pair_launches import Expressions
from aoti_debug.package.program_graphs import MODEL, Graph, Node, NodeKind, ValueKey


def graph(*nodes: Node) -> Graph:
    return Graph("", MODEL, nodes, ())


def call(name: str, target: str, *args: Any, mutates: tuple[str, ...] = (), **kwargs: Any) -> Node:
    return Node(name, NodeKind.CALL, target, args, kwargs, mutates=mutates)


def node(name: str) -> dict[str, str]:
    return {"node": name}


X, W = Node("arg0_1", NodeKind.INPUT), Node("weight", NodeKind.WEIGHT, "linear.weight")


def test_the_same_expression_under_other_names() -> None:
    first = Expressions(graph(X, W, call("mm", "aten.mm.default", node("arg0_1"), node("weight"))))
    other = (Node("x", NodeKind.INPUT), Node("w_1", NodeKind.WEIGHT, "linear.weight"))
    second = Expressions(graph(*other, call("mm_7", "aten.mm.default", node("x"), node("w_1"))))
    assert first.of(ValueKey("mm")) == second.of(ValueKey("mm_7"))
    assert first.of(ValueKey("arg0_1")) == second.of(ValueKey("x"))


def test_another_operator_number_or_operand_is_another_expression() -> None:
    nodes = (
        call("a", "aten.add.Tensor", node("arg0_1"), 1),
        call("b", "aten.add.Tensor", node("arg0_1"), 2),
        call("c", "aten.sub.Tensor", node("arg0_1"), 1),
        call("d", "aten.add.Tensor", node("a"), 1),
        call("e", "aten.add.Tensor", node("arg0_1"), 1, alpha=2),
    )
    expressions = Expressions(graph(X, *nodes))
    assert len({expressions.of(ValueKey(name)) for name in "abcde"}) == 5


def test_devices_do_not_count() -> None:
    def full(device: str) -> str:
        created = call("full", "aten.full.default", [4], 0, dtype={"dtype": "float32"}, device={"device": device})
        return Expressions(graph(created)).of(ValueKey("full"))

    assert full("cpu") == full("cuda:0")


def test_a_value_that_is_overwritten_is_another_one_afterwards() -> None:
    nodes = (
        call("sin", "aten.sin.default", node("arg0_1")),
        call("copy_", "aten.copy_.default", node("arg0_1"), node("sin"), mutates=("arg0_1",)),
        call("cos", "aten.cos.default", node("arg0_1")),
    )
    expressions = Expressions(graph(X, *nodes))
    plain = Expressions(graph(X, call("cos", "aten.cos.default", node("arg0_1"))))
    assert expressions.of(ValueKey("arg0_1", "copy_")) != expressions.of(ValueKey("arg0_1"))
    assert expressions.of(ValueKey("cos")) != plain.of(ValueKey("cos"))


def test_equal_calls_have_names_of_their_own() -> None:
    rand = [call(name, "aten.rand.default", [8]) for name in "ab"]
    expressions = Expressions(graph(*rand))
    again = Expressions(graph(*(call(name, "aten.rand.default", [8]) for name in "xy")))
    assert expressions.of(ValueKey("a")) != expressions.of(ValueKey("b"))
    assert expressions.of(ValueKey("b")) == again.of(ValueKey("y"))


def test_two_results_of_one_call_that_overwrites_both() -> None:
    nodes = (
        call("a", "aten.empty.memory_format", [8]),
        call("b", "aten.empty.memory_format", [8]),
        call("fill", "mylib.fill.default", node("a"), node("b"), mutates=("a", "b")),
    )
    expressions = Expressions(graph(*nodes))
    assert expressions.of(ValueKey("a", "fill")) != expressions.of(ValueKey("b", "fill"))
