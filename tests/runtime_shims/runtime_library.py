"""Drives the runtime as generated code does: a library of it, loaded as often as a test needs a fresh process."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from aoti_debug.base.machine.compiler import find_compiler, find_torch
from aoti_debug.instrument.builder.compiling import runtime_objects
from aoti_debug.instrument.builder.compiling.runtime_objects import (
    CPU_UNIT,
    OPTIMIZE_ELEMENTWISE,
    OPTIMIZE_OTHERS,
    THIS_MACHINE,
    WARNINGS_SUFFIX,
)
from aoti_debug.instrument.builder.compiling.toolchain import Toolchain
from tests.kept import contents, kept

HERE = Path(__file__).parent
SHIMS = HERE.parent.parent / "runtime_shims"
TORCH = Path(torch.__file__).parent
GXX = os.environ.get("CXX", "g++")
FLAGS = (
    *("-std=c++17", "-march=native", "-ffp-contract=off", "-fopenmp", "-fPIC"),
    *("-fvisibility=hidden", "-fno-gnu-unique", "-Wall", "-Wextra", "-Werror"),
)
HANDLE, ADDRESS, I64, F32, F64, BOOL = 13, 12, 5, 10, 11, 1
TENSOR, OUTPUT_SLOT, OPTIONAL, LIST, OPTIONAL_LIST, POINTER, SCALAR, SCALAR_REF, INTS, STRING, OPAQUE = range(11)
NONE, IN, OUT, INOUT, UNKNOWN = range(5)


class CSlot(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("param", ctypes.c_char_p),
        ("value", ctypes.c_uint16),
        ("element", ctypes.c_int16),
        ("form", ctypes.c_uint8),
        ("role", ctypes.c_uint8),
        ("type", ctypes.c_uint8),
        ("fresh", ctypes.c_uint8),
    )


class CSite(ctypes.Structure):
    _fields_ = (
        ("kernel", ctypes.c_char_p),
        ("slots", ctypes.POINTER(CSlot)),
        ("n_slots", ctypes.c_uint32),
        ("id", ctypes.c_uint32),
        ("synchronous", ctypes.c_uint8),
        ("grid", ctypes.c_uint8),
        ("side_stream", ctypes.c_uint8),
        ("reserved", ctypes.c_uint8 * 5),
        ("modules", ctypes.c_char_p),
        ("lines", ctypes.c_char_p),
    )


class CKernel(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("types", ctypes.POINTER(ctypes.c_uint8)),
        ("n_types", ctypes.c_uint32),
        ("id", ctypes.c_uint32),
    )


class CValue(ctypes.Structure):
    _fields_ = (("bits", ctypes.c_uint64), ("type", ctypes.c_uint32), ("reserved", ctypes.c_uint32))


Opaque = ctypes.c_uint64 * 8


@dataclass(frozen=True)
class Slot:
    name: str
    form: int = TENSOR
    role: int = IN
    value: int = 0
    element: int = -1
    type: int = 0
    fresh: int = 0


def compiled_runtime(device: str = "cpu", *include: Path) -> list[Path]:
    """The objects of the runtime for this machine, as packages have them; they compile without a warning."""
    objects = any_runtime(device, *include)
    if not find_compiler().is_clang:
        assert [path.with_suffix(WARNINGS_SUFFIX).read_text() for path in objects] == [""] * len(objects)
    return objects


def any_runtime(device: str = "cpu", *include: Path) -> list[Path]:
    """The same objects, whatever the compiler warns of."""
    flags = replace(THIS_MACHINE, include_dirs=tuple(map(str, include)))
    return runtime_objects.compile_runtime(Toolchain(find_compiler(), find_torch()), device, flags)


def compiled(source: Path, optimize: str, *include: Path, flags: Sequence[str] = FLAGS) -> Path:
    """The object of another source; compiled once."""
    words = [f"-I{path}" for path in (SHIMS, TORCH / "include", *include)]

    def make(path: Path) -> None:
        _run(GXX, *flags, optimize, *words, "-c", str(source), "-o", str(path))

    files = contents(source, *source.parent.glob("*.h"), *SHIMS.rglob("*.h"))
    return kept(f"{source.stem}.o", [*files, *flags, optimize, *map(str, include)], make)


def build(folder: Path, device: Path | None = None) -> Path:
    """The shared library of the runtime and the harness.

    Args:
        folder: where the library goes.
        device: the source of a device half in place of a CPU's.
    """
    library = folder / f"{CPU_UNIT if device is None else device.stem}.so"
    torch_lib = TORCH / "lib"
    link = [
        "-shared",
        "-fopenmp",
        "-Wl,-Bsymbolic-functions",
        f"-L{torch_lib}",
        "-ltorch_cpu",
        f"-Wl,-rpath,{torch_lib}",
    ]
    runtime = compiled_runtime()
    inputs = [compiled(HERE / "harness.cpp", OPTIMIZE_OTHERS)]
    if device is not None:
        inputs.append(compiled(device, OPTIMIZE_ELEMENTWISE))
        runtime = [path for path in runtime if path.stem != CPU_UNIT]
    _run(GXX, *map(str, [*inputs, *runtime]), *link, "-o", str(library))
    return library


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype = ctypes.c_void_p
_pointer.argtypes = (ctypes.py_object, ctypes.c_char_p)
_shim = ctypes.CDLL(str(TORCH / "lib" / "libtorch_cpu.so"))


class Handle:
    """An AtenTensorHandle for a tensor of any kind."""

    def __init__(self, tensor: torch.Tensor) -> None:
        (capsule,) = torch._C._aoti.unsafe_alloc_void_ptrs_from_tensors([tensor])
        self.address: int = _pointer(capsule, None)

    def __del__(self) -> None:
        _shim.aoti_torch_delete_tensor_object(ctypes.c_void_p(self.address))

    @classmethod
    def undefined(cls) -> Handle:
        handle = cls.__new__(cls)
        address = ctypes.c_void_p()
        _shim.aoti_torch_new_uninitialized_tensor(ctypes.byref(address))
        assert address.value
        handle.address = address.value
        return handle

    @property
    def pointer(self) -> ctypes.c_void_p:
        return ctypes.c_void_p(self.address)

    @property
    def value(self) -> CValue:
        return CValue(self.address, HANDLE)


def handles(*given: Handle | None) -> Any:
    """An array of AtenTensorHandle."""
    return (ctypes.c_uint64 * len(given))(*(0 if handle is None else handle.address for handle in given))


def address_of(variable: Any) -> CValue:
    return CValue(ctypes.addressof(variable), ADDRESS)


class Launch:
    def __init__(self, runtime: Runtime, site: int, values: Sequence[CValue]) -> None:
        self.runtime = runtime
        self.site = site
        self.values = (CValue * max(len(values), 1))(*values)
        self.count = len(values)
        self.storage = Opaque()

    def begin(self) -> int:
        """What is to be done with it, an AotiDebugLaunchAction."""
        return int(self.runtime.lib.h_launch_begin(ctypes.byref(self.storage), self.site, self.values, self.count))

    def end(self, status: int = 0, message: str | None = None) -> None:
        text = None if message is None else message.encode()
        self.runtime.lib.h_launch_end(ctypes.byref(self.storage), self.values, status, text)


class Runtime:
    """One copy of the library: it has its own static state, so it reads the environment anew."""

    def __init__(self, library: Path, copy: Path) -> None:
        shutil.copy(library, copy)
        self.lib: Any = ctypes.CDLL(str(copy))
        self.lib.h_sites.restype = ctypes.POINTER(CSite)
        self.lib.h_kernels.restype = ctypes.POINTER(CKernel)
        self.lib.h_filter.restype = ctypes.POINTER(ctypes.c_char)
        self.lib.h_time_launches.restype = ctypes.c_double
        self.lib.h_sizeof.restype = ctypes.c_uint64
        self.lib.h_print.argtypes = (ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64)
        self.lib.h_parse_watchpoint.restype = ctypes.c_int64
        self.lib.h_fail_allocations.argtypes = (ctypes.c_uint64, ctypes.c_uint64, ctypes.c_char_p)
        self.lib.h_allocations.restype = ctypes.c_uint64
        for name in ("f_copied", "f_most_staging"):
            if hasattr(self.lib, name):
                getattr(self.lib, name).restype = ctypes.c_uint64
        self._kept: list[object] = []
        self._slots: dict[int, Sequence[Slot]] = {}

    def keep(self, thing: object) -> None:
        """For as long as this copy of the library."""
        self._kept.append(thing)

    def unload(self) -> None:
        ctypes.CDLL(None).dlclose(ctypes.c_void_p(self.lib._handle))
        del self.lib

    def site(self, id_: int, kernel: str, *slots: Slot, grid: bool = False, modules: str = "", lines: str = "") -> int:
        table = (CSlot * max(len(slots), 1))(
            *(CSlot(s.name.encode(), b"", s.value, s.element, s.form, s.role, s.type, s.fresh) for s in slots)
        )
        site = CSite(kernel.encode(), table, len(slots), id_, 0, grid, modules=modules.encode(), lines=lines.encode())
        self._kept += [table, site]
        self.lib.h_sites()[id_] = site
        return id_

    def kernel(self, id_: int, name: str, *types: int) -> int:
        table = (ctypes.c_uint8 * len(types))(*types)
        kernel = CKernel(name.encode(), table, len(types), id_)
        self._kept += [table, kernel]
        self.lib.h_kernels()[id_] = kernel
        return id_

    @contextmanager
    def failing(self, first: int, count: int = 1, what: str | None = None) -> Iterator[None]:
        """Within it, `count` allocations of the library fail, after `first` others."""
        failure = None if what is None else ctypes.create_string_buffer(what.encode())
        self.keep(failure)
        self.lib.h_fail_allocations(first, count, failure)
        try:
            yield
        finally:
            self.lib.h_fail_allocations(0, 0, None)

    @contextmanager
    def call(self, kind: int = 0, model: int = 1, stream: int = 0) -> Iterator[None]:
        storage = Opaque()
        address = ctypes.byref(storage)
        self.lib.h_call_begin(address, kind, ctypes.c_void_p(model), ctypes.c_void_p(stream))
        failed = 1
        try:
            yield
            failed = 0
        finally:
            self.lib.h_call_end(address, failed)

    def launch_of(self, site: int, *values: CValue) -> Launch:
        """A launch that has not begun."""
        return Launch(self, site, values)

    def open_launch(self, site: int, *values: CValue) -> Launch:
        launch = self.launch_of(site, *values)
        launch.begin()
        return launch

    @contextmanager
    def launch(self, site: int, *values: CValue) -> Iterator[Launch]:
        launch = self.open_launch(site, *values)
        try:
            yield launch
        except RuntimeError as error:
            launch.end(-1, str(error))
            raise
        launch.end()
