"""Distances of neighbouring numbers, and sizes of tensors, against their definitions."""

from __future__ import annotations

import math

import pytest
import torch

from aoti_debug.compare.measure.ulp import are_finite, finite, median, relative_difference, ulp

NAN, INF = math.nan, math.inf
UNUSUAL = [0.0, -0.0, INF, -INF, NAN, 5e-324, 1e-310, 2.0**-1022, -1.0, 1.5, 65504.0, 1.7e308]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.float8_e5m2])
def test_ulp_is_the_power_of_two_times_the_relative_distance(dtype: torch.dtype) -> None:
    bits = torch.randint(-(2**63), 2**63 - 1, (1000,), generator=torch.Generator().manual_seed(0))
    values = torch.cat([bits.view(torch.float64), torch.tensor(UNUSUAL, dtype=torch.float64)])
    info = torch.finfo(dtype)

    def expected(value: float) -> float:
        power = math.ldexp(1.0, math.frexp(value)[1] - 1) if value and math.isfinite(value) else float(value != 0)
        return max(power * float(info.eps), float(info.smallest_normal * info.eps))

    assert ulp(values, dtype).tolist() == [expected(value) for value in values.tolist()]


def test_the_median_of_an_even_number_of_values_is_the_lower_one() -> None:
    values = torch.tensor([4.0, 1.0, INF, 2.0], dtype=torch.float64)

    assert median(values) == float(values.median()) == 2.0
    assert median(torch.tensor([7.0], dtype=torch.float64)) == 7.0


def test_what_is_not_finite_counts_as_zero() -> None:
    values = torch.tensor([1.0, NAN, -INF, INF, 2.0], dtype=torch.float64)
    huge = torch.full((4,), 1.7e308, dtype=torch.float64)

    assert not are_finite(values)
    assert finite(values).tolist() == [1.0, 0.0, 0.0, 0.0, 2.0]
    assert finite(huge).tolist() == huge.tolist()


@pytest.mark.parametrize("shape", [(3, 1 << 20), (1 << 21,), (1 << 11, 1 << 10), (), (0, 4)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64, torch.int64])
def test_a_relative_difference_in_parts_is_that_of_the_whole(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    actual, expected = ((torch.rand(shape) * 8 + 1).to(dtype) for _ in range(2))
    exact = torch.complex128 if dtype.is_complex else torch.float64
    first, second = (t.to(exact) for t in (actual, expected))
    whole = (first - second).abs().square().mean().sqrt() / second.abs().square().mean().sqrt()
    assert relative_difference(actual, expected) == pytest.approx(float(whole.nan_to_num()), rel=1e-9)
