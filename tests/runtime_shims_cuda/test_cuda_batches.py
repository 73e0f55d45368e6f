"""Several tensors at once: one launch for those of a dtype, and results in the order in which they were asked for."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from tests.runtime_shims_cuda import samples
from tests.runtime_shims_cuda.checks import check
from tests.runtime_shims_cuda.device_library import HASH, NUMBERS, STATS_SKIPPED, DeviceLibrary, describe
from tests.runtime_shims_cuda.emulated import use_context
from tests.runtime_shims_cuda.samples import VIEWS

STREAM = 0x7000


def check_taken(device: DeviceLibrary, tensors: list[torch.Tensor]) -> None:
    results = device.take(STREAM)
    assert results is not None
    for result, tensor in zip(results, tensors, strict=True):
        check(result, tensor)


def test_one_launch_for_those_of_a_dtype(device: DeviceLibrary) -> None:
    dtypes = (torch.float32, torch.int64, torch.float32, torch.bfloat16, torch.int64, torch.float32)
    tensors = [samples.ordinary(dtype, 50 + 900 * n, seed=n) for n, dtype in enumerate(dtypes)]
    tensors.insert(2, torch.empty(0))
    launches = device.library.emulator_launches()
    assert device.begin_all(tensors, STREAM) == 7
    assert device.library.emulator_launches() == launches + 3
    check_taken(device, tensors)


@pytest.mark.parametrize(
    ("major", "driver", "early"), [(9, 11080, True), (10, 13000, True), (8, 13000, False), (9, 11070, False)]
)
def test_newer_devices_begin_a_kernel_early(fresh_device: DeviceLibrary, major: int, driver: int, early: bool) -> None:
    """It waits by itself for the work before it."""
    fresh_device.library.emulator_be(major, driver)
    tensors = [samples.ordinary(torch.float32, count) for count in (7, 5000)]
    assert fresh_device.begin_all(tensors, STREAM) == 2
    check_taken(fresh_device, tensors)
    assert fresh_device.library.emulator_launches() == 1
    assert fresh_device.library.emulator_early_launches() == (1 if early else 0)


def test_more_than_a_launch_takes(device: DeviceLibrary) -> None:
    tensors = [samples.ordinary(torch.float32, 3 + n, seed=n) for n in range(40)]
    launches = device.library.emulator_launches()
    assert device.begin_all(tensors, STREAM) == 40
    assert device.library.emulator_launches() == launches + 3
    check_taken(device, tensors)


def test_large_ones_share_the_blocks(device: DeviceLibrary) -> None:
    tensors = [samples.ordinary(torch.float32, count, seed=count) for count in (70_001, 3, 30_000, 9000, 65)]
    for _ in range(2):  # the mailboxes are empty for the next launch
        assert device.begin_all(tensors, STREAM) == 5
        check_taken(device, tensors)


def test_strided_ones_of_many_dimensions(device: DeviceLibrary) -> None:
    tensors = [view(samples.ordinary(torch.float32, 1008, seed=4)) for view in VIEWS.values()] * 2
    assert device.begin_all(tensors, STREAM) == len(tensors)
    check_taken(device, tensors)


def test_numbers_alone(device: DeviceLibrary) -> None:
    tensors = [samples.ordinary(torch.float32, count) for count in (20, 5000)]
    assert device.begin_all(tensors, STREAM, wanted=NUMBERS) == 2
    found = device.take(STREAM)
    assert found is not None
    for result, tensor in zip(found, tensors, strict=True):
        everything = device.statistics(tensor, STREAM)
        assert (result.hash, result.shown()) == (0, b"")
        for field in ("numel", "n_nan", "n_zero", "min_bits", "max_index", "mean", "std", "nan_index"):
            assert getattr(result, field) == getattr(everything, field)


def test_hashes_of_elements_of_one_size_are_one_launch(device: DeviceLibrary) -> None:
    tensors = [torch.arange(300.0), torch.arange(300, dtype=torch.int32)]
    launches = device.library.emulator_launches()
    assert device.begin_all(tensors, STREAM, wanted=HASH) == 2
    assert device.library.emulator_launches() == launches + 1
    results = device.take(STREAM)
    assert results is not None
    expected = [device.statistics(tensor, STREAM).hash for tensor in tensors]
    assert [result.hash for result in results] == expected
    assert all(math.isnan(result.mean) for result in results)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32, torch.complex128])
@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.view(48, 64).t(),
        lambda x: x.view(64, 48).t(),
        lambda x: x.view(12, 16, 16).permute(2, 0, 1),
        lambda x: x.view(12, 16, 16).permute(1, 2, 0),
        lambda x: x.view(4, 12, 16, 4).permute(0, 3, 1, 2),
        lambda x: x.view(48, 64).t()[3:, :32],
        lambda x: x.view(48, 64)[:, ::2].t(),
        lambda x: x.view(3072, 1).expand(3072, 16).t(),
        lambda x: x[:1024].view(2, 512).t(),
    ],
    ids=["tall", "wide", "front", "back", "middle", "part", "apart", "expanded", "narrow"],
)
def test_hashes_of_rows_across_the_memory(
    device: DeviceLibrary, dtype: torch.dtype, view: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    tensor = view(samples.ordinary(dtype, 3072, seed=5))
    assert device.begin_all([tensor, tensor.contiguous()], STREAM, wanted=HASH) == 2
    results = device.take(STREAM)
    assert results is not None
    assert results[0].hash == results[1].hash == device.statistics(tensor, STREAM).hash


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
@pytest.mark.parametrize("shape", [(128, 256), (1000, 96), (256, 128), (97, 64), (3, 4096)], ids=str)
def test_first_elements_of_rows_across_the_memory(
    device: DeviceLibrary, dtype: torch.dtype, shape: tuple[int, int]
) -> None:
    rows, columns = shape
    tensor = samples.ordinary(dtype, rows * columns, seed=6).view(columns, rows).t()
    for place in ((rows // 2, columns - 1), (rows - 1, 0), (rows // 3, columns // 2)):
        tensor[place] = 100  # the largest, several times
        if dtype.is_floating_point:
            tensor[place[0], place[1] // 2] = torch.nan
    check(device.statistics(tensor, STREAM), tensor)


def test_what_cannot_be_read_leaves_the_others(device: DeviceLibrary) -> None:
    tensors = [torch.ones(10), torch.ones(20), torch.ones(30)]
    elsewhere = describe(tensors[1], device_index=1)
    assert device.begin_all([tensors[0], elsewhere, tensors[2]], STREAM) == 3
    results = device.take(STREAM)
    assert results is not None
    assert [result.flags for result in results] == [0, STATS_SKIPPED, 0]
    assert [result.numel for result in results] == [10, 20, 30]


def test_what_cannot_be_launched_says_so(device: DeviceLibrary) -> None:
    use_context(device, 1)
    assert device.begin(torch.ones(100), STREAM)
    device.library.emulator_fail(700)
    assert device.begin_all([torch.ones(100), torch.ones(100)], STREAM) == 2
    device.library.emulator_fail(0)
    results = device.take(STREAM)
    assert results is not None
    assert [result.flags for result in results] == [0, STATS_SKIPPED, STATS_SKIPPED]
    assert results[1].shown() == b"its statistics could not be enqueued"


@pytest.mark.parametrize("dtype", samples.DTYPES, ids=samples.name)
def test_every_dtype(device: DeviceLibrary, dtype: torch.dtype) -> None:
    tensors = [samples.ordinary(dtype, count, seed=count) for count in (1, 700, 64)]
    assert device.begin_all(tensors, STREAM) == 3
    check_taken(device, tensors)
