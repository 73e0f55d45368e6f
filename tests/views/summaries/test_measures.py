from __future__ import annotations

import math
import random
from typing import Any

import pytest

from aoti_debug.views.summaries.measures import MIN_CALLS, PRECISIONS, drift, overflow_headroom, underflow_headroom
from tests.views.summaries.sampled import empty, sample, series

CALLS = 40


def noisy(seed: int, **trends: float) -> tuple[str, ...]:
    """The drift of a tensor whose quantities grow by this much over the calls, with noise of a tenth."""
    draw = random.Random(seed)
    base = {"mean": 0.0, "std": 1.0, "max": 3.0, "n_zero": 20.0}
    numbers: list[dict[str, Any]] = [
        {name: base[name] + trends.get(name, 0.0) * n / CALLS + 0.1 * draw.gauss(0, 1) for name in base}
        for n in range(CALLS)
    ]
    return drift(series(sample(n, **values) for n, values in enumerate(numbers)))


@pytest.mark.parametrize("seed", range(8))
def test_noise_is_no_drift(seed: int) -> None:
    assert noisy(seed) == ()


@pytest.mark.parametrize("seed", range(4))
def test_changes_beyond_the_noise(seed: int) -> None:
    assert noisy(seed, mean=2.0)[0].startswith("mean moved by +1.")
    assert [text.split()[0] for text in noisy(seed, std=4.0)] == ["std"]
    assert [text.split()[0] for text in noisy(seed, max=20.0)] == ["absmax"]
    assert noisy(seed, n_zero=40.0)[0].startswith("zeros +")


def test_a_change_that_is_small_for_the_tensor_is_none() -> None:
    assert drift(series(sample(n, mean=0.2 * n / CALLS) for n in range(CALLS))) == ()


def test_few_calls_tell_nothing() -> None:
    assert drift(series(sample(n, mean=float(n)) for n in range(MIN_CALLS - 1))) == ()
    assert drift(series(sample(n, mean=float(n)) for n in range(MIN_CALLS))) != ()


def test_elements_that_stop_being_finite() -> None:
    assert drift(series([sample(0), sample(10), sample(20, n_nan=1)])) == ("not finite from call 20 on",)
    assert drift(series([sample(0, n_nan=1), sample(10, n_nan=1)])) == ()
    assert drift(series(empty(n) for n in range(CALLS))) == ()


FP16, BF16, E4M3, E5M2 = PRECISIONS


def test_bits_to_the_largest_number() -> None:
    assert overflow_headroom(sample(min=-65504.0), FP16) == 0
    assert overflow_headroom(sample(max=4 * 65504.0), FP16) == pytest.approx(-2)
    assert overflow_headroom(sample(max=224.0), E4M3) == 1
    assert overflow_headroom(sample(min=0.0, max=0.0), FP16) == math.inf


def test_bits_to_the_smallest_normal_number() -> None:
    assert underflow_headroom(sample(mean=0.0, std=2.0**-14), FP16) == 0
    assert underflow_headroom(sample(mean=2.0**-15, std=0.0), E5M2) == -1
    assert underflow_headroom(sample(), BF16) == 126
    assert math.isnan(underflow_headroom(sample(mean=0.0, std=0.0), FP16))


@pytest.mark.parametrize("precision", PRECISIONS)
def test_without_finite_elements_there_is_none(precision: object) -> None:
    assert math.isnan(overflow_headroom(empty(), precision))  # type: ignore[arg-type]
    assert math.isnan(underflow_headroom(empty(), precision))  # type: ignore[arg-type]


def test_the_limits_are_torchs() -> None:
    import torch

    for precision in PRECISIONS:
        info = torch.finfo(getattr(torch, precision.dtype))
        assert (precision.largest, precision.smallest) == (info.max, info.smallest_normal)
