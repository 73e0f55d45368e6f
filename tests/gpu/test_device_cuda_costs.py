"""What the CUDA half of the runtime costs on a real device: printed, not asserted."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable

import pytest
import torch
from runtime_shims_cuda import samples
from runtime_shims_cuda.device_library import HASH, DeviceLibrary, describe
from runtime_shims_cuda.gpu_device import libcuda, stream_of

pytest_plugins = ("runtime_shims_cuda.gpu_fixtures",)
pytestmark = pytest.mark.cuda


def per_call(work: Callable[[], object], calls: int) -> tuple[float, float]:
    """Seconds on the device and on the host, of one call."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    start.record()
    began = time.perf_counter()
    for _ in range(calls):
        work()
    on_host = (time.perf_counter() - began) / calls
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / 1e3 / calls, on_host


def begin_all(gpu: DeviceLibrary, tensor: torch.Tensor, count: int, *, counted: bool = True) -> None:
    described = describe(tensor)
    if not counted:
        for _ in range(count):
            assert gpu.library.harness_begin_stats(stream_of(), ctypes.byref(described.view), 1, HASH)
    else:
        assert gpu.library.harness_begin_stats_many(stream_of(), ctypes.byref(described.view), count) == count


def drain(gpu: DeviceLibrary) -> None:
    while gpu.take(capacity=1024):
        pass


def test_print_bandwidths(gpu: DeviceLibrary, capsys: pytest.CaptureFixture[str]) -> None:
    lines = []
    size = 1 << 30
    for dtype in samples.DTYPES:
        count = size // dtype.itemsize
        if dtype in samples.FLOATS and dtype.itemsize > 1:
            tensor = torch.randn(count, device="cuda").to(dtype)
        else:  # finite numbers in every dtype
            tensor = torch.randint(0, 2, (size,), dtype=torch.uint8, device="cuda").view(dtype)
        begin_all(gpu, tensor, 2)
        drain(gpu)
        seconds, _ = per_call(lambda tensor=tensor: begin_all(gpu, tensor, 10), 1)
        drain(gpu)
        lines.append(f"statistics of 1 GiB of {samples.name(dtype):16s} {size * 10 / seconds / 1e12:6.2f} TB/s")
        del tensor
    square = torch.randn(16384, 16384, device="cuda")
    cases = {"transposed": square.t(), "sliced": square[:, 1:-1], "every other row": square[::2]}
    for name, tensor in cases.items():
        begin_all(gpu, tensor, 1)
        seconds, _ = per_call(lambda tensor=tensor: begin_all(gpu, tensor, 4), 1)
        drain(gpu)
        lines.append(f"statistics of float32, {name:16s} {tensor.numel() * 16 / seconds / 1e12:6.2f} TB/s")
    begin_all(gpu, square, 1, counted=False)
    seconds, _ = per_call(lambda: begin_all(gpu, square, 10, counted=False), 1)
    drain(gpu)
    lines.append(f"hash alone of 1 GiB                     {square.nbytes * 10 / seconds / 1e12:6.2f} TB/s")
    begin_all(gpu, square.t(), 1, counted=False)
    seconds, _ = per_call(lambda: begin_all(gpu, square.t(), 10, counted=False), 1)
    drain(gpu)
    lines.append(f"hash alone of 1 GiB, transposed         {square.nbytes * 10 / seconds / 1e12:6.2f} TB/s")
    with_specials = square.clone()
    with_specials[:, ::2] = -torch.inf
    seconds, _ = per_call(lambda: begin_all(gpu, with_specials, 10), 1)
    drain(gpu)
    lines.append(f"float32, every other one infinite       {square.nbytes * 10 / seconds / 1e12:6.2f} TB/s")
    with capsys.disabled():
        print("", *lines, sep="\n")


def test_print_costs(
    gpu: DeviceLibrary, crumbs: ctypes.Array[ctypes.c_uint32], capsys: pytest.CaptureFixture[str]
) -> None:
    assert crumbs[0] == 0
    lines = []
    for count in (1, 64, 1000, 10_000, 100_000, 1_000_000, 10_000_000):
        tensor = torch.randn(count, device="cuda")
        begin_all(gpu, tensor, 10)
        drain(gpu)
        on_device, on_host = per_call(lambda tensor=tensor: begin_all(gpu, tensor, 500), 1)
        drain(gpu)
        lines.append(
            f"statistics of {count:9d} float32: {on_device / 500 * 1e6:7.2f} µs on the device, "
            f"{on_host / 500 * 1e6:6.2f} µs to enqueue"
        )
    many = 20_000
    gpu.library.harness_write_crumb_many(stream_of(), 0, 1, 100)
    on_device, on_host = per_call(lambda: gpu.library.harness_write_crumb_many(stream_of(), 0, 1, many), 1)
    lines.append(f"a crumb: {on_device / many * 1e6:.2f} µs on the device, {on_host / many * 1e6:.2f} µs to enqueue")
    lines.append(write_value_line(crumbs))
    for name, tensor in _copied_tensors().items():
        memory = gpu.library.harness_allocate_staging(tensor.nbytes)
        for _ in range(2):
            began = time.perf_counter()
            ticket = gpu.begin_copy(tensor, memory, 0, tensor.nbytes, stream_of())
            assert ticket is not None
            assert gpu.wait_copy(ticket)
            seconds = time.perf_counter() - began
        gpu.library.harness_free_staging(memory)
        lines.append(f"a copy of 256 MiB, {name}: {tensor.nbytes / seconds / 1e9:.1f} GB/s")
    with capsys.disabled():
        print("", *lines, sep="\n")


def _copied_tensors() -> dict[str, torch.Tensor]:
    square = torch.randn(8192, 8192, device="cuda")
    return {"contiguous": square, "transposed": square.t()}


def write_value_line(crumbs: ctypes.Array[ctypes.c_uint32]) -> str:
    """What the driver's own way to store a word in the order of a stream costs."""
    driver = ctypes.CDLL(str(libcuda()))
    address = ctypes.c_uint64()
    words = ctypes.c_void_p(ctypes.addressof(crumbs))
    assert driver.cuMemHostGetDevicePointer_v2(ctypes.byref(address), words, 0) == 0
    driver.cuStreamWriteValue32_v2.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint]
    on_device, on_host = per_call(lambda: driver.cuStreamWriteValue32_v2(stream_of(), address.value, 1, 0), 20_000)
    return (
        f"cuStreamWriteValue32: {on_device * 1e6:.2f} µs on the device, {on_host * 1e6:.2f} µs to enqueue from Python"
    )
