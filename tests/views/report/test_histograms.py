from __future__ import annotations

import numpy as np
import pytest
import torch

from aoti_debug.views.report import tensor_samples
from aoti_debug.views.report.tensor_samples import ELEMENTS, Counts, Histogram, Sample, histogram, sample_of
from tests.saved_tensors import stored


def sample(*values: float) -> Sample:
    return Sample(np.array(values, dtype="float64"), len(values))


def counts(result: Counts | None) -> Counts:
    assert result is not None
    return result


def test_both_phases_share_their_bins() -> None:
    result = histogram(sample(0, 1, 2, 3), sample(3, 3, 3, 8))
    assert (result.edges[0], result.edges[-1], result.even) == (0, 8, True)
    assert sum(counts(result.before).bins) == sum(counts(result.after).bins) == 4
    assert counts(result.after).bins[-1] == 1
    assert counts(result.before).bins[-1] == 0


def test_what_is_not_finite_is_counted_apart() -> None:
    result = histogram(None, sample(1, float("nan"), float("inf"), float("inf"), -float("inf"), 2))
    after = counts(result.after)
    assert result.before is None
    assert (after.nan, after.pos_inf, after.neg_inf, sum(after.bins), after.sampled) == (1, 2, 1, 2, 6)


@pytest.mark.parametrize("values", [(), (float("nan"), float("inf"))])
def test_without_a_finite_value_there_are_no_bins(values: tuple[float, ...]) -> None:
    result = histogram(sample(*values), None)
    assert result.edges == ()
    assert counts(result.before).bins == ()


@pytest.mark.parametrize("value", [0.0, 5.0, -3e30, 1e-40])
def test_one_value_lies_within_the_bins(value: float) -> None:
    result = histogram(sample(value, value), None)
    assert result.even
    assert result.edges[0] < value < result.edges[-1]
    assert sum(counts(result.before).bins) == 2


@pytest.mark.parametrize("outlier", [(), (1e6,)])
def test_bins_count_as_those_of_numpy(outlier: tuple[float, ...]) -> None:
    values = np.round(np.append(np.random.default_rng(0).normal(size=500), outlier), 1)
    result = histogram(Sample(values, values.size), None)
    assert counts(result.before).bins == tuple(np.histogram(values, np.asarray(result.edges))[0])


def test_an_outlier_does_not_hide_the_others() -> None:
    rest = np.random.default_rng(0).normal(size=1000)
    result = histogram(Sample(np.append(rest, 1e6), 1001), None)
    assert not result.even
    assert sum(n > 10 for n in counts(result.before).bins) >= 8
    assert list(result.edges) == sorted(result.edges)
    assert sum(counts(result.before).bins) == 1001


@pytest.mark.parametrize("extreme", [1e308, 3e-320])
def test_extreme_ranges_lose_no_element(extreme: float) -> None:
    result = histogram(sample(-extreme, extreme, 0, extreme / 2), None)
    assert sum(counts(result.before).bins) == 4


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fn, torch.int64, torch.bool, torch.uint16])
def test_every_dtype_is_read(dtype: torch.dtype) -> None:
    result = sample_of(stored(torch.tensor([0, 1, 1]).to(dtype)))
    assert result is not None
    assert result.values.tolist() == [0, 1, 1]


def test_of_complex_numbers_the_magnitude_counts() -> None:
    result = sample_of(stored(torch.tensor([3 + 4j])))
    assert result is not None
    assert result.values.tolist() == [5]


def test_a_large_tensor_is_sampled() -> None:
    result = sample_of(stored(torch.arange(ELEMENTS * 3 + 1)))
    assert result is not None
    assert (result.values.size <= ELEMENTS, result.numel) == (True, ELEMENTS * 3 + 1)
    assert result.values[-1] > ELEMENTS * 2.9
    shown: Histogram = histogram(result, None)
    assert counts(shown.before).sampled < counts(shown.before).numel


def test_packed_dtypes_have_no_values() -> None:
    assert sample_of(stored(torch.zeros(4, dtype=torch.uint8).view(torch.float4_e2m1fn_x2))) is None


@pytest.mark.parametrize("count", [1, 2, 3, 50, 101, 1000])
def test_quantiles_are_those_of_numpy(count: int) -> None:
    values = np.random.default_rng(count).standard_cauchy(count)
    for part in (0.0, 0.01, 0.5, 0.99, 1.0):
        assert tensor_samples._quantile(values, part) == np.quantile(values, part)
