"""Tests of `aoti_debug.compare.evaluate.exact_rules`."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from aoti_debug.compare.evaluate.exact_rules import Inexact, has_rule, inexact

ATEN = torch.ops.aten
LARGE = 2**24 + 1  # the first integer that float32 cannot hold


def found(operator: Any, *args: Any, **kwargs: Any) -> Inexact | None:
    """What is not exact in the result of an operator, called by torch."""
    return inexact(str(operator), args, kwargs, operator(*args, **kwargs))


def seen(operator: Any, *args: Any, **kwargs: Any) -> str:
    result = found(operator, *args, **kwargs)
    assert result is not None
    return result.seen


@pytest.mark.parametrize("value", [math.nan, math.inf, -3e9, 2.0**31])
def test_a_number_that_an_integer_cannot_hold_has_no_right_result(value: float) -> None:
    result = found(ATEN.to.dtype, torch.tensor([1.5, value]), torch.int32)
    assert result is not None
    assert result.is_open
    assert result.seen.startswith("converts 1 of 2 elements that int32 cannot hold (the first, [1]: ")


def test_the_ends_of_an_integer_can_be_held() -> None:
    x = torch.tensor([-(2.0**31), 2.0**31 - 128, 0.9, -0.9])
    assert found(ATEN.to.dtype, x, torch.int32) is None
    assert found(ATEN.to.dtype, torch.tensor([255.9, -0.5]), torch.uint8) is None
    assert found(ATEN.to.dtype, torch.tensor([256.0]), torch.uint8) is not None


def test_a_cast_that_is_not_truncation_contradicts_the_rule() -> None:
    x = torch.tensor([1.5, -2.5])
    result = inexact("aten.to.dtype", (x, torch.int32), {}, torch.tensor([1, -3], dtype=torch.int32))
    assert result == Inexact(
        "gives 1 of 2 elements that truncation does not (the first, [1]: -2.5 becomes -3)", is_open=True
    )


def test_integers_that_lose_digits_and_numbers_that_overflow() -> None:
    assert seen(ATEN.to.dtype, torch.tensor([[3, LARGE]]), torch.float32) == (
        "converts 1 of 2 elements that float32 cannot hold exactly (the first, [0, 1]: 16777217 becomes 16777216)"
    )
    assert "(the first, [0]: 300 becomes 44)" in seen(ATEN.to.dtype, torch.tensor([300]), torch.int8)
    assert "too large for float16" in seen(ATEN.to.dtype, torch.tensor([1e6, math.inf]), torch.float16)
    assert found(ATEN.to.dtype, torch.tensor([0.1]), torch.float16) is None


def test_a_comparison_is_made_with_exact_numbers() -> None:
    result = found(ATEN.eq.Tensor, torch.tensor([LARGE, 3]), torch.tensor([LARGE - 1.0, 3.0]))
    assert result == Inexact(
        "gives 1 of 2 elements that the exact numbers do not (the first, [0]: 16777217 == 16777216 is True): the "
        "operands are compared as float32",
        is_open=True,
    )
    assert found(ATEN.eq.Tensor, torch.tensor([2**62 + 1]), torch.tensor([2**62])) is None
    assert found(ATEN.lt.Tensor, torch.tensor([math.nan, 1.0]), torch.tensor([1.0, 2.0])) is None


def test_a_number_of_python_is_rounded_to_the_tensor_by_rule() -> None:
    result = found(ATEN.eq.Scalar, torch.tensor([3.140625], dtype=torch.bfloat16), 3.14)
    assert result is not None
    assert not result.is_open
    of_no_dimensions = found(ATEN.eq.Tensor, torch.tensor([0.1]), torch.tensor(0.1, dtype=torch.float64))
    assert of_no_dimensions is not None
    assert not of_no_dimensions.is_open


def test_a_negative_power_of_zero_wraps_nowhere() -> None:
    assert found(ATEN.pow.Tensor_Tensor, torch.tensor([0, 2, 1]), torch.tensor([-1, -2, 3])) is None
    assert "wraps around in 1 of 2" in seen(ATEN.pow.Tensor_Tensor, torch.tensor([0, 3]), torch.tensor([-1, 50]))


def test_arithmetic_that_wraps_around() -> None:
    byte = torch.tensor([100, 2], dtype=torch.uint8)
    result = found(ATEN.add.Tensor, byte, byte + 100)
    assert result == Inexact(
        "wraps around in 1 of 2 elements, beyond the range of uint8 (the first, [0]: 44, and not about 300)",
        is_open=False,
    )
    assert "beyond the range of int64" in seen(ATEN.mul.Tensor, torch.tensor([2**40]), torch.tensor([2**40]))
    assert "beyond the range of int64" in seen(ATEN.sum.default, torch.full((3,), 2**62))
    assert found(ATEN.mul.Tensor, torch.tensor([2**31 - 1]), torch.tensor([2**31 - 1])) is None
    assert found(ATEN.sum.dim_IntList, byte, [0]) is None


@pytest.mark.parametrize(("mode", "operator"), [("floor", "floor_divide"), ("trunc", "fmod")])
def test_division_of_integers(mode: str, operator: str) -> None:
    a, b = torch.tensor([-7, 7, -8, 8]), torch.tensor([2, -2, 2, -3])
    assert found(ATEN.div.Tensor_mode, a, b, rounding_mode=mode) is None
    assert found(getattr(ATEN, operator).default if operator == "floor_divide" else ATEN.fmod.Tensor, a, b) is None
    assert found(ATEN.remainder.Tensor, a, b) is None
    other = {"floor": "trunc", "trunc": "floor"}[mode]
    wrong = inexact("aten.div.Tensor_mode", (a, b), {"rounding_mode": mode}, torch.div(a, b, rounding_mode=other))
    assert wrong is not None
    assert wrong.is_open
    assert "integer division does not (the first, [0]: of -7 and 2 it is" in wrong.seen


def test_shifts_out_of_range() -> None:
    result = found(ATEN.bitwise_left_shift.Tensor, torch.tensor([1, 2]), torch.tensor([64, 1]))
    assert result is not None
    assert result.is_open
    assert result.seen.startswith(
        "shifts 1 of 2 elements by less than 0 or by 64 bits and more (the first, [0]: by 64)"
    )
    assert found(ATEN.bitwise_left_shift.Tensor, torch.tensor([1]), torch.tensor([63])) is None


def test_what_has_no_rule_is_passed_over() -> None:
    assert not has_rule("aten.tanh.default")
    assert not has_rule("mylib.add.default")
    assert has_rule("aten.add_.Tensor")
    assert found(ATEN.add.Tensor, torch.tensor([1e38]), torch.tensor([3e38])) is None
    assert found(ATEN.to.dtype, torch.empty(0), torch.int32) is None
    assert found(ATEN.eq.Scalar, torch.tensor([1j]), 1) is None
