"""Choices among equal elements: by operators that select, in indices, and in ranges of outputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from aoti_debug.compare.evaluate.arithmetic import Arithmetic
from aoti_debug.compare.evaluate.evaluation import Evaluation
from aoti_debug.compare.measure.choices import Choice, choice_range, equal_choices, may_choose, other_choice
from aoti_debug.compare.measure.evaluated import Evaluated
from aoti_debug.package.program_graphs import FORMAT, MODEL, Graph, Node, NodeKind, Reference, TensorType, ValueKey


def test_only_elements_that_depend_on_a_choice_are_judged_by_the_range() -> None:
    found = choice_range([torch.tensor([1.0, 2.0, 5.0]), torch.tensor([1.0, 4.0, 3.0])])
    assert found is not None
    double = torch.tensor([1.0, 2.0, 5.0], dtype=torch.float64)
    actual = torch.tensor([9.0, 3.5, 99.0])
    output = Evaluated(
        actual=actual, eager=torch.tensor([1.0, 4.0, 5.0]), kernel=double, double=double, perturbed=(double + 7,)
    )
    judged = found.applied(output)
    assert judged.actual.tolist() == [9.0, 2.0, 99.0]
    assert judged.eager.tolist() == [1.0, 2.0, 5.0]
    assert judged.perturbed[0].tolist() == [8.0, 2.0, 5.0]


def test_where_nothing_depends_on_a_choice() -> None:
    nan = torch.tensor([float("nan"), 1.0])
    assert choice_range([nan, nan.clone()]) is None
    same = torch.tensor([True, False])
    assert choice_range([same, same.clone()]) is None
    assert choice_range([same, torch.tensor([True, True])]) is not None
    assert choice_range([torch.tensor([1j]), torch.tensor([2j])]) is None


NAN = float("nan")
ROWS = torch.tensor([[1.0, 5.0, 5.0, 0.0, 5.0], [3.0, NAN, 1.0, NAN, 2.0]])
COARSE = (torch.rand(6, 40, generator=torch.Generator().manual_seed(0)) * 4).round()


def node(target: str, *args: Any, **kwargs: Any) -> Node:
    return Node("chosen", NodeKind.CALL, target, ({"node": "x"}, *args), kwargs)


CHOICES: dict[str, tuple[Node, Callable[[torch.Tensor], Any]]] = {
    "sort": (node("aten.sort.default"), lambda x: x.sort(stable=True)),
    "sort of columns, descending": (node("aten.sort.default", 0, True), lambda x: x.sort(0, descending=True)),
    "sort that is not stable": (node("aten.sort.stable", dim=1), lambda x: x.sort(stable=True, dim=1)),
    "topk": (node("aten.topk.default", 3), lambda x: x.topk(3)),
    "topk of columns": (node("aten.topk.default", 2, 0), lambda x: x.topk(2, 0)),
    "max": (node("aten.max.dim", 1), lambda x: x.max(1)),
    "min, kept": (node("aten.min.dim", 0, True), lambda x: x.min(0, True)),
    "median": (node("aten.median.dim", 1), lambda x: x.median(1)),
    "kthvalue": (node("aten.kthvalue.default", 4, 1), lambda x: x.kthvalue(4, 1)),
    "mode": (node("aten.mode.default"), lambda x: x.mode()),
}


@pytest.mark.parametrize("choice", [Choice.NEXT, Choice.PREVIOUS])
@pytest.mark.parametrize("name", CHOICES)
def test_every_index_becomes_that_of_an_equal_element(name: str, choice: Choice) -> None:
    chosen, function = CHOICES[name]
    result = function(COARSE)
    values, index = other_choice(chosen, [COARSE], result, choice)
    dim = {"sort of columns, descending": 0, "topk of columns": 0, "min, kept": 0}.get(name, 1)
    kept = index if index.dim() == COARSE.dim() else index.unsqueeze(dim)
    assert torch.equal(COARSE.gather(dim, kept).reshape(values.shape), values)
    counts = (COARSE.movedim(dim, 0).unsqueeze(1) == COARSE.movedim(dim, 0).unsqueeze(0)).sum(1).movedim(0, dim)
    alone = counts.gather(dim, kept).reshape(index.shape) == 1
    assert torch.equal(index == result[1], alone)
    assert kept.sort(dim).values.diff(dim=dim).ne(0).all()  # none twice


ARGMAX = node("aten.argmax.default", 1)


def chosen(index: list[int], choice: Choice) -> list[int]:
    found: list[int] = other_choice(ARGMAX, [ROWS], torch.tensor(index), choice).tolist()
    return found


def test_choices_and_nan_equals_nan() -> None:
    assert chosen([1, 1], Choice.NEXT) == [2, 3]
    assert chosen([4, 3], Choice.NEXT) == [1, 1]
    assert chosen([1, 1], Choice.PREVIOUS) == [4, 3]
    assert chosen([2, 3], Choice.FIRST) == [1, 1]
    assert chosen([2, 1], Choice.LAST) == [4, 3]
    assert chosen([3, 0], Choice.LAST) == [3, 0]
    whole = other_choice(node("aten.argmax.default"), [torch.tensor([[1, 7], [7, 0]])], torch.tensor(1), Choice.NEXT)
    assert whole.item() == 2


def test_elements_that_nearly_equal() -> None:
    near = torch.tensor([[1.0, 1.0 + 1e-7, 2.0]])
    assert other_choice(ARGMAX, [near], torch.tensor([0]), Choice.NEXT, 1e-6).tolist() == [1]
    assert other_choice(ARGMAX, [near], torch.tensor([0]), Choice.NEXT).tolist() == [0]


def test_others_are_left_alone() -> None:
    result = ROWS.sort(stable=True)
    assert other_choice(node("aten.sort.stable", stable=True), [ROWS], result, Choice.NEXT) is result
    assert other_choice(node("aten.neg.default"), [ROWS], ROWS, Choice.NEXT) is ROWS
    assert not may_choose(node("aten.sort.stable", True, 0))
    number = torch.tensor(3.0)
    assert other_choice(node("aten.argmax.default"), [number], torch.tensor(0), Choice.LAST).item() == 0


ELEMENTS = [[3, 1, 1, 2], [0, 5, 5, 5]]


def equal(target: str, dtype: torch.dtype, actual: list[int], computed: str = "aten.neg.default") -> list[bool]:
    """Whether the indices that a kernel selected among the negatives of ELEMENTS' rows are as good as eager's.

    Args:
        computed: the operator that computes the elements in the kernel.
    """
    name = str(dtype).removeprefix("torch.")
    rows = (TensorType(name, "cpu", ("2", "4"), ()),)
    index = (TensorType("int64", "cpu", ("2",), ()),)
    nodes = (
        Node("x", NodeKind.INPUT, types=rows),
        Node("elements", NodeKind.CALL, computed, ({"node": "x"},), types=rows),
        Node("index", NodeKind.CALL, target, ({"node": "elements"}, 1), types=index),
    )
    graph = Graph("", MODEL, nodes, ())
    eager = Evaluation(Reference(FORMAT, "2.13", (graph,)), graph, Arithmetic.EAGER, "cpu")
    eager.set(ValueKey("x"), torch.tensor(ELEMENTS, dtype=dtype))
    eager.run(nodes[1])
    eager.run(nodes[2])
    found: Tensor | None = equal_choices(graph, "index", torch.tensor(actual), eager, ["elements", "index"])
    assert found is not None
    return found.tolist()  # type: ignore[no-any-return]


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32])
def test_an_index_of_another_element_is_no_tie(dtype: torch.dtype) -> None:
    assert equal("aten.argmax.default", dtype, [1, 0]) == [True, True]
    assert equal("aten.argmax.default", dtype, [3, 1]) == [False, False]


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32])
def test_of_elements_that_nothing_rounds_the_first_is_selected(dtype: torch.dtype) -> None:
    assert equal("aten.argmax.default", dtype, [2, 0]) == [False, True]
    assert equal("aten.argmin.default", dtype, [0, 3]) == [True, False]


def test_of_elements_that_a_kernel_may_round_otherwise_any_may_be_selected() -> None:
    assert equal("aten.argmin.default", torch.float32, [2, 0], "aten.exp.default") == [True, True]
    assert equal("aten.argmax.default", torch.float32, [0, 2], "aten.exp.default") == [True, True]
