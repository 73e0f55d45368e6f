from __future__ import annotations

import ctypes
from collections.abc import Iterator

import pytest
from runtime_shims_cuda import device_library
from runtime_shims_cuda.device_library import DeviceLibrary


@pytest.fixture(scope="session")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> DeviceLibrary:
    """device_cuda.cpp and its kernels on a make-believe device whose memory is host memory."""
    include = device_library.cuda_include()
    if device_library.compiler() is None:
        pytest.skip("no C++ compiler")
    if include is None:
        pytest.skip("no cuda.h: neither a CUDA toolkit nor triton is installed")
    sources = (device_library.HARNESS, device_library.DEVICE, *device_library.EMULATOR)
    path = tmp_path_factory.mktemp("emulated") / "emulated.so"
    return DeviceLibrary(device_library.build(path, sources, include, "-O1"))


@pytest.fixture
def device(emulated: DeviceLibrary) -> Iterator[DeviceLibrary]:
    """The same, in a context of its own device 0, without an error."""
    use_context(emulated, 1)
    yield emulated
    finish(emulated)


def use_context(device: DeviceLibrary, number: int) -> None:
    """Context 1 is of device 0, 2 of device 1, …; 0 is none."""
    device.library.emulator_use_context(ctypes.c_uint64(number))


def finish(device: DeviceLibrary) -> None:
    """Does all work that is still queued, after an error too."""
    device.library.emulator_fail(0)
    device.library.emulator_finish()
    use_context(device, 1)
    device.forget()
