"""Machine code of Triton kernels: what a library that stands in for the CUDA driver is handed; the ptxas."""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from aoti_debug.base.machine.compiler import find_compiler
from aoti_debug.repro.templates import machine_code
from aoti_debug.repro.templates.kernel import Settings
from aoti_debug.repro.templates.machine_code import Function, Value
from aoti_debug.repro.templates.triton_kernel import Binary, TritonKernel
from tests.runtime_shims_cuda.device_library import cuda_include

STREAM = 0x7EEDC0FFEE
DRIVER = r"""
#include <cstdint>
#include <cstring>
extern "C" {
int refuse_launch = 0;
char image[64], name[64];
uint64_t loaded[2];     // attribute, value
uint64_t launched[8];   // grid, threads, shared, stream
uint64_t parameters[16];
int sizes[16];          // of the parameters to read

int cuModuleLoadData(void** module, const void* from) { std::memcpy(image, from, 16); *module = image; return 0; }
int cuModuleGetFunction(void** function, void* module, const char* of) {
  if (module != image) return 400;
  std::strncpy(name, of, 63);
  *function = name;
  return 0;
}
int cuFuncSetAttribute(void* function, int attribute, int value) {
  loaded[0] = attribute; loaded[1] = value;
  return function == name ? 0 : 400;
}
int cuLaunchKernel(void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void* stream, void** values, void** extra) {
  if (function != name || by != 1 || bz != 1 || extra != nullptr) return 400;
  if (refuse_launch) return 719;
  launched[0] = gx; launched[1] = gy; launched[2] = gz; launched[3] = bx;
  launched[4] = shared; launched[5] = (uint64_t)stream;
  for (int i = 0; i < 16 && sizes[i]; ++i) std::memcpy(&parameters[i], values[i], sizes[i]);
  return 0;
}
int cuGetErrorString(int code, const char** text) {
  *text = code == 719 ? "unspecified launch failure" : "?";
  return 0;
}
}
"""

OVERLAPPING = r"""
#include <cuda.h>
extern "C" {
extern char name[64];
extern uint64_t launched[8], parameters[16];
int overlaps = 0;
CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** values, void** extra) {
  const bool is_whole = config->blockDimY == 1 && config->blockDimZ == 1 && extra == nullptr;
  if (reinterpret_cast<char*>(function) != name || !is_whole) return CUDA_ERROR_INVALID_HANDLE;
  launched[0] = config->gridDimX; launched[1] = config->gridDimY; launched[2] = config->gridDimZ;
  launched[3] = config->blockDimX; launched[4] = config->sharedMemBytes;
  launched[5] = reinterpret_cast<uint64_t>(config->hStream);
  parameters[0] = *static_cast<uint64_t*>(values[0]);
  overlaps = config->numAttrs == 1 && config->attrs->id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION &&
             config->attrs->value.programmaticStreamSerializationAllowed == 1;
  return CUDA_SUCCESS;
}
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("driver")
    include = cuda_include()
    texts = {"driver.cpp": DRIVER, **({"overlapping.cpp": OVERLAPPING} if include else {})}
    for file, text in texts.items():
        (folder / file).write_text(text)
    command = [find_compiler().path, "-shared", "-fPIC", f"-I{include or folder}", "-o", "driver.so", *texts]
    subprocess.run(command, check=True, cwd=folder)
    return folder / "driver.so"


@pytest.fixture
def cuda(library: Path, monkeypatch: pytest.MonkeyPatch) -> ctypes.CDLL:
    loaded = ctypes.CDLL(str(library))
    (ctypes.c_int * 16).in_dll(loaded, "sizes")[:] = [0] * 16
    ctypes.c_int.in_dll(loaded, "refuse_launch").value = 0
    monkeypatch.setattr(machine_code, "_driver", lambda: loaded)
    stream = SimpleNamespace(cuda_stream=STREAM, synchronize=lambda: None)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: stream)
    return loaded


@pytest.fixture
def seen(cuda: ctypes.CDLL) -> Callable[[str, int], list[int]]:
    return lambda name, count: list((ctypes.c_uint64 * count).in_dll(cuda, name))


def expect(cuda: ctypes.CDLL, *sizes: int) -> None:
    array = (ctypes.c_int * 16).in_dll(cuda, "sizes")
    array[:] = [*sizes, *[0] * (16 - len(sizes))]
    (ctypes.c_uint64 * 16).in_dll(cuda, "parameters")[:] = [0] * 16


def test_values_arrive_with_their_type(cuda: ctypes.CDLL, seen: Callable[[str, int], list[int]]) -> None:
    function = Function(b"the machine code", "kernel_0", num_warps=4, shared_bytes=65536)
    assert bytes((ctypes.c_char * 16).in_dll(cuda, "image")) == b"the machine code"
    assert bytes((ctypes.c_char * 64).in_dll(cuda, "name")).rstrip(b"\0") == b"kernel_0"
    assert seen("loaded", 2) == [8, 65536]
    expect(cuda, 8, 4, 8, 4, 8, 8)
    address = 0x7F0123456789
    values: list[Value] = [
        ctypes.c_void_p(address),
        ctypes.c_int32(-2),
        ctypes.c_int64(1 << 40),
        ctypes.c_float(0.1),
        ctypes.c_double(0.1),
    ]
    function.launch((7, 2, 1), values)
    assert seen("launched", 6) == [7, 2, 1, 128, 65536, STREAM]
    (single,) = struct.unpack("<I", struct.pack("<f", 0.1))
    (double,) = struct.unpack("<Q", struct.pack("<d", 0.1))
    assert seen("parameters", 6) == [address, (1 << 32) - 2, 1 << 40, single, double, 0]


def test_a_kernel_without_shared_memory_sets_no_attribute(
    cuda: ctypes.CDLL, seen: Callable[[str, int], list[int]]
) -> None:
    (ctypes.c_uint64 * 2).in_dll(cuda, "loaded")[:] = [0, 0]
    Function(b"the machine code", "kernel_0", num_warps=1, shared_bytes=0)
    assert seen("loaded", 2) == [0, 0]


@pytest.mark.skipif(cuda_include() is None, reason="no cuda.h: neither a CUDA toolkit nor triton is installed")
@pytest.mark.parametrize(("capability", "does"), [((8, 0), False), ((9, 0), True), ((12, 0), True)])
def test_a_kernel_that_overlaps_the_one_before_it_is_launched_as_such(
    cuda: ctypes.CDLL,
    seen: Callable[[str, int], list[int]],
    monkeypatch: pytest.MonkeyPatch,
    capability: tuple[int, int],
    does: bool,
) -> None:
    """The driver stands in with the structs of its own header."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
    overlaps = ctypes.c_int.in_dll(cuda, "overlaps")
    overlaps.value = 0
    expect(cuda, 8)
    function = Function(b"the machine code", "kernel_0", num_warps=2, shared_bytes=4096, overlaps=True)
    function.launch((7, 2, 3), [ctypes.c_void_p(0x7F0123456789)])
    assert bool(overlaps.value) is does
    assert seen("launched", 6) == [7, 2, 3, 64, 4096, STREAM]
    assert seen("parameters", 1) == [0x7F0123456789]


