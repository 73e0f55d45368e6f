"""Ranges of outputs over choices among equal elements."""

from __future__ import annotations

import torch

from aoti_debug.compare.measure.choices import choice_range
from aoti_debug.compare.measure.evaluated import Evaluated


def test_only_elements_that_depend_on_a_choice_are_judged_by_the_range() -> None:
    found = choice_range([torch.tensor([1.0, 2.0, 5.0]), torch.tensor([1.0, 4.0, 3.0])])
    assert found is not None
    double = torch.tensor([1.0, 2.0, 5.0], dtype=torch.float64)
    actual = torch.tensor([9.0, 3.5, 99.0])
    output = Evaluated(actual, torch.tensor([1.0, 4.0, 5.0]), double, double, perturbed=(double + 7,))
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
