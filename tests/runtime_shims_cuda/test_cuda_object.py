"""The CUDA half of the runtime compiles as a package's toolchain compiles it."""

from __future__ import annotations

import gzip
import subprocess
from pathlib import Path

import pytest
import torch

from aoti_debug.instrument.builder.compiling import runtime_objects
from tests.kept import kept
from tests.runtime_shims_cuda import device_library
from tests.runtime_shims_cuda.device_library import DEVICE_SOURCES, RUNTIME

FLAGS = ("-std=c++17", "-O2", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror")


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """An object of each source; it compiles without a warning."""
    include = device_library.cuda_include()
    if device_library.compiler() is None:
        pytest.skip("no C++ compiler")
    if include is None:
        pytest.skip("no cuda.h: neither a CUDA toolkit nor triton is installed")
    folder = tmp_path_factory.mktemp("objects")
    headers = Path(torch.__file__).parent / "include"
    folders = (include, headers, RUNTIME, folder)
    command = [str(device_library.compiler()), *FLAGS, *(f"-I{path}" for path in folders), "-c"]
    runtime_objects.unpack_kernels(folder)

    def compiled(source: Path) -> Path:
        def make(path: Path) -> None:
            words = [*command, str(source), "-o", str(path)]
            ran = subprocess.run(words, capture_output=True, text=True, check=False)
            assert (ran.returncode, ran.stderr) == (0, "")

        return kept(f"{source.stem}.o", [*device_library.sources_of_runtime(), *FLAGS, str(include)], make)

    return [compiled(source) for source in DEVICE_SOURCES]


def symbols(path: Path) -> dict[str, str]:
    """Name to nm's letter."""
    lines = subprocess.run(["nm", path], capture_output=True, text=True, check=True).stdout.splitlines()
    return {line.split()[-1]: line.split()[-2] for line in lines}


def test_one_object_has_the_kernels(objects: list[Path]) -> None:
    ptx = gzip.decompress(runtime_objects.packed_kernels().read_bytes())
    assert sum(ptx in path.read_bytes() for path in objects) == 1


def test_it_needs_the_old_driver_api_alone(objects: list[Path]) -> None:
    named = [item for path in objects for item in symbols(path).items()]
    needed = {name: letter for name, letter in named if name.startswith("cu")}
    assert set(needed.values()) == {"U"}
    assert set(needed) == {
        "cuCtxGetCurrent",
        "cuCtxGetDevice",
        "cuCtxPopCurrent_v2",
        "cuCtxPushCurrent_v2",
        "cuDriverGetVersion",
        "cuDeviceGetAttribute",
        "cuEventCreate",
        "cuEventRecord",
        "cuEventSynchronize",
        "cuGetErrorName",
        "cuGetErrorString",
        "cuGraphAddKernelNode_v2",
        "cuLaunchKernel",
        "cuLaunchKernelEx",
        "cuMemAlloc_v2",
        "cuMemFreeHost",
        "cuMemFree_v2",
        "cuMemHostAlloc",
        "cuMemHostGetDevicePointer_v2",
        "cuMemHostRegister_v2",
        "cuMemHostUnregister",
        "cuMemcpyDtoHAsync_v2",
        "cuMemcpyHtoDAsync_v2",
        "cuMemsetD32Async",
        "cuModuleGetFunction",
        "cuModuleLoadDataEx",
        "cuStreamCreate",
        "cuStreamDestroy_v2",
        "cuStreamGetCaptureInfo_v3",
        "cuStreamGetCtx",
        "cuStreamIsCapturing",
        "cuStreamQuery",
        "cuStreamSynchronize",
        "cuThreadExchangeStreamCaptureMode",
    }
