"""The CUDA half of the runtime on a real device: a pytest plugin of the tests under tests/gpu."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.runtime_shims_cuda import device_library
from tests.runtime_shims_cuda.device_library import DeviceLibrary, HostLibrary
from tests.runtime_shims_cuda.gpu_device import PAGE, build, shared_words


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> DeviceLibrary:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    return DeviceLibrary(build(tmp_path_factory.mktemp("device_cuda") / "device_cuda.so"))


@pytest.fixture
def gpu(library: DeviceLibrary) -> Iterator[DeviceLibrary]:
    yield library
    torch.cuda.synchronize()
    library.forget()


@pytest.fixture(scope="session")
def host(tmp_path_factory: pytest.TempPathFactory) -> HostLibrary:
    sources = (device_library.HOST_HARNESS, *device_library.HOST_SOURCES)
    return HostLibrary(device_library.build(tmp_path_factory.mktemp("host") / "host.so", sources, "-O3", "-Wno-error"))


@pytest.fixture
def crumbs(gpu: DeviceLibrary) -> Iterator[ctypes.Array[ctypes.c_uint32]]:
    """Words of shared memory that the device can write."""
    path = Path(f"/dev/shm/test_device_cuda-{os.getpid()}-{time.monotonic_ns()}")
    words = shared_words(path)
    path.unlink()
    assert gpu.library.harness_register_crumbs(ctypes.addressof(words), PAGE)
    yield words
    torch.cuda.synchronize()


@pytest.fixture(scope="session")
def staging(library: DeviceLibrary) -> Iterator[int]:
    torch.zeros(1, device="cuda")
    memory = library.library.harness_allocate_staging(64 << 20)
    assert memory is not None
    yield memory
    torch.cuda.synchronize()
    library.library.harness_free_staging(memory)
