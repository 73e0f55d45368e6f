"""Measures what the CUDA half of the runtime costs on a GPU: statistics, hashes, breadcrumbs, copies to the host.

usage: python -m benchmarks.performance.device_costs [--only SECTION ...] [--largest BYTES]

Prints three Markdown tables: how fast statistics and hashes read a large tensor of each dtype and layout; what a small
tensor and a breadcrumb take on the device and on the host; how fast tensors are copied. The runtime's device half is
called through a small library, without a model. It needs a CUDA device, and a compiler that links what torch links.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import platform
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from tests.runtime_shims_cuda import samples
from tests.runtime_shims_cuda.device_library import HASH, DeviceLibrary, describe
from tests.runtime_shims_cuda.gpu_device import PAGE, build, libcuda, shared_words, stream_of

LARGEST = 1 << 30  # bytes
SMALL = (1, 64, 1000, 10_000, 100_000, 1_000_000, 10_000_000)  # elements, float32
CALLS = 500  # of one small tensor
CRUMBS = 20_000

Work = Callable[[], object]


class Device:
    """The device half of the runtime, with the words of its breadcrumbs."""

    def __init__(self, folder: Path) -> None:
        self._gpu = DeviceLibrary(build(folder / "device_cuda.so"))
        path = Path(f"/dev/shm/device_costs-{os.getpid()}")
        self._words = shared_words(path)
        path.unlink()
        if not self._gpu.library.harness_register_crumbs(ctypes.addressof(self._words), PAGE):
            raise SystemExit("the device cannot write to shared memory")

    def measure(self, tensor: Tensor, count: int) -> None:
        """Enqueues the statistics of a tensor so many times."""
        described = describe(tensor)
        begun = self._gpu.library.harness_begin_stats_many(stream_of(), ctypes.byref(described.view), count)
        if begun != count:
            raise RuntimeError(f"{begun} of {count} statistics of {tensor.dtype} were enqueued")

    def hash(self, tensor: Tensor, count: int) -> None:
        """Enqueues the hash of a tensor so many times."""
        described = describe(tensor)
        for _ in range(count):
            if not self._gpu.library.harness_begin_stats(stream_of(), ctypes.byref(described.view), 1, HASH):
                raise RuntimeError(f"the hash of {tensor.dtype} was not enqueued")

    def drain(self) -> None:
        """Waits for all results and forgets them."""
        while self._gpu.take(capacity=1024):
            pass

    def write_crumbs(self, count: int) -> None:
        self._gpu.library.harness_write_crumb_many(stream_of(), 0, 1, count)

    def write_value(self) -> Work:
        """The driver's own way to store a word in the order of a stream."""
        driver = ctypes.CDLL(str(libcuda()))
        address = ctypes.c_uint64()
        words = ctypes.c_void_p(ctypes.addressof(self._words))
        if driver.cuMemHostGetDevicePointer_v2(ctypes.byref(address), words, 0) != 0:
            raise RuntimeError("the driver knows no address of the words")
        driver.cuStreamWriteValue32_v2.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint]
        return lambda: driver.cuStreamWriteValue32_v2(stream_of(), address.value, 1, 0)

    def copy_seconds(self, tensor: Tensor) -> float:
        """The time of a copy to the host, the second of two."""
        memory = self._gpu.library.harness_allocate_staging(tensor.nbytes)
        if not memory:
            raise RuntimeError(f"no pinned memory of {tensor.nbytes} bytes")
        seconds = 0.0
        for _ in range(2):
            began = time.perf_counter()
            ticket = self._gpu.begin_copy(tensor, memory, 0, tensor.nbytes, stream_of())
            if ticket is None or not self._gpu.wait_copy(ticket):
                raise RuntimeError(f"the copy of {tensor.nbytes} bytes failed")
            seconds = time.perf_counter() - began
        self._gpu.library.harness_free_staging(memory)
        return seconds


