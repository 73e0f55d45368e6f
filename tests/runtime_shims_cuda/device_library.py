"""The CUDA half of the runtime (runtime_shims/device/device.h) as a shared library that tests call through ctypes."""

from __future__ import annotations

import ctypes
import os
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Sequence
from ctypes import (
    POINTER,
    byref,
    c_char_p,
    c_double,
    c_int,
    c_int32,
    c_int64,
    c_size_t,
    c_uint8,
    c_uint32,
    c_uint64,
    c_void_p,
)
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from aoti_debug.base.machine.compiler import find_header_directory, triton_directory
from aoti_debug.instrument.builder.compiling.runtime_objects import translation_units, unpack_kernels
from tests.kept import contents, kept

HERE = Path(__file__).resolve().parent
RUNTIME = HERE.parent.parent / "runtime_shims"
HARNESS = HERE / "harness.cpp"
DEVICE_SOURCES = tuple(sorted((RUNTIME / "cuda").glob("*.cpp")))
HOST_HARNESS = HERE / "host_harness.cpp"
HOST_SOURCES = tuple(
    RUNTIME / name
    for name in (
        *("statistics/statistics.cpp", "tensors/hashing.cpp", "tensors/strided.cpp"),
        *("tensors/dtype.cpp", "tensors/elements.cpp"),
    )
)
EMULATOR = (HERE / "emulator" / "kernels.cpp", HERE / "emulator" / "driver.cpp")
FLAGS = ("-std=c++17", "-fPIC", "-fvisibility=hidden", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror")

STATS_SKIPPED = 2  # StatsFlag of journal_format.h
HASH, NUMBERS, ALL = range(3)  # device::StatsWanted
CUDA_DEVICE_TYPE = 1


class View(ctypes.Structure):
    """aoti_debug::device::TensorView."""

    _fields_ = (
        ("data", c_uint64),
        ("dtype", c_int32),
        ("device_type", c_int32),
        ("device_index", c_int32),
        ("ndim", c_uint32),
        ("sizes", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("numel", c_int64),
        ("element_bytes", c_size_t),
    )


class Result(ctypes.Structure):
    """aoti_debug::device::StatsResult, with the fields of TensorStats."""

    _fields_ = (
        ("call", c_uint32),
        ("launch", c_uint32),
        ("slot", ctypes.c_uint16),
        ("kind", c_uint8),
        ("phase", c_uint8),
        ("integer", c_uint8),
        ("flags", c_uint8),
        ("reserved", c_uint8 * 2),
        ("numel", c_uint64),
        ("n_nan", c_uint64),
        ("n_pos_inf", c_uint64),
        ("n_neg_inf", c_uint64),
        ("n_zero", c_uint64),
        ("min_bits", c_uint64),
        ("max_bits", c_uint64),
        ("min_index", c_uint64),
        ("max_index", c_uint64),
        ("mean", c_double),
        ("std", c_double),
        ("hash", c_uint64),
        ("value_bytes", c_uint32),
        ("layout", c_uint32),
        ("values", c_uint8 * 1024),
        ("nan_index", c_uint64),
        ("pos_inf_index", c_uint64),
        ("neg_inf_index", c_uint64),
    )

    def shown(self) -> bytes:
        return bytes(self.values[: self.value_bytes])

    def number(self, bits: int) -> float | int:
        code = {0: "<d", 1: "<q", 2: "<Q"}[self.integer]
        number: float | int = struct.unpack(code, bits.to_bytes(8, "little"))[0]
        return number


# c10::ScalarType
SCALAR_TYPES = {
    torch.uint8: 0,
    torch.int8: 1,
    torch.int16: 2,
    torch.int32: 3,
    torch.int64: 4,
    torch.float16: 5,
    torch.float32: 6,
    torch.float64: 7,
    torch.complex32: 8,
    torch.complex64: 9,
    torch.complex128: 10,
    torch.bool: 11,
    torch.bfloat16: 15,
    torch.float8_e5m2: 23,
    torch.float8_e4m3fn: 24,
    torch.float8_e5m2fnuz: 25,
    torch.float8_e4m3fnuz: 26,
    torch.uint16: 27,
    torch.uint32: 28,
    torch.uint64: 29,
    torch.float8_e8m0fnu: 44,
}


@dataclass(frozen=True)
class Described:
    """A View, and what it points to."""

    view: View
    keeps: tuple[Any, ...]


def describe(tensor: torch.Tensor, *, scalar_type: int | None = None, device_index: int | None = None) -> Described:
    sizes = (c_int64 * tensor.dim())(*tensor.shape)
    strides = (c_int64 * tensor.dim())(*tensor.stride())
    view = View(
        data=tensor.data_ptr(),
        dtype=SCALAR_TYPES[tensor.dtype] if scalar_type is None else scalar_type,
        device_type=CUDA_DEVICE_TYPE,
        device_index=(tensor.device.index or 0) if device_index is None else device_index,
        ndim=tensor.dim(),
        sizes=ctypes.cast(sizes, POINTER(c_int64)),
        strides=ctypes.cast(strides, POINTER(c_int64)),
        numel=tensor.numel(),
        element_bytes=tensor.element_size(),
    )
    return Described(view, (tensor, sizes, strides))


class DeviceLibrary:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.library = ctypes.CDLL(str(path))
        self.streams: set[int] = set()
        self.described: list[Described] = []  # the device may read them until it has finished
        library = self.library
        library.harness_register_crumbs.argtypes = [c_void_p, c_size_t]
        library.harness_write_crumb.argtypes = [c_void_p, c_size_t, c_uint32]
        library.harness_write_crumb_many.argtypes = [c_void_p, c_size_t, c_uint32, c_uint32]
        library.harness_register_flight.argtypes = [c_void_p, c_size_t]
        library.harness_write_flight.argtypes = [c_void_p, c_size_t, c_uint32]
        library.harness_copy_to_flight.argtypes = [c_void_p, c_uint64, c_size_t, c_void_p]
        library.harness_is_capturing.argtypes = [c_void_p]
        library.harness_pending_error.argtypes = [c_void_p, c_char_p, c_size_t]
        library.harness_pending_error.restype = c_int32
        library.harness_begin_copy.argtypes = [c_void_p, POINTER(View), c_size_t, c_size_t, c_void_p, POINTER(c_uint64)]
        library.harness_wait_copy.argtypes = [c_uint64]
        library.harness_write_memory.argtypes = [c_void_p, c_uint64, c_size_t, c_void_p]
        library.harness_allocate_staging.argtypes = [c_size_t]
        library.harness_allocate_staging.restype = c_void_p
        library.harness_free_staging.argtypes = [c_void_p]
        library.harness_begin_stats.argtypes = [c_void_p, POINTER(View), c_int, c_int]
        library.harness_begin_stats_many.argtypes = [c_void_p, POINTER(View), c_int]
        library.harness_take_stats.argtypes = [c_void_p, POINTER(Result), c_int, c_int]
        assert library.harness_result_bytes() == ctypes.sizeof(Result)
        assert library.harness_view_bytes() == ctypes.sizeof(View)

    def begin(self, tensor: torch.Tensor | Described, stream: int = 0, *, wanted: int = ALL) -> bool:
        return self.begin_all([tensor], stream, wanted=wanted) == 1

    def begin_all(self, tensors: Sequence[torch.Tensor | Described], stream: int = 0, *, wanted: int = ALL) -> int:
        """How many of the first were begun."""
        described = [tensor if isinstance(tensor, Described) else describe(tensor) for tensor in tensors]
        self.described += described
        self.streams.add(stream)
        views = (View * len(described))(*(each.view for each in described))
        return int(self.library.harness_begin_stats(stream, views, len(views), wanted))

    def take(self, stream: int = 0, capacity: int = 64, *, wait: bool = True) -> list[Result] | None:
        """None: a device error."""
        results = (Result * capacity)()
        taken = self.library.harness_take_stats(stream, results, capacity, int(wait))
        return None if taken < 0 else list(results[:taken])

    def statistics(self, tensor: torch.Tensor | Described, stream: int = 0, *, wanted: int = ALL) -> Result:
        assert self.begin(tensor, stream, wanted=wanted)
        results = self.take(stream)
        assert results is not None
        assert len(results) == 1
        return results[0]

    def begin_copy(self, tensor: torch.Tensor, host: int, first_byte: int, size: int, stream: int = 0) -> int | None:
        """The ticket; None where the copy could not be enqueued."""
        ticket = c_uint64()
        described = describe(tensor)
        self.described.append(described)
        begun = self.library.harness_begin_copy(stream, byref(described.view), first_byte, size, host, byref(ticket))
        return ticket.value if begun else None

    def forget(self) -> None:
        """To be called when the device has finished: takes what is left of the results."""
        for stream in self.streams:
            while self.take(stream):
                pass
        self.streams.clear()
        self.described.clear()

    def write_memory(self, address: int, host: bytes, stream: int = 0) -> bool:
        return bool(self.library.harness_write_memory(stream, address, len(host), host))

    def wait_copy(self, ticket: int | None) -> bool:
        assert ticket is not None
        return bool(self.library.harness_wait_copy(ticket))

    def pending_error(self, stream: int = 0) -> tuple[int, str]:
        text = ctypes.create_string_buffer(200)
        return self.library.harness_pending_error(stream, text, len(text)), text.value.decode()


def cuda_include() -> Path | None:
    """The directory of a cuda.h: the toolkit's, or the one that triton brings."""
    triton = triton_directory()
    return find_header_directory("cuda.h") or (triton / "include" if triton else None)


def compiler() -> str | None:
    return shutil.which(os.environ.get("CXX", "g++"))


def build(output: Path, sources: tuple[Path, ...], *options: str) -> Path:
    """Compiles and links a shared library. Its files of the runtime are one unit: the headers are what takes time.

    Raises:
        AssertionError: it does not compile.
    """
    runtime = [source for source in sources if source.is_relative_to(RUNTIME)]
    others = [str(source) for source in sources if source not in runtime]
    unit = output.with_suffix(".cpp")
    unit.write_text("".join(translation_units(runtime, 1)))
    command = [str(compiler()), *FLAGS, "-shared", f"-I{RUNTIME}", *options, *others, str(unit), "-o", str(output)]
    with tempfile.TemporaryDirectory() as kernels:
        unpack_kernels(Path(kernels))
        ran = subprocess.run([*command, f"-I{kernels}"], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return output


def sources_of_runtime() -> list[str]:
    """What anything that includes the runtime's headers, or its kernels, is made of."""
    return contents(*(path for path in RUNTIME.rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc")))


def kept_library(name: str, sources: tuple[Path, ...], *options: str) -> Path:
    """Like `build`, once for the same sources."""
    parts = [*sources_of_runtime(), *contents(*HERE.glob("*.cpp"), *(HERE / "emulator").iterdir()), *FLAGS, *options]
    return kept(name, parts, lambda path: build(path, sources, *options))


class HostLibrary:
    """Statistics of host tensors, as the runtime's CPU half computes them."""

    def __init__(self, path: Path) -> None:
        self.library = ctypes.CDLL(str(path))
        self.library.harness_host_statistics.argtypes = [POINTER(View), POINTER(Result)]
        self.library.harness_host_statistics.restype = None

    def statistics(self, tensor: torch.Tensor) -> Result:
        described, result = describe(tensor), Result()
        self.library.harness_host_statistics(byref(described.view), byref(result))
        return result
