"""Crumbs, graph capture, pending errors, and the ring of results, on the fake device."""

from __future__ import annotations

import ctypes
import mmap

import pytest
import torch

from tests.runtime_shims_cuda import reference, samples
from tests.runtime_shims_cuda.device_library import DeviceLibrary, describe
from tests.runtime_shims_cuda.emulated import (
    allocated,
    capture,
    crumb_words,
    fail_after_queued,
    finish,
    limit_memory,
    own_stream,
    queued,
    use_context,
)

CUDA_ERROR_ILLEGAL_ADDRESS = 700
STREAM = 0x7000
OTHER_STREAM = 0x7100
RING = 1024


@pytest.fixture
def crumbs(device: DeviceLibrary) -> ctypes.Array[ctypes.c_uint32]:
    return crumb_words(device)


def run(device: DeviceLibrary, stream: int = STREAM) -> None:
    assert device.take(stream, wait=True) is not None


def test_a_crumb_is_written_in_stream_order(device: DeviceLibrary, crumbs: ctypes.Array[ctypes.c_uint32]) -> None:
    tensor = torch.ones(10)
    assert device.library.harness_write_crumb(STREAM, 64, 7)
    assert device.begin(tensor, STREAM)
    fail_after_queued(device, STREAM, CUDA_ERROR_ILLEGAL_ADDRESS)
    assert device.library.harness_write_crumb(STREAM, 64, 8)
    assert crumbs[16] == 0
    assert device.pending_error(STREAM) == (0, "")
    assert device.take(STREAM, wait=True) is None
    assert crumbs[16] == 7
    arrived = device.take(STREAM, wait=False)
    assert arrived is not None
    assert len(arrived) == 1
    finish(device)


def test_streams_have_their_own_order(device: DeviceLibrary, crumbs: ctypes.Array[ctypes.c_uint32]) -> None:
    assert device.begin(torch.ones(10), STREAM)
    assert device.library.harness_write_crumb(OTHER_STREAM, 0, 1)
    assert device.library.harness_write_crumb(STREAM, 128, 2)
    run(device)
    assert (crumbs[0], crumbs[32]) == (0, 2)
    finish(device)


def test_memory_that_is_registered_already_will_do(
    device: DeviceLibrary, crumbs: ctypes.Array[ctypes.c_uint32]
) -> None:
    assert device.library.harness_register_crumbs(ctypes.addressof(crumbs), 4096)
    assert device.begin(torch.ones(10), STREAM)
    assert device.library.harness_write_crumb(STREAM, 4, 9)
    run(device)
    assert crumbs[1] == 9


def test_without_a_context_nothing_is_enqueued(device: DeviceLibrary, crumbs: ctypes.Array[ctypes.c_uint32]) -> None:
    use_context(device, 0)
    assert not device.library.harness_write_crumb(STREAM, 0, 1)
    assert not device.library.harness_register_crumbs(ctypes.addressof(crumbs), 4096)
    assert not device.begin(torch.ones(10), STREAM)
    assert device.take(STREAM) == []
    assert device.pending_error(STREAM) == (0, "")


def test_the_flight_recorder_copies_in_stream_order_and_has_words_of_its_own(fresh_device: DeviceLibrary) -> None:
    library = fresh_device.library
    memories = mmap.mmap(-1, 4096), mmap.mmap(-1, 4096)
    words, crumbs = ((ctypes.c_uint32 * 1024).from_buffer(memory) for memory in memories)
    base = ctypes.addressof(words)
    assert library.harness_register_flight(base, 4096)
    assert library.harness_register_crumbs(ctypes.addressof(crumbs), 4096)
    tensor = torch.arange(8, dtype=torch.int32)
    own_stream(fresh_device, STREAM, 2)  # of a context that is not current
    for stream in (STREAM, OTHER_STREAM):
        assert library.harness_copy_to_flight(stream, tensor.data_ptr(), 32, base + 64)
        assert library.harness_write_flight(stream, 0, 5)
        assert library.harness_write_crumb(stream, 0, 6)
        assert (words[0], words[17], crumbs[0]) == (0, 0, 0)
        library.emulator_finish()
        assert (words[0], list(words[16:24]), crumbs[0]) == (5, list(range(8)), 6)
        words[0] = words[17] = crumbs[0] = 0


def test_the_flight_recorder_after_a_fault(device: DeviceLibrary) -> None:
    words = (ctypes.c_uint32 * 1024).from_buffer(mmap.mmap(-1, 4096))
    assert device.library.harness_register_flight(ctypes.addressof(words), 4096)
    tensor = torch.ones(8, dtype=torch.int32)
    place = ctypes.addressof(words) + 64
    assert device.library.harness_copy_to_flight(STREAM, tensor.data_ptr(), 4, place)
    fail_after_queued(device, STREAM, CUDA_ERROR_ILLEGAL_ADDRESS)
    assert device.library.harness_copy_to_flight(STREAM, tensor.data_ptr(), 32, place)
    device.library.emulator_finish()
    assert list(words[16:24]) == [1, 0, 0, 0, 0, 0, 0, 0]
    assert not device.library.harness_copy_to_flight(STREAM, tensor.data_ptr(), 32, place)
    finish(device)