def seconds_of(work: Work) -> tuple[float, float]:
    """The seconds that work takes on the device, and that the host takes to enqueue it."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    start.record()
    began = time.perf_counter()
    work()
    on_host = time.perf_counter() - began
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / 1e3, on_host


def finite(dtype: torch.dtype, size: int) -> Tensor:
    """A tensor of so many bytes without special values, in any dtype."""
    if dtype in samples.FLOATS and dtype.itemsize > 1:
        return torch.randn(size // dtype.itemsize, device="cuda").to(dtype)
    return torch.randint(0, 2, (size,), dtype=torch.uint8, device="cuda").view(dtype)


def layouts(size: int) -> Mapping[str, Tensor]:
    """Tensors of float32 that are laid out in several ways, within so many bytes."""
    side = int((size // 4) ** 0.5)
    square = torch.randn(side, side, device="cuda")
    infinite = square.clone()
    infinite[:, ::2] = -torch.inf
    return {
        "contiguous": square,
        "transposed": square.t(),
        "sliced": square[:, 1:-1],
        "every other row": square[::2],
        "every other element infinite": infinite,
    }


def speed(device: Device, enqueue: Callable[[Tensor, int], None], tensor: Tensor, count: int) -> str:
    """How fast a tensor is read, in TB/s."""
    enqueue(tensor, 2)
    device.drain()
    seconds, _ = seconds_of(lambda: enqueue(tensor, count))
    device.drain()
    return f"{tensor.nbytes * count / seconds / 1e12:.2f}"


def print_speeds(device: Device, largest: int) -> None:
    print("| read at TB/s | statistics | hash alone |\n|---|---|---|")
    for dtype in samples.DTYPES:
        tensor = finite(dtype, largest)
        print(f"| {samples.name(dtype)} | {speed(device, device.measure, tensor, 10)} | |")
        del tensor
    for name, tensor in layouts(largest).items():
        found = [speed(device, enqueue, tensor, 4) for enqueue in (device.measure, device.hash)]
        print(f"| float32, {name} | {found[0]} | {found[1]} |")


def print_small(device: Device, largest: int) -> None:
    print("| µs | on the device | to enqueue |\n|---|---|---|")
    for count in (count for count in SMALL if 4 * count <= largest):
        tensor = torch.randn(count, device="cuda")
        device.measure(tensor, 10)
        device.drain()
        print_times(f"statistics of {count} float32", partial(device.measure, tensor, CALLS), CALLS)
        device.drain()
    device.write_crumbs(100)
    print_times("a breadcrumb", lambda: device.write_crumbs(CRUMBS), CRUMBS)
    write = device.write_value()
    print_times("cuStreamWriteValue32, called from Python", lambda: [write() for _ in range(CRUMBS)], CRUMBS)


def print_times(name: str, work: Work, count: int) -> None:
    on_device, on_host = seconds_of(work)
    print(f"| {name} | {on_device / count * 1e6:.2f} | {on_host / count * 1e6:.2f} |")


def print_copies(device: Device, largest: int) -> None:
    print("| copied to the host at GB/s | |\n|---|---|")
    side = int((min(largest, 256 << 20) // 4) ** 0.5)
    square = torch.randn(side, side, device="cuda")
    for name, tensor in {"contiguous": square, "transposed": square.t()}.items():
        print(f"| {tensor.nbytes >> 20} MiB, {name} | {tensor.nbytes / device.copy_seconds(tensor) / 1e9:.1f} |")


SECTIONS: Mapping[str, Callable[[Device, int], None]] = {
    "speeds": print_speeds,
    "small": print_small,
    "copies": print_copies,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=list(SECTIONS))
    parser.add_argument("--largest", type=int, default=LARGEST, metavar="BYTES", help="of one tensor")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        parser.exit(2, "error: torch finds no CUDA device\n")
    with tempfile.TemporaryDirectory() as folder:
        device = Device(Path(folder))
        print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, Python {platform.python_version()}")
        for name in options.only:
            print()
            SECTIONS[name](device, options.largest)


if __name__ == "__main__":
    main()
