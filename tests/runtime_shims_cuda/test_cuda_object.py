"""device_cuda.cpp compiles as a package's toolchain compiles it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import torch
from runtime_shims_cuda import device_library
from runtime_shims_cuda.device_library import DEVICE, RUNTIME

FLAGS = ("-std=c++17", "-O2", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror")


@pytest.fixture(scope="module")
def command() -> list[str]:
    include = device_library.cuda_include()
    if device_library.compiler() is None:
        pytest.skip("no C++ compiler")
    if include is None:
        pytest.skip("no cuda.h: neither a CUDA toolkit nor triton is installed")
    headers = Path(torch.__file__).parent / "include"
    return [str(device_library.compiler()), *FLAGS, f"-I{include}", f"-I{headers}", "-c", str(DEVICE)]


def symbols(path: Path) -> dict[str, str]:
    """Name to nm's letter."""
    lines = subprocess.run(["nm", path], capture_output=True, text=True, check=True).stdout.splitlines()
    return {line.split()[-1]: line.split()[-2] for line in lines}


@pytest.mark.parametrize("where", ["include directory", "definition"])
def test_it_compiles_without_warnings(tmp_path: Path, command: list[str], where: str) -> None:
    ptx = RUNTIME / "cuda" / "statistics.ptx"
    option = f"-I{RUNTIME}" if where == "include directory" else f'-DAOTI_DEBUG_STATISTICS_PTX="{ptx}"'
    output = tmp_path / "device_cuda.o"
    ran = subprocess.run([*command, option, "-o", str(output)], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ptx.read_bytes() in output.read_bytes()


def test_it_needs_the_old_driver_api_alone(tmp_path: Path, command: list[str]) -> None:
    output = tmp_path / "device_cuda.o"
    subprocess.run([*command, f"-I{RUNTIME}", "-o", str(output)], check=True)
    needed = {name: letter for name, letter in symbols(output).items() if name.startswith("cu")}
    assert set(needed.values()) == {"U"}
    assert set(needed) == {
        "cuCtxGetCurrent",
        "cuCtxGetDevice",
        "cuCtxPopCurrent_v2",
        "cuCtxPushCurrent_v2",
        "cuDeviceGetAttribute",
        "cuEventCreate",
        "cuEventRecord",
        "cuEventSynchronize",
        "cuGetErrorName",
        "cuGetErrorString",
        "cuLaunchKernel",
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
        "cuStreamGetCtx",
        "cuStreamIsCapturing",
        "cuStreamQuery",
        "cuStreamSynchronize",
        "cuThreadExchangeStreamCaptureMode",
    }
