"""Indices that select equal elements."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from aoti_debug.compare.evaluate.arithmetic import Arithmetic
from aoti_debug.compare.evaluate.evaluation import Evaluation
from aoti_debug.compare.measure.index_ties import equal_choices
from aoti_debug.package.reference.program import FORMAT, MODEL, Graph, Node, NodeKind, Reference, TensorType, ValueKey

ELEMENTS = [[3, 1, 1, 2], [0, 5, 5, 5]]


def equal(target: str, dtype: torch.dtype, actual: list[int]) -> list[bool]:
    """Whether the indices that a kernel selected in the rows of ELEMENTS are as good as eager's."""
    name = str(dtype).removeprefix("torch.")
    rows = (TensorType(name, "cpu", ("2", "4"), ()),)
    index = (TensorType("int64", "cpu", ("2",), ()),)
    nodes = (
        Node("x", NodeKind.INPUT, types=rows),
        Node("index", NodeKind.CALL, target, ({"node": "x"}, 1), types=index),
    )
    graph = Graph("", MODEL, nodes, ())
    eager = Evaluation(Reference(FORMAT, "2.13", (graph,)), graph, Arithmetic.EAGER, "cpu")
    eager.set(ValueKey("x"), torch.tensor(ELEMENTS, dtype=dtype))
    eager.run(nodes[1])
    found: Tensor | None = equal_choices(graph, "index", torch.tensor(actual), eager)
    assert found is not None
    return found.tolist()  # type: ignore[no-any-return]


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32])
def test_an_index_of_another_element_is_no_tie(dtype: torch.dtype) -> None:
    assert equal("aten.argmin.default", dtype, [1, 0]) == [True, True]
    assert equal("aten.argmin.default", dtype, [3, 1]) == [False, False]


def test_of_equal_integers_the_first_is_selected() -> None:
    assert equal("aten.argmin.default", torch.int32, [2, 0]) == [False, True]
    assert equal("aten.argmax.default", torch.int32, [0, 3]) == [True, False]


def test_of_floating_numbers_that_are_equal_in_eager_any_may_be_selected() -> None:
    assert equal("aten.argmin.default", torch.float32, [2, 0]) == [True, True]
