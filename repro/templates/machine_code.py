"""Machine code of Triton kernels: its instructions, the ptxas that made it, and its launch through the driver."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TypeAlias

import torch

from .kernel import Number

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")  # Elf64_Ehdr
_SECTION = struct.Struct("<IIQQQQIIQQ")  # Elf64_Shdr
_NO_BITS = 8  # SHT_NOBITS
VARIABLE = "TRITON_PTXAS_PATH"  # Triton's own
WARP = 32  # threads
MAX_DYNAMIC_SHARED_SIZE_BYTES = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
STREAM_SERIALIZATION = 6  # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
OVERLAPPING = (9, 0)  # the first compute capability that has it
SPARE_PARAMETERS = 4  # null pointers behind the known parameters; the driver reads as many as the kernel has

Value: TypeAlias = Number | ctypes.c_void_p


def instructions(image: bytes, kernel: str) -> bytes:
    """The kernel's own section; not the tables of lines and symbols, which hold file names.

    Raises:
        ValueError: the image is no ELF file, or has no such kernel.
    """
    if image[:5] != b"\x7fELF\x02":
        raise ValueError("the machine code is not a 64-bit ELF file")
    *_, section_table, _, _, _, _, entry_size, count, names_at = _HEADER.unpack_from(image)
    sections = [_SECTION.unpack_from(image, section_table + i * entry_size) for i in range(count)]
    names = sections[names_at][4]
    for name_at, kind, _, _, offset, size, *_ in sections:
        begin = names + name_at
        if image[begin : image.index(b"\0", begin)] == f".text.{kernel}".encode() and kind != _NO_BITS:
            return image[offset : offset + size]
    raise ValueError(f"the machine code has no kernel {kernel}")


def use_ptxas_of(image: bytes) -> None:
    """Has Triton compile with the ptxas that made this machine code, if it is here and the user has not chosen one."""
    version = version_in(image)
    if version is None or VARIABLE in os.environ:
        return
    for path in candidates():
        if version_of(path) == version:
            os.environ[VARIABLE] = str(path)
            return


def version_in(image: bytes) -> str | None:
    """Returns the version "13.0.88" that ptxas writes into a cubin since CUDA 13; None if there is none."""
    version = re.search(rb"Cuda compilation tools, release [\d.]+, V([\d.]+)", image)
    return version[1].decode() if version else None


def version_of(ptxas: Path) -> str | None:
    """The version of a ptxas; None where it cannot be run."""
    try:
        output = subprocess.run([str(ptxas), "--version"], capture_output=True, timeout=30, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    return version_in(output)


def candidates() -> Iterator[Path]:
    """Yields each ptxas on this machine: Triton's, torch's, those of NVIDIA's packages and of the CUDA toolkit."""
    import triton

    torch_dir, triton_dir = Path(torch.__file__).parent, Path(triton.__file__).parent
    places = [triton_dir / "backends/nvidia/bin", torch_dir / "bin", torch_dir / "_inductor/bin"]
    places += sorted(Path(p) for site in sys.path for p in Path(site or ".").glob("nvidia/*/bin"))
    places += [Path(os.environ[name]) / "bin" for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    places += [Path("/usr/local/cuda/bin")]
    on_path = shutil.which("ptxas")
    for path in [*(place / "ptxas" for place in places), *([Path(on_path)] if on_path else [])]:
        if path.is_file():
            yield path


class _Attribute(ctypes.Structure):
    """CUlaunchAttribute; its value has 64 bytes."""

    _fields_ = (("id", ctypes.c_int), ("padding", ctypes.c_int), ("value", ctypes.c_int * 16))


class _Config(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        ("blocks", ctypes.c_uint * 3),
        ("threads", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("count", ctypes.c_uint),
    )


class Function:
    """A kernel in machine code, loaded on the current CUDA device.

    Args:
        image: the bytes of a cubin.
        name: of the kernel in it.
        shared_bytes: dynamic shared memory of a block.
        overlaps: it may begin before the kernel before it on its stream has ended, where the device can do that.
    """

    def __init__(self, image: bytes, name: str, *, num_warps: int, shared_bytes: int, overlaps: bool = False) -> None:
        self.name = name
        self.threads = num_warps * WARP
        self.shared_bytes = shared_bytes
        self.overlaps = overlaps and torch.cuda.get_device_capability() >= OVERLAPPING
        torch.cuda.current_stream().synchronize()  # makes the device's context
        module = ctypes.c_void_p()
        self._function = ctypes.c_void_p()
        _check("cuModuleLoadData", ctypes.byref(module), image)
        _check("cuModuleGetFunction", ctypes.byref(self._function), module, name.encode())
        if shared_bytes > 0:
            attribute = (ctypes.c_int(MAX_DYNAMIC_SHARED_SIZE_BYTES), ctypes.c_int(shared_bytes))
            _check("cuFuncSetAttribute", self._function, *attribute)

    def launch(self, grid: Sequence[int], values: Sequence[Value]) -> None:
        """Starts it on torch's current stream.

        Args:
            values: one a parameter, each with its exact type.

        Raises:
            RuntimeError: the driver refuses.
        """
        spare = [ctypes.c_void_p() for _ in range(SPARE_PARAMETERS)]
        parameters = [*values, *spare]
        addresses = (ctypes.c_void_p * len(parameters))(*(ctypes.addressof(value) for value in parameters))
        stream = torch.cuda.current_stream().cuda_stream
        if self.overlaps:
            attribute = ctypes.pointer(_Attribute(STREAM_SERIALIZATION, 0, (1,)))
            config = _Config(tuple(grid), (self.threads, 1, 1), self.shared_bytes, stream, attribute, 1)
            _check("cuLaunchKernelEx", ctypes.byref(config), self._function, addresses, None)
            return
        blocks = [ctypes.c_uint(size) for size in grid]
        threads = [ctypes.c_uint(self.threads), ctypes.c_uint(1), ctypes.c_uint(1)]
        shared = ctypes.c_uint(self.shared_bytes)
        _check("cuLaunchKernel", self._function, *blocks, *threads, shared, ctypes.c_void_p(stream), addresses, None)


@cache
def _driver() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


def _check(function: str, *arguments: object) -> None:
    code = getattr(_driver(), function)(*arguments)
    if code != 0:
        text = ctypes.c_char_p()
        _driver().cuGetErrorString(code, ctypes.byref(text))
        raise RuntimeError(f"{function}: {(text.value or b'unknown').decode()} ({code})")
