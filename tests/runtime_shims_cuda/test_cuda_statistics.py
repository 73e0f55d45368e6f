"""The statistics kernels and their results, run on the host by tests/runtime_shims_cuda/emulator."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch

from tests.runtime_shims_cuda import reference, samples
from tests.runtime_shims_cuda.checks import check
from tests.runtime_shims_cuda.device_library import HASH, SCALAR_TYPES, STATS_SKIPPED, DeviceLibrary, describe
from tests.runtime_shims_cuda.samples import VIEWS


@pytest.mark.parametrize("dtype", samples.DTYPES, ids=samples.name)
@pytest.mark.parametrize("count", [0, 1, 2, 63, 64, 65, 1000])
def test_every_dtype_and_size(device: DeviceLibrary, dtype: torch.dtype, count: int) -> None:
    tensor = samples.ordinary(dtype, count, seed=count)
    check(device.statistics(tensor), tensor)


@pytest.mark.parametrize("dtype", samples.DTYPES, ids=samples.name)
def test_any_bits(device: DeviceLibrary, dtype: torch.dtype) -> None:
    tensor = samples.random_bits(dtype, 700)
    check(device.statistics(tensor), tensor)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex128, torch.uint8], ids=samples.name)
def test_many_blocks_are_merged(device: DeviceLibrary, dtype: torch.dtype) -> None:
    tensor = samples.ordinary(dtype, (5 * 512 * 16 + 40) // dtype.itemsize + 3)
    check(device.statistics(tensor), tensor)
    check(device.statistics(tensor), tensor)  # the mailboxes are empty for the next launch


def test_more_blocks_than_are_merged_at_once(fresh_device: DeviceLibrary) -> None:
    fresh_device.library.emulator_have(50)
    tensor = samples.ordinary(torch.float64, 134 * 8 * 256 * 2)
    tensor[[5, 500_000]] = torch.tensor([torch.nan, torch.inf], dtype=tensor.dtype)
    check(fresh_device.statistics(tensor), tensor)


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.int8, torch.float16, torch.int64, torch.complex128], ids=samples.name
)
def test_strided_views(device: DeviceLibrary, dtype: torch.dtype, view: str) -> None:
    tensor = VIEWS[view](samples.ordinary(dtype, 1008, seed=3))
    check(device.statistics(tensor), tensor)


@pytest.mark.parametrize("dtype", samples.DTYPES, ids=samples.name)
def test_every_pattern_is_decoded_as_torch_does(device: DeviceLibrary, dtype: torch.dtype) -> None:
    size = dtype.itemsize
    if dtype is torch.bool:
        tensor = torch.tensor([False, True])
    elif size <= 2:
        tensor = torch.arange(256**size, dtype=torch.int32).to([torch.uint8, torch.uint16][size - 1]).view(dtype)
    else:
        tensor = samples.random_bits(dtype, 20000, seed=1)
    data = np.frombuffer(reference.row_major_bytes(tensor), np.uint8).copy()
    numbers, specials = np.empty(tensor.numel()), np.empty(tensor.numel(), np.int32)
    decoded = device.library.emulator_decode(
        SCALAR_TYPES[dtype],
        ctypes.c_void_p(data.ctypes.data),
        ctypes.c_uint64(tensor.numel()),
        ctypes.c_void_p(numbers.ctypes.data),
        ctypes.c_void_p(specials.ctypes.data),
    )
    assert decoded == 0
    expected = reference.values(tensor).astype(np.float64)
    kinds = np.select([np.isnan(expected), expected == np.inf, expected == -np.inf], [0, 1, 2], -1)
    np.testing.assert_array_equal(specials, kinds)
    finite = kinds == -1
    if tensor.is_complex():
        np.testing.assert_allclose(numbers[finite], expected[finite], rtol=1e-15)
    else:
        np.testing.assert_array_equal(numbers[finite], expected[finite])


@pytest.mark.parametrize(
    "numbers",
    [
        [1e300, -1e300, 3e300],
        [1e300] * 70 + [1e-300],
        [1e-300, 2e-300, -5e-300],
        [5e-324, 1e-323],
        [1.7976931348623157e308, -1.7976931348623157e308],
        [1e16 + 2 * i for i in range(100)],
        [0.1] * 999,
        [1e-300, 1.0, 1e300],
    ],
    ids=["huge", "huge, one tiny", "tiny", "subnormal", "extremes", "far from zero", "constant", "rising"],
)
def test_moments_of_doubles_stay_in_range(device: DeviceLibrary, numbers: list[float]) -> None:
    tensor = torch.tensor(numbers, dtype=torch.float64)
    result, expected = device.statistics(tensor), reference.of(tensor)
    assert result.mean == pytest.approx(expected.mean, rel=1e-14, abs=expected.std * 1e-15)
    assert result.std == pytest.approx(expected.std, rel=1e-13, abs=abs(expected.mean) * 1e-17)


def test_a_constant_has_no_deviation(device: DeviceLibrary) -> None:
    assert device.statistics(torch.full((5000,), 0.1)).std == 0


def test_an_outlier_first_costs_no_digits(device: DeviceLibrary) -> None:
    tensor = torch.randn(20000, generator=torch.Generator().manual_seed(4))
    tensor[0] = 1e30
    check(device.statistics(tensor), tensor)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=samples.name)
@pytest.mark.parametrize("finite", [[0], [31 * 4], [5000], range(100, 140)], ids=["first", "last lane", "far", "few"])
def test_threads_with_few_finite_values_cost_no_digits(
    device: DeviceLibrary, dtype: torch.dtype, finite: Sequence[int]
) -> None:
    tensor = 5 + 1e-3 * samples.ordinary(dtype, 20_000, seed=7)
    tensor[:8192] = math.nan
    tensor[list(finite)] = torch.linspace(900, 1000, len(finite), dtype=dtype)
    check(device.statistics(tensor), tensor)


def test_integers_are_exact(device: DeviceLibrary) -> None:
    large = torch.tensor([2**53 + 1, -(2**63), 2**63 - 1, 5] * 30, dtype=torch.int64)
    result = device.statistics(large)
    assert (result.integer, result.number(result.min_bits), result.number(result.max_bits)) == (1, -(2**63), 2**63 - 1)
    unsigned = torch.tensor([2**64 - 1, 1, 2**53 + 1] * 30, dtype=torch.uint64)
    result = device.statistics(unsigned)
    assert (result.integer, result.number(result.min_bits), result.number(result.max_bits)) == (2, 1, 2**64 - 1)


@pytest.mark.parametrize(
    ("dtype", "value"), [(torch.int64, 2**63 - 1), (torch.int64, -(2**63)), (torch.uint8, 0), (torch.int32, 2**31 - 1)]
)
def test_a_limit_everywhere_is_found_first(device: DeviceLibrary, dtype: torch.dtype, value: int) -> None:
    tensor = torch.full((3000,), value, dtype=dtype)
    check(device.statistics(tensor), tensor)


def test_the_first_of_equal_extrema_counts(device: DeviceLibrary) -> None:
    tensor = torch.zeros(30000)
    tensor[[777, 20000, 29999]] = 5
    tensor[[1234, 25000]] = -5
    result = device.statistics(tensor)
    assert (result.min_index, result.max_index) == (1234, 777)


def test_zeros_of_either_sign_are_equal(device: DeviceLibrary) -> None:
    result = device.statistics(torch.tensor([0.0, -0.0] * 100))
    assert (result.min_index, result.max_index, result.n_zero) == (0, 0, 200)
    assert math.copysign(1, result.number(result.min_bits)) == 1


@pytest.mark.parametrize("special", [math.nan, math.inf, -math.inf])
def test_without_finite_values(device: DeviceLibrary, special: float) -> None:
    tensor = torch.full((500,), special)
    check(device.statistics(tensor), tensor)


def test_nothing_is_left_of_the_special_values_of_another_tensor(device: DeviceLibrary) -> None:
    ordinary = torch.arange(3000.0)
    special = ordinary.clone()
    special[[7, 8, 9]] = torch.tensor([torch.nan, torch.inf, -torch.inf])
    marked = device.statistics(special)
    assert (marked.nan_index, marked.pos_inf_index, marked.neg_inf_index) == (7, 8, 9)
    result = device.statistics(ordinary)
    assert (result.nan_index, result.pos_inf_index, result.neg_inf_index) == (0, 0, 0)


def test_without_statistics_there_are_hash_and_values(device: DeviceLibrary) -> None:
    for tensor in (samples.ordinary(torch.float32, 40), samples.ordinary(torch.float64, 3000).view(30, 100).t()):
        result, expected = device.statistics(tensor, wanted=HASH), reference.of(tensor)
        assert (result.hash, result.numel, result.n_nan, result.n_zero) == (expected.hash, tensor.numel(), 0, 0)
        assert result.shown() == (expected.data if tensor.numel() <= 64 else b"")
        assert math.isnan(result.mean)


def test_the_values_of_a_dtype_without_statistics_are_not_counted(device: DeviceLibrary) -> None:
    tensor = torch.arange(10, dtype=torch.uint8)
    quantized = describe(tensor, scalar_type=13)
    assert device.statistics(quantized, wanted=HASH).shown() == bytes(range(10))
    result = device.statistics(quantized)
    assert result.flags == STATS_SKIPPED
    assert result.shown() == b"its dtype has no statistics"


def test_what_a_kernel_must_not_read_is_skipped(device: DeviceLibrary) -> None:
    launches = device.library.emulator_launches()
    tensor = torch.ones(10)
    unaligned = describe(tensor)
    unaligned.view.data += 2
    odd = describe(tensor)
    odd.view.element_bytes = 3
    reasons = [
        device.statistics(described).shown()
        for described in (unaligned, odd, describe(tensor, device_index=1), describe(_many_dimensions()))
    ]
    assert reasons == [
        b"its address is not aligned to its elements",
        b"its elements have an unknown size",
        b"it is on another device than its launch",
        b"it has too many dimensions",
    ]
    assert device.library.emulator_launches() == launches


def _many_dimensions() -> torch.Tensor:
    return torch.zeros(10).as_strided((2,) * 17, (1, 0) * 8 + (1,))
