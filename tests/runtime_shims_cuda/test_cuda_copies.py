"""Copies to host memory, on the make-believe device: contiguous ones, gathered ones, and their order in a stream."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import pytest
import torch
from runtime_shims_cuda import reference, samples
from runtime_shims_cuda.conftest import finish, use_context
from runtime_shims_cuda.device_library import DeviceLibrary
from runtime_shims_cuda.test_cuda_statistics import VIEWS

CUDA_ERROR_ILLEGAL_ADDRESS = 700
STREAM = 0x5000


@pytest.fixture
def host(device: DeviceLibrary) -> Iterator[int]:
    memory = device.library.harness_allocate_staging(1 << 16)
    ctypes.memset(memory, 0xEE, 1 << 16)
    yield memory
    finish(device)
    device.library.harness_free_staging(memory)


def copied(device: DeviceLibrary, tensor: torch.Tensor, host: int, first: int, size: int, stream: int = STREAM) -> bytes:
    ticket = device.begin_copy(tensor, host, first, size, stream)
    assert ticket is not None
    assert device.wait_copy(ticket)
    return ctypes.string_at(host, size)


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize(
    "dtype", [torch.uint8, torch.bfloat16, torch.float32, torch.complex64, torch.complex128], ids=samples.name
)
def test_every_view_arrives_in_row_major_order(device: DeviceLibrary, host: int, dtype: torch.dtype, view: str) -> None:
    tensor = VIEWS[view](samples.random_bits(dtype, 1008))
    data = reference.row_major_bytes(tensor)
    assert copied(device, tensor, host, 0, len(data)) == data
    assert ctypes.string_at(host + len(data), 1) == b"\xee"


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(("first", "size"), [(0, 1), (3, 10), (8, 16), (100, 331), (2000, 16), (2011, 5)])
def test_any_range_of_bytes(device: DeviceLibrary, host: int, transposed: bool, first: int, size: int) -> None:
    tensor = samples.random_bits(torch.float64, 252).view(12, 21)
    tensor = tensor.t() if transposed else tensor
    assert copied(device, tensor, host, first, size) == reference.row_major_bytes(tensor)[first : first + size]


def test_a_range_past_the_end_is_refused(device: DeviceLibrary, host: int) -> None:
    tensor = torch.ones(10)
    assert device.begin_copy(tensor, host, 30, 11) is None
    assert device.begin_copy(tensor, host, 41, 0) == 0
    assert device.begin_copy(tensor, host, 1 << 60, 1 << 62) is None


def test_indices_beyond_31_bits(device: DeviceLibrary, host: int) -> None:
    row = samples.random_bits(torch.uint8, 1000)
    tensor = row.view(1000, 1, 1).expand(1000, 3000, 1000).transpose(1, 2)[:, 1:, :]
    assert tensor.numel() > 2**31
    first = 999 * 999 * 3000 - 500  # the last elements of row 998
    assert copied(device, tensor, host, first, 1000) == bytes([row[998]]) * 500 + bytes([row[999]]) * 500


def test_a_large_tensor_is_gathered_piece_by_piece(device: DeviceLibrary) -> None:
    tensor = samples.random_bits(torch.int16, 18 << 20).view(1 << 10, 18 << 10).t()
    size = tensor.numel() * 2
    memory = device.library.harness_allocate_staging(size)
    launches = device.library.emulator_launches()
    first = 5
    assert copied(device, tensor, memory, first, size - first) == reference.row_major_bytes(tensor)[first:]
    assert device.library.emulator_launches() - launches == 3  # of 16 MiB each
    device.library.harness_free_staging(memory)


def test_what_comes_after_a_copy_does_not_show_in_it(device: DeviceLibrary, host: int) -> None:
    tensor = torch.zeros(1000, dtype=torch.uint8)
    fill = device.library.emulator_fill
    fill.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint64]
    fill(STREAM, tensor.data_ptr(), 1, 1000)
    whole = device.begin_copy(tensor, host, 0, 1000, STREAM)
    gathered = device.begin_copy(tensor[::2], host + 1000, 0, 500, STREAM)
    fill(STREAM, tensor.data_ptr(), 2, 1000)
    assert ctypes.string_at(host, 1500) == b"\xee" * 1500
    assert device.wait_copy(gathered)
    assert ctypes.string_at(host, 1500) == b"\x01" * 1500
    assert device.wait_copy(whole)
    assert device.library.emulator_queued(ctypes.c_void_p(STREAM)) == 1


def test_a_ticket_is_good_once(device: DeviceLibrary, host: int) -> None:
    ticket = device.begin_copy(torch.ones(10), host, 0, 40, STREAM)
    assert device.wait_copy(ticket)
    assert not device.wait_copy(ticket)
    assert device.wait_copy(0)  # nothing was copied: nothing to wait for


def test_events_are_reused(device: DeviceLibrary, host: int) -> None:
    tensor = torch.ones(10)
    copied(device, tensor, host, 0, 40)
    events = device.library.emulator_events()
    for _ in range(20):
        copied(device, tensor, host, 0, 40)
    assert device.library.emulator_events() == events


def test_a_thread_without_a_context_can_wait(device: DeviceLibrary, host: int) -> None:
    tensor = samples.random_bits(torch.uint8, 100)
    ticket = device.begin_copy(tensor, host, 0, 100, STREAM)
    use_context(device, 0)
    assert device.wait_copy(ticket)
    assert ctypes.string_at(host, 100) == reference.row_major_bytes(tensor)
    memory = device.library.harness_allocate_staging(10)
    assert memory is not None
    device.library.harness_free_staging(memory)


def test_a_device_error_is_told(device: DeviceLibrary, host: int) -> None:
    tensor = torch.ones(10)
    device.library.emulator_fail_after_queued(ctypes.c_void_p(STREAM), CUDA_ERROR_ILLEGAL_ADDRESS)
    ticket = device.begin_copy(tensor, host, 0, 40, STREAM)
    assert ticket is not None
    assert not device.wait_copy(ticket)
    assert device.begin_copy(tensor, host, 0, 40, STREAM) is None
    assert device.begin_copy(tensor[::2], host, 0, 20, STREAM) is None
    assert ctypes.string_at(host, 40) == b"\xee" * 40


def test_gathering_is_bounded_over_all_streams(device: DeviceLibrary, host: int) -> None:
    tensor = samples.random_bits(torch.uint8, 1000)[::2]
    before = device.library.emulator_allocated()
    for stream in range(0x9000, 0x9000 + 40):
        ticket = device.begin_copy(tensor, host, 0, 500, stream)
        if ticket is not None:
            assert device.wait_copy(ticket)
    assert device.library.emulator_allocated() - before <= 128 << 20


def test_gathering_makes_do_with_little_memory(device: DeviceLibrary, host: int) -> None:
    limit = device.library.emulator_limit_memory
    limit.argtypes = [ctypes.c_uint64]
    tensor = samples.random_bits(torch.uint8, 1000)[::2]
    use_context(device, 2)
    limit(100)
    try:
        assert device.begin_copy(tensor, host, 0, 500, STREAM) is None
    finally:
        limit(2**64 - 1)
