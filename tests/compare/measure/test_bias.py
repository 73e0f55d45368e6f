"""Small errors that lean to one side."""

from __future__ import annotations

import pytest
import torch

from aoti_debug.compare.measure.evaluated import Evaluated, Subject
from aoti_debug.compare.measure.measure import measure
from aoti_debug.compare.protocol.measurement import Measurement

SUBJECT = Subject("buf0", "mul", "aten.mul.Tensor")
HALVES = pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])


def values(count: int = 4096) -> torch.Tensor:
    return torch.randn(count, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def measured(actual: torch.Tensor, exact: torch.Tensor, eager: torch.Tensor | None = None) -> Measurement:
    rounded = exact.to(actual.dtype) if eager is None else eager
    return measure(SUBJECT, Evaluated(actual=actual, eager=rounded, kernel=exact.float(), double=exact))


def truncated(exact: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    nearest = exact.to(dtype)
    return torch.where(
        nearest.double().abs() > exact.abs(), torch.nextafter(nearest, torch.zeros_like(nearest)), nearest
    )


@HALVES
def test_rounding_to_the_nearest(dtype: torch.dtype) -> None:
    exact = values()
    assert measured(exact.to(dtype), exact).wrong == 0


@HALVES
@pytest.mark.parametrize("count", [96, 4096])
def test_rounding_to_zero(dtype: torch.dtype, count: int) -> None:
    exact = values(count)
    found = measured(truncated(exact, dtype), exact)
    assert found.wrong > exact.numel() / 3
    assert found.bias == pytest.approx(-0.5, abs=0.1)
    assert found.worst is not None


def test_a_factor_that_is_wrong_by_half_a_per_cent() -> None:
    exact = values()
    assert measured((exact * 1.005).bfloat16(), exact).bias > 0.5


@HALVES
def test_a_value_that_all_elements_share_is_rounded_by_eager_only(dtype: torch.dtype) -> None:
    x, scale = values().to(dtype).double(), torch.tensor(1.0019, dtype=torch.float64)
    exact = x * scale
    eager = x.to(dtype) * scale.to(dtype)
    assert measured(exact.to(dtype), exact, eager).wrong == 0
    assert measured(eager, exact, eager).wrong == 0


@HALVES
def test_one_value_for_all_elements(dtype: torch.dtype) -> None:
    exact = torch.full((4096,), 1.00123, dtype=torch.float64)
    assert measured(exact.to(dtype), exact).wrong == 0


@HALVES
def test_few_values_that_are_rounded_the_other_way(dtype: torch.dtype) -> None:
    step = torch.finfo(dtype).eps
    ties = 1 + step * (torch.arange(8, dtype=torch.float64) * 2 + 0.5)  # halfway: either neighbour is right
    exact = ties.repeat(512)
    up = (exact * (1 + 2.0**-24)).to(dtype)
    assert not torch.equal(up, exact.to(dtype))
    assert measured(up, exact).wrong == 0


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_eight_bits(dtype: torch.dtype) -> None:
    numbers = values().clamp(-3, 3)
    exact = numbers.to(dtype).double()  # float64 has no arithmetic of its own for them: the conversion rounds
    below = numbers.abs().float() * (1 - torch.finfo(dtype).eps / 2)
    to_zero = (below.to(dtype).float() * numbers.sign().float()).to(dtype)
    assert measured(exact.to(dtype), exact).wrong == 0
    assert measured(to_zero, exact).bias < -0.3


@HALVES
def test_noise_that_leans_to_no_side(dtype: torch.dtype) -> None:
    exact = values()
    noise = 1 + 1.5 * torch.finfo(dtype).eps * (torch.rand(4096, generator=torch.Generator().manual_seed(1)) - 0.5)
    assert measured((exact * noise).to(dtype), exact).wrong == 0


def test_few_elements_and_float32_say_nothing() -> None:
    exact = values(60)
    assert measured(truncated(exact, torch.bfloat16), exact).wrong == 0
    many = values()
    assert measured(truncated(many, torch.float32), many).wrong == 0
