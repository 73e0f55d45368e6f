from __future__ import annotations

import math
import warnings

import pytest
import torch

from aoti_debug.runs.rundir.formats import statistics
from aoti_debug.runs.rundir.formats.statistics import Statistics
from tests.saved_tensors import stored


def tensor_statistics(value: torch.Tensor) -> Statistics:
    return statistics.tensor_statistics(stored(value))


def test_floats_with_everything() -> None:
    value = torch.tensor([[1e300, math.nan, -math.inf], [-1e300, 0.0, math.inf]], dtype=torch.float64)
    result = tensor_statistics(value)
    assert result == Statistics(6, 1, 1, 1, 1, -1e300, 1e300, 3, 0, 0.0, result.std)
    assert result.std == pytest.approx(1e300 * math.sqrt(2 / 3))
    assert result.n_finite == 3


@pytest.mark.parametrize(
    ("value", "is_finite"), [(0.0, True), (math.nan, False), (math.inf, False), (-math.inf, False)]
)
def test_whether_all_elements_are_finite(value: float, is_finite: bool) -> None:
    assert tensor_statistics(torch.tensor([1.0, value])).is_finite is is_finite


def test_nothing_is_lost_at_the_ends_of_the_range() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = tensor_statistics(torch.full((10,), 1.7e308, dtype=torch.float64))
    assert (result.min, result.max) == (1.7e308, 1.7e308)
    assert result.mean == pytest.approx(1.7e308)
    assert result.std < 1e295


def test_signalling_nans_of_memory_that_was_never_written() -> None:
    value = torch.tensor([0x7F800001, 0], dtype=torch.int32).view(torch.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = tensor_statistics(value)
    assert (result.n_nan, result.n_zero) == (1, 1)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint64])
def test_integers_stay_integers(dtype: torch.dtype) -> None:
    low, high = torch.iinfo(dtype).min, torch.iinfo(dtype).max
    result = tensor_statistics(torch.tensor([1, high, low, 1], dtype=dtype))
    assert (result.min, result.max, result.min_index, result.max_index) == (low, high, 2, 1)
    assert isinstance(result.min, int)
    assert result.mean == pytest.approx((1 + high + low + 1) / 4)


def test_booleans() -> None:
    result = tensor_statistics(torch.tensor([True, False, True]))
    assert (result.min, result.max, result.n_zero, result.mean) == pytest.approx((0, 1, 1, 2 / 3))


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.float8_e5m2, torch.float8_e4m3fn, torch.float8_e4m3fnuz]
)
def test_narrow_floats(dtype: torch.dtype) -> None:
    result = tensor_statistics(torch.tensor([1.5, -2.0, 0.0, math.nan]).to(dtype))
    assert (result.min, result.max, result.n_nan, result.n_zero) == (-2.0, 1.5, 1, 1)
    assert result.mean == pytest.approx(-1 / 6)


@pytest.mark.parametrize("dtype", [torch.complex32, torch.complex64, torch.complex128])
def test_a_complex_element_counts_once_by_its_magnitude(dtype: torch.dtype) -> None:
    result = tensor_statistics(torch.tensor([3 + 4j, 0, complex(math.nan, 1)], dtype=torch.complex64).to(dtype))
    assert (result.numel, result.n_nan, result.n_zero, result.min, result.max) == (3, 1, 1, 0.0, 5.0)


def test_layouts_count_elements_not_memory() -> None:
    base = torch.arange(12.0).reshape(3, 4)
    assert tensor_statistics(base.t()).max_index == 11
    assert tensor_statistics(base[:, 1]) == tensor_statistics(base[:, 1].clone())
    assert tensor_statistics(base[0].expand(5, 4)).numel == 20


def test_no_finite_element() -> None:
    result = tensor_statistics(torch.tensor([math.nan, math.inf]))
    assert (result.min, result.max, result.n_nan, result.n_pos_inf) == (None, None, 1, 1)
    assert math.isnan(result.mean)
    assert math.isnan(result.std)
    assert tensor_statistics(torch.empty(0)).numel == 0


def test_parts_are_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    value = torch.randn(1000, generator=torch.Generator().manual_seed(0)).double() * 1e3 + 1e6
    value[7], value[900] = math.nan, -math.inf
    whole = tensor_statistics(value)
    monkeypatch.setattr(statistics, "_CHUNK", 64)
    parts = tensor_statistics(value)
    assert parts.mean == pytest.approx(whole.mean, rel=1e-14)
    assert parts.std == pytest.approx(whole.std, rel=1e-12)
    kept = value[value.isfinite()]
    assert whole.mean == pytest.approx(kept.mean().item(), rel=1e-14)
    assert whole.std == pytest.approx(kept.std(correction=0).item(), rel=1e-12)
    assert (parts.min, parts.min_index, parts.max, parts.max_index) == (
        whole.min,
        whole.min_index,
        whole.max,
        whole.max_index,
    )
    assert value[whole.max_index] == kept.max()


def test_the_first_of_equal_extremes() -> None:
    result = tensor_statistics(torch.tensor([2.0, 5.0, 1.0, 5.0, 1.0]))
    assert (result.min_index, result.max_index) == (2, 1)


@pytest.mark.parametrize(
    "value",
    [torch.quantize_per_tensor(torch.ones(2), 1.0, 0, torch.qint8), torch.ones(2, dtype=torch.uint8).view(torch.bits8)],
)
def test_dtypes_without_values(value: torch.Tensor) -> None:
    with pytest.raises(TypeError, match="cannot be read as numbers"):
        tensor_statistics(value)
