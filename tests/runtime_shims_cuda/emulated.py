"""What tests turn on the fake device."""

from __future__ import annotations

import ctypes
import mmap
from ctypes import c_int, c_uint32, c_uint64, c_void_p

from tests.runtime_shims_cuda.device_library import DeviceLibrary


def use_context(device: DeviceLibrary, number: int) -> None:
    """Context 1 is of device 0, 2 of device 1, …; 0 is none."""
    device.library.emulator_use_context(c_uint64(number))


def own_stream(device: DeviceLibrary, stream: int, number: int) -> None:
    """From now on the stream belongs to one context and says so."""
    device.library.emulator_own_stream(c_void_p(stream), c_uint64(number))


def crumb_words(device: DeviceLibrary) -> ctypes.Array[c_uint32]:
    """New memory of breadcrumbs, which the device knows."""
    words = (c_uint32 * 1024).from_buffer(mmap.mmap(-1, 4096))
    assert device.library.harness_register_crumbs(ctypes.addressof(words), 4096)
    return words


def capture(device: DeviceLibrary, stream: int, status: int, query_result: int = 0) -> None:
    """Sets a stream's CUstreamCaptureStatus, and what asking for it returns; an active capture begins a new graph."""
    device.library.emulator_capture(c_void_p(stream), c_int(status), c_int(query_result))


def replay(device: DeviceLibrary, stream: int, nodes: int = 1 << 32) -> None:
    """Does at once what was captured last, or the first nodes of it."""
    device.library.emulator_replay(c_void_p(stream), c_uint64(nodes))


def fail_after_queued(device: DeviceLibrary, stream: int, error: int) -> None:
    device.library.emulator_fail_after_queued(c_void_p(stream), c_int(error))


def queued(device: DeviceLibrary, stream: int) -> int:
    """Operations that wait for somebody to wait for them."""
    device.library.emulator_queued.restype = c_uint64
    return int(device.library.emulator_queued(c_void_p(stream)))


def limit_memory(device: DeviceLibrary, size: int) -> None:
    device.library.emulator_limit_memory(c_uint64(size))


def allocated(device: DeviceLibrary) -> int:
    """Bytes of device memory, all in all."""
    device.library.emulator_allocated.restype = c_uint64
    return int(device.library.emulator_allocated())


def abandon(device: DeviceLibrary) -> int:
    """Drops what is queued and works on memory of a test, which is gone when the test is; returns how much that was."""
    device.library.emulator_abandon.restype = c_uint64
    return int(device.library.emulator_abandon())


def finish(device: DeviceLibrary) -> None:
    """Does all work that is still queued, after an error too."""
    device.library.emulator_fail(0)
    device.library.emulator_finish()
    use_context(device, 1)
    device.forget()
