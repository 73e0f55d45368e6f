"""Which operator, computed wrongly, explains what a launch wrote."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from aoti_debug.compare.evaluate.arithmetic import Arithmetic
from aoti_debug.compare.evaluate.evaluation import Evaluation
from aoti_debug.compare.explain.wrong_operators import WrittenOutput, WrongOperators
from aoti_debug.compare.protocol.measurement import Explanation
from aoti_debug.package.program_graphs import FORMAT, MODEL, Graph, Node, NodeKind, Reference, TensorType, ValueKey

FLOATS = (TensorType("float32", "cpu", ("8", "32"), ("32", "1")),)


def node(name: str) -> dict[str, str]:
    return {"node": name}


def call(name: str, target: str, *args: Any) -> Node:
    return Node(name, NodeKind.CALL, target, args, types=FLOATS)


GRAPH = Graph(
    "",
    MODEL,
    (
        Node("x", NodeKind.INPUT, types=FLOATS),
        Node("y", NodeKind.INPUT, types=FLOATS),
        call("sub", "aten.sub.Tensor", node("x"), node("y")),
        call("tanh", "aten.tanh.default", node("sub")),
        call("sum", "aten.sum.dim_IntList", node("tanh"), [1], True),
        call("mul", "aten.mul.Tensor", node("tanh"), node("sum")),
        call("add", "aten.add.Tensor", node("mul"), 0.5),
    ),
    (),
)
NODES = tuple(n.name for n in GRAPH.nodes if n.kind is NodeKind.CALL)
GENERATOR = torch.Generator().manual_seed(0)
X, Y = (torch.randn(8, 32, generator=GENERATOR) for _ in range(2))


def empty() -> Evaluation:
    return Evaluation(Reference(FORMAT, "2.13", (GRAPH,)), GRAPH, Arithmetic.KERNEL, "cpu")


def explained(actual: torch.Tensor) -> tuple[Explanation, ...]:
    right = empty()
    right.set(ValueKey("x"), X)
    right.set(ValueKey("y"), Y)
    for name in NODES:
        right.run(GRAPH.by_name[name])
    output = WrittenOutput(actual, lambda evaluation: evaluation.value(ValueKey("add")))
    return WrongOperators(GRAPH, right, NODES, [output], empty).explanations()


def result(difference: torch.Tensor, count: int = 32, factor: float = 1.0) -> torch.Tensor:
    moved = difference.tanh() * factor
    return moved * moved[:, :count].sum(1, keepdim=True) + 0.5


@pytest.mark.parametrize(
    ("actual", "name", "how"),
    [
        (result(Y - X + 0.25 * X), "", ""),  # nothing explains it
        (result(X + Y), "sub", "as add"),
        (result(X), "sub", "without its second operand"),
        (result(X - Y, count=31), "sum", "without the last 1 of dimension 1"),
        (result(X - Y) - 0.125, "add", "plus -0.12"),
        ((X - Y) * (X - Y).sum(1, keepdim=True) + 0.5, "tanh", "left out"),
        (result(X - Y, factor=1.01), "tanh", "times 1.01"),
    ],
)
def test_the_operator_that_explains_it(actual: torch.Tensor, name: str, how: str) -> None:
    found = explained(actual)
    best = {item.node: item.how for item in found}
    assert best.get(name, "").startswith(how) if name else not found


def test_what_is_right_is_not_compared_with_variants_that_fail() -> None:
    assert explained(torch.full((8, 32), float("nan"))) == ()


def test_an_operator_that_is_wrong_in_the_tail_of_a_loop() -> None:
    x, y = X[:, :20], Y[:, :20]
    right = empty()
    right.set(ValueKey("x"), x)
    right.set(ValueKey("y"), y)
    for name in NODES:
        right.run(GRAPH.by_name[name])
    difference = torch.cat([(x - y)[:, :16], (x + y)[:, 16:]], 1)
    output = WrittenOutput(result(difference), lambda evaluation: evaluation.value(ValueKey("add")))
    (best, *_) = WrongOperators(GRAPH, right, NODES, [output], empty).explanations()
    assert (best.node, best.how) == ("sub", "as add behind whole vectors")


def evaluated(graph: Graph, nodes: tuple[str, ...], x: torch.Tensor) -> tuple[Evaluation, Callable[[], Evaluation]]:
    def copy() -> Evaluation:
        return Evaluation(Reference(FORMAT, "2.13", (graph,)), graph, Arithmetic.KERNEL, "cpu")

    right = copy()
    right.set(ValueKey("x"), x)
    for name in nodes:
        right.run(graph.by_name[name])
    return right, copy


NORM = Graph(
    "",
    MODEL,
    (
        Node("x", NodeKind.INPUT, types=FLOATS),
        call("erf", "aten.erf.default", node("x")),
        call("sum", "aten.sum.dim_IntList", node("erf"), [1], True),
        call("mul", "aten.mul.Tensor", node("erf"), node("sum")),
    ),
    (),
)
NORM_NODES = ("erf", "sum", "mul")


@pytest.mark.parametrize(
    ("actual", "how"),
    [
        (X.tanh() * X.tanh().sum(1, keepdim=True), "as tanh"),
        (X.erf() * X.tanh().sum(1, keepdim=True), "as tanh where sum reads it"),
        (X.tanh() * X.erf().sum(1, keepdim=True), "as tanh, but not where sum reads it"),
    ],
)
def test_an_operator_that_a_kernel_computes_in_two_loops(actual: torch.Tensor, how: str) -> None:
    right, copy = evaluated(NORM, NORM_NODES, X)
    output = WrittenOutput(actual, lambda evaluation: evaluation.value(ValueKey("mul")))
    (best, *_) = WrongOperators(NORM, right, NORM_NODES, [output], copy).explanations()
    assert (best.node, best.how) == ("erf", how)


def test_what_is_known_to_be_right_stays() -> None:
    right, copy = evaluated(NORM, NORM_NODES, X)
    output = WrittenOutput(
        X.tanh() * X.erf().sum(1, keepdim=True), lambda evaluation: evaluation.value(ValueKey("mul"))
    )
    (best, *_) = WrongOperators(NORM, right, NORM_NODES, [output], copy, frozenset({"sum"})).explanations()
    assert (best.node, best.how) == ("erf", "as tanh")


BYTES, LONGS = (TensorType("uint8", "cpu", ("2",), ("1",)),), (TensorType("int64", "cpu", ("2",), ("1",)),)
NEGATED = Graph(
    "",
    MODEL,
    (
        Node("x", NodeKind.INPUT, types=BYTES),
        Node("neg", NodeKind.CALL, "aten.neg.default", (node("x"),), types=BYTES),
        Node("sum", NodeKind.CALL, "aten.sum.default", (node("neg"),), types=LONGS),
    ),
    (),
)


def test_a_narrow_integer_that_a_kernel_keeps_in_a_wide_one() -> None:
    right, copy = evaluated(NEGATED, ("neg", "sum"), torch.tensor([200, 200], dtype=torch.uint8))
    output = WrittenOutput(torch.tensor(-400), lambda evaluation: evaluation.value(ValueKey("sum")))
    (best, *_) = WrongOperators(NEGATED, right, ("neg", "sum"), [output], copy).explanations()
    assert (best.node, best.how) == ("neg", "without wrapping around")


def test_a_wrong_index_beside_a_number_that_is_right() -> None:
    """Nothing is left of no error: what is right explains no index."""
    graph = Graph(
        "", MODEL, (*NORM.nodes, Node("index", NodeKind.CALL, "aten.argmax.default", (node("mul"),), types=LONGS)), ()
    )
    right, copy = evaluated(graph, (*NORM_NODES, "index"), X)
    number = WrittenOutput(right.value(ValueKey("mul")).clone(), lambda evaluation: evaluation.value(ValueKey("mul")))
    wrong = WrittenOutput(torch.tensor(-1), lambda evaluation: evaluation.value(ValueKey("index")))
    assert WrongOperators(graph, right, (*NORM_NODES, "index"), [number, wrong], copy).explanations() == ()


def test_an_error_that_is_smaller_than_rounding_has_no_explanation() -> None:
    x = torch.cat([torch.full((8, 16), 3e-9), torch.full((8, 16), 2.0)], 1)
    right, copy = evaluated(NORM, NORM_NODES, x)
    value = right.value(ValueKey("mul"))
    actual = torch.where(value < 1e-6, value * 0.5, value)
    output = WrittenOutput(actual, lambda evaluation: evaluation.value(ValueKey("mul")))
    assert WrongOperators(NORM, right, NORM_NODES, [output], copy).explanations() == ()
