from __future__ import annotations

import math

import pytest

from aoti_debug.views.summaries.headroom import PRECISIONS, overflow_headroom, underflow_headroom
from tests.views.summaries.sampled import empty, sample

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
