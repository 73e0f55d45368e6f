from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runtime_shims_cuda import device_library
from tests.runtime_shims_cuda.device_library import DeviceLibrary, HostLibrary
from tests.runtime_shims_cuda.emulated import abandon, finish, use_context


@pytest.fixture(scope="session")
def emulated() -> DeviceLibrary:
    """The CUDA half of the runtime and its kernels on a fake device whose memory is host memory."""
    include = device_library.cuda_include()
    if device_library.compiler() is None:
        pytest.skip("no C++ compiler")
    if include is None:
        pytest.skip("no cuda.h: neither a CUDA toolkit nor triton is installed")
    sources = (device_library.HARNESS, *device_library.DEVICE_SOURCES, *device_library.EMULATOR)
    return DeviceLibrary(device_library.kept_library("emulated.so", sources, "-O1", f"-I{include}"))


@pytest.fixture(scope="session")
def host() -> HostLibrary:
    """The CPU half's statistics."""
    if device_library.compiler() is None:
        pytest.skip("no C++ compiler")
    sources = (device_library.HOST_HARNESS, *device_library.HOST_SOURCES)
    return HostLibrary(device_library.kept_library("host.so", sources, "-O1"))


def in_own_context(device: DeviceLibrary) -> Iterator[DeviceLibrary]:
    """The device for one test, which must wait for all work on memory of its own."""
    use_context(device, 1)
    yield device
    abandoned = abandon(device)
    finish(device)
    assert abandoned == 0


@pytest.fixture
def device(emulated: DeviceLibrary) -> Iterator[DeviceLibrary]:
    """The same, in a context of its own device 0, without an error."""
    yield from in_own_context(emulated)


@pytest.fixture
def fresh_device(emulated: DeviceLibrary, tmp_path: Path) -> Iterator[DeviceLibrary]:
    """One that nothing has been done on."""
    fresh = DeviceLibrary(Path(shutil.copy(emulated.path, tmp_path / "fresh.so")))
    yield from in_own_context(fresh)
