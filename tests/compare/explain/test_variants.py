"""Tests of `aoti_debug.compare.explain.variants`: results by other rules of rounding, and of NaN."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from aoti_debug.compare.explain.variants import variants
from aoti_debug.package.program_graphs import Node, NodeKind, TensorType


def values(target: str, *args: Any, **kwargs: Any) -> dict[str, Any]:
    """The variants of an operator by how they come about."""
    node = Node("n", NodeKind.CALL, target, ({"node": "x"},), types=(TensorType("float32", "cpu", ("4",), ("1",)),))
    packet, _, overload = target.removeprefix("aten.").partition(".")
    operator = getattr(getattr(torch.ops.aten, packet), overload)
    return {v.how: v.value for v in variants(node, list(args), kwargs, lambda a, k: operator(*a, **k))}


def test_halves() -> None:
    found = values("aten.round.default", torch.tensor([0.5, 1.5, -0.5, -2.7]))
    assert found["with halves rounded up"].tolist() == [1, 2, 0, -3]
    assert found["with halves rounded away from zero"].tolist() == [1, 2, -1, -3]
    assert found["towards zero"].tolist() == [0, 1, 0, -2]


@pytest.mark.parametrize(("mode", "other", "expected"), [("floor", "trunc", [-3, 3]), ("trunc", "floor", [-4, 3])])
def test_quotients(mode: str, other: str, expected: list[int]) -> None:
    found = values("aten.div.Tensor_mode", torch.tensor([-7.0, 7.0]), torch.tensor([2.0, 2.0]), rounding_mode=mode)
    assert found[f"rounded as by {other}"].tolist() == expected
    near = values("aten.div.Tensor_mode", torch.tensor([1.0]), torch.tensor([0.1]), rounding_mode="floor")
    assert near["with its quotient rounded before its floor"].tolist() == [10]


def test_remainders() -> None:
    x, y = torch.tensor([-7.0]), torch.tensor([2.0])
    assert values("aten.remainder.Tensor", x, y)["as fmod"].tolist() == [-1]
    assert values("aten.fmod.Tensor", x, y)["as remainder"].tolist() == [1]


@pytest.mark.parametrize(("name", "without"), [("maximum", [2, 3]), ("minimum", [2, 3])])
def test_nan_of_operands(name: str, without: list[int]) -> None:
    found = values(f"aten.{name}.default", torch.tensor([math.nan, 3.0]), torch.tensor([2.0, math.nan]))
    assert found["without NaN"].tolist() == without
    first, second = found["without NaN of its first operand"], found["without NaN of its second operand"]
    assert (first[0].item(), math.isnan(first[1])) == (2, True)
    assert (math.isnan(second[0]), second[1].item()) == (True, 3)


def test_a_running_sum_from_0() -> None:
    assert values("aten.cumsum.default", torch.tensor([1.0, 2.0, 3.0]), 0)["without the element itself"].tolist() == [
        *(0.0, 1.0, 3.0)
    ]


def test_narrow_integers_that_do_not_wrap_around() -> None:
    found = values("aten.neg.default", torch.tensor([200, 0], dtype=torch.uint8))
    assert found["without wrapping around"].tolist() == [-200, 0]
    assert "without wrapping around" not in values("aten.neg.default", torch.tensor([3], dtype=torch.int8))
    assert "without wrapping around" not in values("aten.neg.default", torch.tensor([3.0]))


def test_a_factor_that_is_left_out() -> None:
    one, other = torch.tensor([1.0]), torch.tensor([2.0])
    assert values("aten.add.Tensor", one, other, alpha=3)["without its factor"].tolist() == [3]
    assert "without its factor" not in values("aten.add.Tensor", one, other, alpha=1)