def test_what_the_driver_refuses_is_said(cuda: ctypes.CDLL) -> None:
    function = Function(b"the machine code", "kernel_0", num_warps=1, shared_bytes=0)
    ctypes.c_int.in_dll(cuda, "refuse_launch").value = 1
    with pytest.raises(RuntimeError, match=r"cuLaunchKernel: unspecified launch failure \(719\)"):
        function.launch((1, 1, 1), [])


def test_the_packages_code_gets_the_arguments_in_the_order_of_the_signature(
    cuda: ctypes.CDLL,
    seen: Callable[[str, int], list[int]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "device", lambda index: contextlib.nullcontext())
    (tmp_path / "kernel.cubin").write_bytes(b"the machine code")
    kernel = TritonKernel(
        None,
        signature={"n": "i32", "UNKNOWN": "constexpr", "one": "i32", "none": "*fp32", "alpha": "fp64"},
        constants={"one": 1},
        divisible=(),
        grid=(5, 1, 1),
        num_warps=2,
        binary=Binary("kernel.cubin", "kernel_0", shared_bytes=0),
        without={"jit": "no configuration", "interpret": "no configuration"},
    )
    assert kernel.backends == ("cubin",)
    kernel.prepare(Settings(tmp_path, backend="cubin"))
    expect(cuda, 4, 8, 8, 8, 8)
    monkeypatch.setattr(torch, "zeros", lambda n, **_: torch.empty(n))
    kernel(n=ctypes.c_int32(9), none=None, alpha=ctypes.c_double(0.5))
    assert seen("launched", 4) == [5, 1, 1, 64]
    assert seen("parameters", 5) == [9, 0, struct.unpack("<Q", struct.pack("<d", 0.5))[0], 0, 0]
    kernel.prepare(Settings(tmp_path, backend="cubin", grid=(2, 1, 1)))
    kernel(n=ctypes.c_int32(9), none=None, alpha=ctypes.c_double(0.5))
    assert seen("launched", 1) == [2]


CUBIN = b"\x7fELF\0ptxas\0Cuda compilation tools, release 13.0, V13.0.88\0Build cuda_13.0\0"


def tool(folder: Path, version: str) -> Path:
    """A ptxas that says its version."""
    folder.mkdir(parents=True)
    path = folder / "ptxas"
    path.write_text(f"#!/bin/sh\necho 'Cuda compilation tools, release 13.0, V{version}'\n")
    path.chmod(0o755)
    return path


@pytest.fixture(autouse=True)
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(machine_code.VARIABLE, "")
    monkeypatch.delenv(machine_code.VARIABLE)


def test_version() -> None:
    assert machine_code.version_in(CUBIN) == "13.0.88"
    assert machine_code.version_in(b"\x7fELF, and nothing of its tool") is None


def test_the_one_of_the_machine_code_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other, same = tool(tmp_path / "other", "12.8.93"), tool(tmp_path / "same", "13.0.88")
    monkeypatch.setattr(machine_code, "candidates", lambda: iter([tmp_path / "missing", other, same]))
    machine_code.use_ptxas_of(CUBIN)
    assert os.environ[machine_code.VARIABLE] == str(same)


def test_the_users_choice_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(machine_code.VARIABLE, "/mine")
    monkeypatch.setattr(machine_code, "candidates", lambda: iter([tool(tmp_path / "same", "13.0.88")]))
    machine_code.use_ptxas_of(CUBIN)
    assert os.environ[machine_code.VARIABLE] == "/mine"


def test_without_a_fitting_one_tritons_own_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_code, "candidates", lambda: iter([tool(tmp_path / "other", "12.8.93")]))
    machine_code.use_ptxas_of(CUBIN)
    assert machine_code.VARIABLE not in os.environ


def test_cuda_home_is_looked_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tool(tmp_path / "cuda" / "bin", "13.0.88")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "cuda"))
    assert path in list(machine_code.candidates())
