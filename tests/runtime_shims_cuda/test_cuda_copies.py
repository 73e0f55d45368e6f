"""Copies to host memory, on the fake device: contiguous ones, gathered ones, and their order in a stream."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import pytest
import torch

from tests.runtime_shims_cuda import reference, samples
from tests.runtime_shims_cuda.device_library import DeviceLibrary
from tests.runtime_shims_cuda.emulated import (
    allocated,
    fail_after_queued,
    finish,
    limit_memory,
    own_stream,
    queued,
    use_context,
)
from tests.runtime_shims_cuda.samples import VIEWS

CUDA_ERROR_ILLEGAL_ADDRESS = 700
STREAM = 0x5000


@pytest.fixture
def staging(device: DeviceLibrary) -> Iterator[int]:
    memory = device.library.harness_allocate_staging(1 << 16)
    ctypes.memset(memory, 0xEE, 1 << 16)
    yield memory
    finish(device)
    device.library.harness_free_staging(memory)


def copied(
    device: DeviceLibrary, tensor: torch.Tensor, staging: int, first: int, size: int, stream: int = STREAM
) -> bytes:
    ticket = device.begin_copy(tensor, staging, first, size, stream)
    assert ticket is not None
    assert device.wait_copy(ticket)
    return ctypes.string_at(staging, size)


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize(
    "dtype", [torch.uint8, torch.bfloat16, torch.float32, torch.complex64, torch.complex128], ids=samples.name
)
def test_every_view_arrives_in_row_major_order(
    device: DeviceLibrary, staging: int, dtype: torch.dtype, view: str
) -> None:
    tensor = VIEWS[view](samples.random_bits(dtype, 1008))
    data = reference.row_major_bytes(tensor)
    assert copied(device, tensor, staging, 0, len(data)) == data
    assert ctypes.string_at(staging + len(data), 1) == b"\xee"


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(("first", "size"), [(0, 1), (3, 10), (8, 16), (100, 331), (2000, 16), (2011, 5)])
def test_any_range_of_bytes(device: DeviceLibrary, staging: int, transposed: bool, first: int, size: int) -> None:
    tensor = samples.random_bits(torch.float64, 252).view(12, 21)
    tensor = tensor.t() if transposed else tensor
    assert copied(device, tensor, staging, first, size) == reference.row_major_bytes(tensor)[first : first + size]


def test_a_range_past_the_end_is_refused(device: DeviceLibrary, staging: int) -> None:
    tensor = torch.ones(10)
    assert device.begin_copy(tensor, staging, 30, 11) is None
    assert device.begin_copy(tensor, staging, 41, 0) == 0
    assert device.begin_copy(tensor, staging, 1 << 60, 1 << 62) is None


def test_indices_beyond_31_bits(device: DeviceLibrary, staging: int) -> None:
    row = samples.random_bits(torch.uint8, 1000)
    tensor = row.view(1000, 1, 1).expand(1000, 3000, 1000).transpose(1, 2)[:, 1:, :]
    assert tensor.numel() > 2**31
    first = 999 * 999 * 3000 - 500  # the last elements of row 998
    assert copied(device, tensor, staging, first, 1000) == bytes([row[998]]) * 500 + bytes([row[999]]) * 500


def test_a_large_tensor_is_gathered_piece_by_piece(device: DeviceLibrary) -> None:
    tensor = samples.random_bits(torch.int16, 18 << 20).view(1 << 10, 18 << 10).t()
    size = tensor.numel() * 2
    memory = device.library.harness_allocate_staging(size)
    launches = device.library.emulator_launches()
    first = 5
    assert copied(device, tensor, memory, first, size - first) == reference.row_major_bytes(tensor)[first:]
    assert device.library.emulator_launches() - launches == 3  # of 16 MiB each
    device.library.harness_free_staging(memory)


def test_what_comes_after_a_copy_does_not_show_in_it(device: DeviceLibrary, staging: int) -> None:
    tensor = torch.zeros(1000, dtype=torch.uint8)
    fill = device.library.emulator_fill
    fill.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint64]
    fill(STREAM, tensor.data_ptr(), 1, 1000)
    whole = device.begin_copy(tensor, staging, 0, 1000, STREAM)
    gathered = device.begin_copy(tensor[::2], staging + 1000, 0, 500, STREAM)
    fill(STREAM, tensor.data_ptr(), 2, 1000)
    assert ctypes.string_at(staging, 1500) == b"\xee" * 1500
    assert device.wait_copy(gathered)
    assert ctypes.string_at(staging, 1500) == b"\x01" * 1500
    assert device.wait_copy(whole)
    assert queued(device, STREAM) == 1


def test_a_ticket_is_good_once(device: DeviceLibrary, staging: int) -> None:
    ticket = device.begin_copy(torch.ones(10), staging, 0, 40, STREAM)
    assert device.wait_copy(ticket)
    assert not device.wait_copy(ticket)
    assert device.wait_copy(0)  # nothing was copied: nothing to wait for


def test_events_are_reused(device: DeviceLibrary, staging: int) -> None:
    tensor = torch.ones(10)
    copied(device, tensor, staging, 0, 40)
    events = device.library.emulator_events()
    for _ in range(20):
        copied(device, tensor, staging, 0, 40)
    assert device.library.emulator_events() == events


def test_a_thread_without_a_context_can_wait(device: DeviceLibrary, staging: int) -> None:
    tensor = samples.random_bits(torch.uint8, 100)
    ticket = device.begin_copy(tensor, staging, 0, 100, STREAM)
    use_context(device, 0)
    assert device.wait_copy(ticket)
    assert ctypes.string_at(staging, 100) == reference.row_major_bytes(tensor)
    memory = device.library.harness_allocate_staging(10)
    assert memory is not None
    device.library.harness_free_staging(memory)


def test_a_device_error_is_told(device: DeviceLibrary, staging: int) -> None:
    tensor = torch.ones(10)
    fail_after_queued(device, STREAM, CUDA_ERROR_ILLEGAL_ADDRESS)
    ticket = device.begin_copy(tensor, staging, 0, 40, STREAM)
    assert ticket is not None
    assert not device.wait_copy(ticket)
    assert device.begin_copy(tensor, staging, 0, 40, STREAM) is None
    assert device.begin_copy(tensor[::2], staging, 0, 20, STREAM) is None
    assert ctypes.string_at(staging, 40) == b"\xee" * 40


@pytest.mark.parametrize("step", [1, 2], ids=["contiguous", "gathered"])
def test_a_copy_from_before_a_fault_has_arrived(device: DeviceLibrary, staging: int, step: int) -> None:
    tensor = samples.random_bits(torch.float32, 20)[::step]
    data = reference.row_major_bytes(tensor)
    ticket = device.begin_copy(tensor, staging, 0, len(data), STREAM)
    fail_after_queued(device, STREAM, CUDA_ERROR_ILLEGAL_ADDRESS)
    finish(device)
    assert ticket is not None
    assert device.wait_copy(ticket)
    assert ctypes.string_at(staging, len(data)) == data


def test_gathering_is_bounded_over_all_streams(fresh_device: DeviceLibrary) -> None:
    data = samples.random_bits(torch.uint8, 1000)
    host = ctypes.create_string_buffer(500)
    refused = 0
    for stream in range(0x9000, 0x9000 + 45):
        ticket = fresh_device.begin_copy(data[::2], ctypes.addressof(host), 0, 500, stream)
        if ticket is None:
            refused += 1
        else:
            assert fresh_device.wait_copy(ticket)
            assert host.raw == reference.row_major_bytes(data[::2])
    assert allocated(fresh_device) <= 128 << 20
    assert refused == 45 - 6 - 32
    again = fresh_device.begin_copy(data[::2], ctypes.addressof(host), 0, 500, 0x9000)
    assert fresh_device.wait_copy(again)


def test_gathering_makes_do_with_little_memory(fresh_device: DeviceLibrary) -> None:
    tensor = samples.random_bits(torch.uint8, 6 << 20)[::2]
    host = ctypes.create_string_buffer(3 << 20)
    limit_memory(fresh_device, 100)
    assert fresh_device.begin_copy(tensor, ctypes.addressof(host), 0, 3 << 20, STREAM) is None
    limit_memory(fresh_device, 2 << 20)
    assert copied(fresh_device, tensor, ctypes.addressof(host), 0, 3 << 20) == reference.row_major_bytes(tensor)
    assert allocated(fresh_device) == 1 << 20


def test_a_stream_of_another_context(fresh_device: DeviceLibrary) -> None:
    own_stream(fresh_device, STREAM, 2)
    tensor = samples.random_bits(torch.uint8, 1000)
    host = ctypes.create_string_buffer(1000)
    assert copied(fresh_device, tensor, ctypes.addressof(host), 0, 1000) == reference.row_major_bytes(tensor)


def test_a_strided_tensor_of_another_device_is_refused(device: DeviceLibrary, staging: int) -> None:
    tensor = samples.random_bits(torch.uint8, 1000)[::2]
    use_context(device, 2)
    assert device.begin_copy(tensor, staging, 0, 500, STREAM) is None


def test_host_memory_is_written_after_what_was_enqueued(device: DeviceLibrary, staging: int) -> None:
    tensor = torch.arange(16, dtype=torch.uint8)
    ticket = device.begin_copy(tensor, staging, 0, 16, STREAM)
    assert ticket is not None
    assert device.write_memory(tensor.data_ptr() + 4, b"\xaa\xbb", STREAM)
    assert device.wait_copy(ticket)
    assert ctypes.string_at(staging, 16) == bytes(range(16))
    assert tensor.tolist() == [0, 1, 2, 3, 0xAA, 0xBB, *range(6, 16)]


def test_memory_of_a_broken_device_is_not_written(device: DeviceLibrary) -> None:
    tensor = torch.zeros(4)
    fail_after_queued(device, STREAM, CUDA_ERROR_ILLEGAL_ADDRESS)
    assert not device.write_memory(tensor.data_ptr(), b"\x01", STREAM)
    assert tensor.count_nonzero() == 0
    finish(device)
