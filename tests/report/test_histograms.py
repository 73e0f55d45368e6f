from __future__ import annotations

import numpy as np
import pytest
import torch

from aoti_debug.report.histograms import Counts, Histogram, Sample, histogram
from aoti_debug.report.samples import ELEMENTS, sample_of


def sample(*values: float) -> Sample:
    return Sample(np.array(values, dtype="float64"), len(values))


def counts(found: Counts | None) -> Counts:
    assert found is not None
    return found


def test_both_phases_share_their_bins() -> None:
    found = histogram(sample(0, 1, 2, 3), sample(3, 3, 3, 8))
    assert (found.edges[0], found.edges[-1], found.even) == (0, 8, True)
    assert sum(counts(found.before).bins) == sum(counts(found.after).bins) == 4
    assert counts(found.after).bins[-1] == 1
    assert counts(found.before).bins[-1] == 0


def test_what_is_not_finite_is_counted_apart() -> None:
    found = histogram(None, sample(1, float("nan"), float("inf"), float("inf"), -float("inf"), 2))
    after = counts(found.after)
    assert found.before is None
    assert (after.nan, after.pos_inf, after.neg_inf, sum(after.bins), after.looked_at) == (1, 2, 1, 2, 6)


@pytest.mark.parametrize("values", [(), (float("nan"), float("inf"))])
def test_without_a_finite_value_there_are_no_bins(values: tuple[float, ...]) -> None:
    found = histogram(sample(*values), None)
    assert found.edges == ()
    assert counts(found.before).bins == ()


@pytest.mark.parametrize("value", [0.0, 5.0, -3e30, 1e-40])
def test_one_value_lies_within_the_bins(value: float) -> None:
    found = histogram(sample(value, value), None)
    assert found.even
    assert found.edges[0] < value < found.edges[-1]
    assert sum(counts(found.before).bins) == 2


def test_an_outlier_does_not_hide_the_others() -> None:
    rest = np.random.default_rng(0).normal(size=1000)
    found = histogram(Sample(np.append(rest, 1e6), 1001), None)
    assert not found.even
    assert sum(n > 10 for n in counts(found.before).bins) >= 8
    assert list(found.edges) == sorted(found.edges)
    assert sum(counts(found.before).bins) == 1001


@pytest.mark.parametrize("extreme", [1e308, 3e-320])
def test_extreme_ranges_lose_no_element(extreme: float) -> None:
    found = histogram(sample(-extreme, extreme, 0, extreme / 2), None)
    assert sum(counts(found.before).bins) == 4


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fn, torch.int64, torch.bool, torch.uint16])
def test_every_dtype_is_read(dtype: torch.dtype) -> None:
    found = sample_of(torch.tensor([0, 1, 1]).to(dtype))
    assert found is not None
    assert found.values.tolist() == [0, 1, 1]


def test_of_complex_numbers_the_magnitude_counts() -> None:
    found = sample_of(torch.tensor([3 + 4j]))
    assert found is not None
    assert found.values.tolist() == [5]


def test_of_a_large_tensor_a_part_is_looked_at() -> None:
    found = sample_of(torch.arange(ELEMENTS * 3 + 1))
    assert found is not None
    assert (found.values.size <= ELEMENTS, found.of) == (True, ELEMENTS * 3 + 1)
    assert found.values[-1] > ELEMENTS * 2.9
    shown: Histogram = histogram(found, None)
    assert counts(shown.before).looked_at < counts(shown.before).of


def test_packed_dtypes_have_no_values() -> None:
    assert sample_of(torch.zeros(4, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)) is None