@pytest.mark.parametrize(("status", "query", "expected"), [(0, 0, 0), (1, 0, 1), (2, 0, 1), (0, 906, 1), (0, 700, 0)])
def test_capture(device: DeviceLibrary, status: int, query: int, expected: int) -> None:
    capture(device, STREAM, status, query)
    try:
        assert device.library.harness_is_capturing(STREAM) == expected
        assert device.pending_error(STREAM) == (0, "")  # the emulator aborts on a query of a capturing stream
    finally:
        capture(device, STREAM, 0)


@pytest.mark.parametrize(
    ("error", "text"),
    [(700, "CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered"), (4711, "CUDA error 4711")],
)
def test_a_pending_error_has_its_name(device: DeviceLibrary, error: int, text: str) -> None:
    device.library.emulator_fail(error)
    assert device.pending_error(STREAM) == (error, text)


def test_a_long_error_is_cut(device: DeviceLibrary) -> None:
    device.library.emulator_fail(CUDA_ERROR_ILLEGAL_ADDRESS)
    text = ctypes.create_string_buffer(b"x" * 30, 30)
    assert device.library.harness_pending_error(STREAM, text, 11) == CUDA_ERROR_ILLEGAL_ADDRESS
    assert text.raw[:12] == b"CUDA_ERROR\0x"


def test_only_a_cuda_device_is_owned(device: DeviceLibrary) -> None:
    assert [device.library.harness_owns(kind) for kind in (0, 1, 2)] == [0, 1, 0]


def test_results_come_in_order_and_only_when_they_are_there(device: DeviceLibrary) -> None:
    tensors = [samples.ordinary(torch.float32, n) for n in (10, 0, 300, 1)]
    assert all(device.begin(tensor, STREAM) for tensor in tensors)
    assert device.take(STREAM, wait=False) == []  # the empty tensor's is known, and waits for its turn
    first = device.take(STREAM, capacity=3)
    assert first is not None
    last = device.take(STREAM, wait=False)
    assert last is not None
    assert [result.numel for result in (*first, *last)] == [10, 0, 300, 1]
    assert device.take(STREAM) == []


def test_a_full_ring_refuses_until_results_are_taken(device: DeviceLibrary) -> None:
    tensor = torch.arange(3.0)
    described = describe(tensor)
    begin = device.library.harness_begin_stats_many
    assert begin(STREAM, ctypes.byref(described.view), RING + 5) == RING
    launches = device.library.emulator_launches()
    assert not device.begin(described, STREAM)
    assert device.library.emulator_launches() == launches
    taken = device.take(STREAM, capacity=100)
    assert taken is not None
    assert len(taken) == 100
    assert begin(STREAM, ctypes.byref(described.view), RING) == 100
    rest = device.take(STREAM, capacity=2 * RING)
    assert rest is not None
    assert len(rest) == RING
    assert {result.hash for result in (*taken, *rest)} == {reference.of(tensor).hash}


def test_streams_have_their_own_results(device: DeviceLibrary) -> None:
    assert device.begin(torch.ones(10), STREAM)
    assert device.begin(torch.ones(20), OTHER_STREAM)
    other, mine = device.take(OTHER_STREAM), device.take(STREAM)
    assert other is not None
    assert mine is not None
    assert ([result.numel for result in other], [result.numel for result in mine]) == ([20], [10])


def test_a_module_is_loaded_when_it_is_needed_and_once_a_context(device: DeviceLibrary) -> None:
    use_context(device, 5)
    loads = device.library.emulator_module_loads()
    tensor = describe(torch.ones(10, dtype=torch.float16), device_index=4)
    for _ in range(3):
        assert device.statistics(tensor, STREAM).numel == 10
    assert device.library.emulator_module_loads() == loads + 1
    use_context(device, 6)
    assert device.statistics(describe(torch.ones(10, dtype=torch.float16), device_index=5), STREAM).numel == 10
    assert device.library.emulator_module_loads() == loads + 2


def test_levels_without_kernels_load_none(device: DeviceLibrary, crumbs: ctypes.Array[ctypes.c_uint32]) -> None:
    use_context(device, 7)
    loads, memory = device.library.emulator_module_loads(), allocated(device)
    assert device.library.harness_register_crumbs(ctypes.addressof(crumbs), 4096)
    assert device.library.harness_write_crumb_many(STREAM, 0, 1, 1000)
    assert device.pending_error(STREAM) == (0, "")
    assert queued(device, STREAM) == 1000
    assert (device.library.emulator_module_loads(), allocated(device)) == (loads, memory)
    finish(device)


def test_without_memory_statistics_are_refused(fresh_device: DeviceLibrary) -> None:
    limit_memory(fresh_device, 100)
    assert not fresh_device.begin(torch.ones(10))
    limit_memory(fresh_device, 1 << 30)
    assert fresh_device.statistics(torch.ones(10)).mean == 1


def test_a_stream_of_another_context(fresh_device: DeviceLibrary) -> None:
    words = (ctypes.c_uint32 * 1024)()
    assert fresh_device.library.harness_register_crumbs(ctypes.addressof(words), 4096)
    own_stream(fresh_device, STREAM, 2)
    tensor = describe(torch.ones(10), device_index=1)
    for current in (1, 2, 0):
        use_context(fresh_device, current)
        assert fresh_device.library.harness_write_crumb(STREAM, 8, 10 + current)
        assert fresh_device.statistics(tensor, STREAM).mean == 1
        assert words[2] == 10 + current
