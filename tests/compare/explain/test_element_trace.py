"""The operator that made a non-finite element, found by following it back."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from aoti_debug.compare.evaluate.arithmetic import Arithmetic
from aoti_debug.compare.evaluate.evaluation import Evaluation
from aoti_debug.compare.explain.element_trace import ElementTrace
from aoti_debug.compare.protocol.messages import Made, Operand
from aoti_debug.package.program_graphs import FORMAT, MODEL, Graph, Node, NodeKind, Reference, TensorType, ValueKey
from aoti_debug.triage.investigation import graph_trace

INF = {"float": "-inf"}


def node(name: str) -> dict[str, str]:
    return {"node": name}


def call(name: str, target: str, *args: Any, dtype: str = "float32") -> Node:
    return Node(name, NodeKind.CALL, target, args, types=(TensorType(dtype, "cpu", (), ()),))


def origin(values: dict[str, torch.Tensor], *calls: Node, element: int = 0) -> tuple[Made, Made | None] | None:
    """Of an element of what the last call gives."""
    inputs = tuple(Node(name, NodeKind.INPUT) for name in values)
    graph = Graph("", MODEL, (*inputs, *calls), ())
    reference = Reference(FORMAT, "2.13", (graph,))
    evaluation = Evaluation(reference, graph, Arithmetic.EAGER, "cpu")
    for name, value in values.items():
        evaluation.set(ValueKey(name), value)
    for item in calls:
        evaluation.run(item)
    assert evaluation.failures == {}
    return ElementTrace(reference, graph, evaluation, "cpu").origin(ValueKey(calls[-1].name), element)


def made(values: dict[str, torch.Tensor], *calls: Node, element: int = 0) -> Made:
    found = origin(values, *calls, element=element)
    assert found is not None
    return found[0]


def test_a_division_by_zero_is_followed_through_what_moves_elements() -> None:
    found = made(
        {"x": torch.ones(2, 3), "total": torch.tensor([[2.0], [0.0]])},
        call("div", "aten.div.Tensor", node("x"), node("total")),
        call("turned", "aten.permute.default", node("div"), [1, 0]),
        call("both", "aten.cat.default", [node("turned"), node("turned")], 1),
        call("some", "aten.slice.Tensor", node("both"), 0, 1, 3),
        element=3,  # the last column of the second row of `both`, which is the last element of that row of `turned`
    )
    assert (found.node, found.operator, found.dtype) == ("div", "aten.div.Tensor", "float32")
    assert (found.index, found.value, found.exact, found.reduces) == ((1, 1), "inf", "inf", False)
    assert found.operands == (
        Operand(name="x", index=(1, 1), value="1.0"),
        Operand(name="total", index=(1, 0), value="0.0"),
    )


def test_a_count_of_integers_is_an_operand() -> None:
    found = made(
        {"total": torch.zeros(3, 2), "count": torch.tensor([4, 0])},
        call("mean", "aten.div.Tensor", node("total"), node("count")),
        element=3,
    )
    assert found.operands == (
        Operand(name="total", index=(1, 1), value="0.0"),
        Operand(name="count", index=(1,), value="0"),
    )
    assert graph_trace.words(found) == "aten.div.Tensor: total[1, 1] = 0 / count[1] = 0, zero divided by zero"


def test_one_element_has_no_sample_variance() -> None:
    found = made({"x": torch.tensor([[2.5, 1.0]])}, call("var", "aten.var.correction", node("x"), [0]))
    assert graph_trace.words(found) == "aten.var.correction: var(x[0, 0] = 2.5), the sample variance of one element"


def test_an_overflow_comes_before_the_nan_that_it_becomes() -> None:
    found = origin(
        {"x": torch.tensor([[1.0, 300.0]], dtype=torch.float16)},
        call("energy", "aten.mul.Tensor", node("x"), node("x"), dtype="float16"),
        call("shifted", "aten.sub.Tensor", node("energy"), node("energy"), dtype="float16"),
        element=1,
    )
    assert found is not None
    first, nan = found
    assert (first.node, first.value, first.exact, first.dtype) == ("energy", "inf", "90000.0", "float16")
    assert nan is not None
    assert (nan.node, nan.value) == ("shifted", "nan")


@pytest.mark.parametrize(
    "fill",
    [
        call("fill", "aten.full.default", [1], INF),
        call("fill", "aten.mul.Tensor", node("x"), INF),
    ],
)
def test_an_infinity_that_is_written_in_the_program_is_meant(fill: Node) -> None:
    found = origin(
        {"x": torch.ones(1), "keep": torch.tensor([False])},
        fill,
        call("masked", "aten.where.self", node("keep"), node("x"), node("fill")),
        call("sub", "aten.sub.Tensor", node("masked"), node("masked")),
    )
    assert found is not None
    assert (found[0].node, found[1]) == ("sub", None)


def test_a_sum_names_the_elements_of_its_row() -> None:
    x = torch.zeros(2, 4)
    x[0, 0], x[1, 1], x[1, 2] = math.nan, math.inf, -math.inf
    found = made({"x": x}, call("sum_1", "aten.sum.dim_IntList", node("x"), [1]), element=1)
    assert (found.node, found.index, found.value, found.reduces) == ("sum_1", (1,), "nan", True)
    assert found.operands == (Operand(name="x", count=4, zeros=2, plus_infinities=1, minus_infinities=1),)


def test_a_product_of_matrices_counts_a_row_and_a_column() -> None:
    a, b = torch.ones(2, 3), torch.ones(3, 2)
    a[1, 0], b[0, 1] = math.inf, 0
    found = made({"a": a, "b": b}, call("mm", "aten.mm.default", node("a"), node("b")), element=3)
    assert [(o.name, o.count, o.zeros, o.plus_infinities) for o in found.operands] == [("a", 3, 0, 1), ("b", 3, 1, 0)]


def test_one_result_of_an_operator_with_several() -> None:
    x = torch.tensor([[1.0, 2.0], [3.0, -1.0]])
    found = made(
        {"x": x},
        call("root", "aten.sqrt.default", node("x")),
        call("halves", "aten.split.Tensor", node("root"), 1, 1),
        call("second", "_operator.getitem", node("halves"), 1),
        element=1,
    )
    assert (found.node, found.index) == ("root", (1, 1))


def test_what_came_in_was_not_made_here() -> None:
    assert origin({"x": torch.tensor([math.nan])}, call("neg", "aten.neg.default", node("x"))) is None


def test_complex_numbers_are_not_followed() -> None:
    values = {"x": torch.tensor([1 + 1j, 0j]), "y": torch.tensor([2 + 0j, 0j])}
    assert origin(values, call("div", "aten.div.Tensor", node("x"), node("y"), dtype="complex64"), element=1) is None
