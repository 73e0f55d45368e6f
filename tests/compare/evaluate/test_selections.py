"""Operators that select elements by an index: another choice among equal elements."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from aoti_debug.compare.evaluate.selections import Choice, may_choose, other_choice
from aoti_debug.package.reference.program import Node, NodeKind

NAN = float("nan")
ROWS = torch.tensor([[1.0, 5.0, 5.0, 0.0, 5.0], [3.0, NAN, 1.0, NAN, 2.0]])
COARSE = (torch.rand(6, 40, generator=torch.Generator().manual_seed(0)) * 4).round()


def node(target: str, *args: Any, **kwargs: Any) -> Node:
    return Node("chosen", NodeKind.CALL, target, ({"node": "x"}, *args), kwargs)


CHOICES = {
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
