"""The CUDA half of the runtime on a real device: statistics and copies, through ctypes."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable

import pytest
import torch

from tests.runtime_shims_cuda import reference, samples
from tests.runtime_shims_cuda.checks import check, check_twins
from tests.runtime_shims_cuda.device_library import HASH, DeviceLibrary, HostLibrary
from tests.runtime_shims_cuda.gpu_device import LONG, stream_of

pytest_plugins = ("tests.runtime_shims_cuda.gpu_fixtures",)
pytestmark = pytest.mark.cuda

MANY = 10_000_000


# ---- statistics


@pytest.mark.parametrize("dtype", samples.DTYPES, ids=samples.name)
@pytest.mark.parametrize("count", [0, 1, 2, 64, 65, 1000, 70001])
def test_every_dtype_and_size(gpu: DeviceLibrary, dtype: torch.dtype, count: int) -> None:
    tensor = samples.ordinary(dtype, count, seed=count).cuda()
    check(gpu.statistics(tensor), tensor)


@pytest.mark.parametrize("dtype", samples.DTYPES, ids=samples.name)
def test_ten_million_elements(gpu: DeviceLibrary, host: HostLibrary, dtype: torch.dtype) -> None:
    tensor = samples.ordinary(dtype, MANY)
    check_twins(gpu.statistics(tensor.cuda()), host.statistics(tensor), dtype)


@pytest.mark.parametrize("dtype", samples.DTYPES, ids=samples.name)
def test_ten_million_elements_of_any_bits(gpu: DeviceLibrary, host: HostLibrary, dtype: torch.dtype) -> None:
    tensor = samples.random_bits(dtype, MANY + 3)
    check_twins(gpu.statistics(tensor.cuda()), host.statistics(tensor), dtype)


@pytest.mark.parametrize("view", samples.VIEWS)
@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.int8, torch.float16, torch.int64, torch.complex128], ids=samples.name
)
def test_strided_views(gpu: DeviceLibrary, dtype: torch.dtype, view: str) -> None:
    tensor = samples.VIEWS[view](samples.ordinary(dtype, 1008, seed=3).cuda())
    check(gpu.statistics(tensor), tensor)


LARGE_VIEWS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "transposed": lambda t: t.t(),
    "slice": lambda t: t[:, 7:-5],
    "every third": lambda t: t.flatten()[1::3],
    "permuted": lambda t: t.view(32, 64, 16, 128).permute(2, 0, 3, 1),
    "unaligned": lambda t: t.flatten()[1:],
}


@pytest.mark.parametrize("view", LARGE_VIEWS)
@pytest.mark.parametrize("dtype", [torch.uint8, torch.bfloat16, torch.float32, torch.float64], ids=samples.name)
def test_large_views(gpu: DeviceLibrary, host: HostLibrary, dtype: torch.dtype, view: str) -> None:
    whole = samples.ordinary(dtype, 2048 * 2048).view(2048, 2048)
    on_device, on_host = LARGE_VIEWS[view](whole.cuda()), LARGE_VIEWS[view](whole)
    check_twins(gpu.statistics(on_device), host.statistics(on_host.contiguous()), dtype)


@pytest.mark.parametrize(
    "numbers", [[1e300, -1e300, 3e300], [1e-300, 2e-300, -5e-300], [1e16 + 2 * i for i in range(5000)], [0.1] * 5000]
)
def test_moments_of_doubles_stay_in_range(gpu: DeviceLibrary, numbers: list[float]) -> None:
    tensor = torch.tensor(numbers, dtype=torch.float64)
    result, expected = gpu.statistics(tensor.cuda()), reference.of(tensor)
    assert result.mean == pytest.approx(expected.mean, rel=1e-14, abs=expected.std * 1e-14)
    assert result.std == pytest.approx(expected.std, rel=1e-13, abs=abs(expected.mean) * 1e-17)


def test_the_same_tensor_gives_the_same_bits(gpu: DeviceLibrary) -> None:
    tensor = torch.randn(3_000_001, device="cuda")
    first, *others = (bytes(gpu.statistics(tensor)) for _ in range(5))
    assert all(other == first for other in others)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float16, torch.float32, torch.float64, torch.complex128])
def test_without_statistics_there_are_hash_and_values(gpu: DeviceLibrary, dtype: torch.dtype) -> None:
    for tensor in (samples.ordinary(dtype, 64).cuda(), samples.ordinary(dtype, 3000).view(30, 100).t().cuda()):
        result = gpu.statistics(tensor, wanted=HASH)
        data = reference.row_major_bytes(tensor)
        assert (result.hash, result.numel) == (reference.content_hash(data), tensor.numel())
        assert result.shown() == (data if tensor.numel() <= 64 else b"")


def test_statistics_are_of_the_moment_on_the_stream(gpu: DeviceLibrary) -> None:
    stream = torch.cuda.Stream()
    tensor = torch.zeros(1 << 20, device="cuda")
    torch.cuda.synchronize()
    gpu.statistics(tensor, stream_of(stream))  # memory and module of the stream are there from now on
    with torch.cuda.stream(stream):
        torch.cuda._sleep(LONG)
        for value in range(1, 4):
            tensor.fill_(value)
            assert gpu.begin(tensor, stream_of(stream))
        tensor.fill_(9)
    assert gpu.take(stream_of(stream), wait=False) == []
    results = gpu.take(stream_of(stream))
    assert results is not None
    assert [result.mean for result in results] == [1, 2, 3]


def test_more_results_than_the_ring_holds(gpu: DeviceLibrary) -> None:
    tensors = [torch.full((n + 1,), float(n), device="cuda") for n in range(1500)]
    means: list[float] = []
    for tensor in tensors:
        while not gpu.begin(tensor):
            taken = gpu.take()
            assert taken
            means += [result.mean for result in taken]
    while taken := gpu.take():
        means += [result.mean for result in taken]
    assert means == [float(n) for n in range(1500)]


def test_threads_with_their_own_streams(gpu: DeviceLibrary) -> None:
    wrong: list[object] = []

    def work(value: float) -> None:
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            tensor = torch.full((1 << 18,), value, device="cuda")
            for _ in range(200):
                result = gpu.statistics(tensor, stream_of(stream))
                if (result.mean, result.std, result.max_index) != (value, 0, 0):
                    wrong.append(result.mean)

    threads = [threading.Thread(target=work, args=(float(n),)) for n in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


# ---- copies


def copied(gpu: DeviceLibrary, tensor: torch.Tensor, staging: int, first: int, size: int) -> bytes:
    ticket = gpu.begin_copy(tensor, staging, first, size, stream_of())
    assert ticket is not None
    assert gpu.wait_copy(ticket)
    return ctypes.string_at(staging, size)


@pytest.mark.parametrize("view", samples.VIEWS)
@pytest.mark.parametrize(
    "dtype", [torch.uint8, torch.bfloat16, torch.float32, torch.complex64, torch.complex128], ids=samples.name
)
def test_copies_of_views(gpu: DeviceLibrary, staging: int, dtype: torch.dtype, view: str) -> None:
    tensor = samples.VIEWS[view](samples.random_bits(dtype, 1008).cuda())
    data = reference.row_major_bytes(tensor)
    assert copied(gpu, tensor, staging, 0, len(data)) == data
    if len(data) > 20:
        assert copied(gpu, tensor, staging, 5, len(data) - 9) == data[5:-4]


@pytest.mark.parametrize("view", ["whole", *LARGE_VIEWS])
def test_copies_of_large_tensors(gpu: DeviceLibrary, staging: int, view: str) -> None:
    whole = samples.random_bits(torch.float64, 2048 * 2048).view(2048, 2048).cuda()
    tensor = whole if view == "whole" else LARGE_VIEWS[view](whole)
    data = reference.row_major_bytes(tensor)
    assert copied(gpu, tensor, staging, 0, len(data)) == data


def test_a_copy_of_more_than_two_billion_elements(gpu: DeviceLibrary, staging: int) -> None:
    row = samples.random_bits(torch.uint8, 1000).cuda()
    tensor = row.view(1000, 1, 1).expand(1000, 3000, 1000).transpose(1, 2)[:, 1:, :]
    first = 999 * 999 * 3000 - 500
    assert copied(gpu, tensor, staging, first, 1000) == bytes([row[998].item()]) * 500 + bytes([row[999].item()]) * 500


def test_what_comes_after_a_copy_does_not_show_in_it(gpu: DeviceLibrary, staging: int) -> None:
    tensor = torch.zeros(1 << 20, dtype=torch.uint8, device="cuda")
    torch.cuda._sleep(LONG)
    tensor.fill_(1)
    tickets = [
        gpu.begin_copy(tensor, staging, 0, 1 << 20, stream_of()),
        gpu.begin_copy(tensor[::2], staging + (1 << 20), 0, 1 << 19, stream_of()),
    ]
    tensor.fill_(2)
    assert all(ticket and gpu.wait_copy(ticket) for ticket in tickets)
    assert ctypes.string_at(staging, 3 << 19) == b"\x01" * (3 << 19)


def test_a_thread_that_never_used_cuda_can_wait(gpu: DeviceLibrary, staging: int) -> None:
    tensor = samples.random_bits(torch.uint8, 1 << 20).cuda()
    ticket = gpu.begin_copy(tensor, staging, 0, 1 << 20, stream_of())
    assert ticket is not None
    found: list[object] = []

    def work() -> None:
        found.append(gpu.wait_copy(ticket))
        memory = gpu.library.harness_allocate_staging(1 << 20)
        found.append(memory is not None)
        gpu.library.harness_free_staging(memory)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [True, True]
    assert ctypes.string_at(staging, 1 << 20) == reference.row_major_bytes(tensor)
