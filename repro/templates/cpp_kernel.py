"""Compiles a generated C++ kernel the way the model's package did, and calls it."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import torch

from .address_sanitizer import Runtime, runtime_of
from .kernel import Findings, Programs, Settings

Number = (
    ctypes.c_bool
    | ctypes.c_int8
    | ctypes.c_int16
    | ctypes.c_int32
    | ctypes.c_int64
    | ctypes.c_uint8
    | ctypes.c_uint16
    | ctypes.c_uint32
    | ctypes.c_uint64
    | ctypes.c_float
    | ctypes.c_double
)

# Appended to a kernel's source: calls the kernel so that an exception comes back as text instead of ending the process.
CALL = """
#line 1 "replay_call"
#include <cstddef>
#include <exception>
#include <string>
#include <utility>

namespace replay {
template <class... Types, std::size_t... I>
const char* call(void (*kernel)(Types...), void* const* arguments, const std::size_t* sizes, std::size_t count,
                 std::index_sequence<I...>) {
  static thread_local std::string message;
  if (count != sizeof...(Types)) {
    message = "the kernel takes " + std::to_string(sizeof...(Types)) + " arguments, not " + std::to_string(count);
  } else if (!((sizeof(Types) == sizes[I]) && ...)) {
    message = "an argument has another size than the kernel's parameter";
  } else {
    try {
      kernel(*static_cast<Types*>(arguments[I])...);
      return nullptr;
    } catch (const std::exception& error) {
      message = error.what();
    } catch (...) {
      message = "an exception that is no std::exception";
    }
  }
  return message.c_str();
}

template <class... Types>
const char* call(void (*kernel)(Types...), void* const* arguments, const std::size_t* sizes, std::size_t count) {
  return call(kernel, arguments, sizes, count, std::index_sequence_for<Types...>());
}
}  // namespace replay

// `arguments` points to one value for each parameter; `sizes` are theirs, in bytes.
extern "C" const char* replay_call(void* kernel, void* const* arguments, const std::size_t* sizes, std::size_t count) {
  return replay::call(reinterpret_cast<decltype(&$NAME)>(kernel), arguments, sizes, count);
}
"""


@dataclass(frozen=True)
class Compiler:
    """A compiler's command line. "{torch}" and "{python}" stand for what is installed where the replay runs.

    Attributes:
        command: the recorded compiler; where it is not there, one of the same name is taken.
    """

    command: str
    flags: tuple[str, ...]
    include_dirs: tuple[str, ...]
    link_flags: tuple[str, ...]

    @property
    def program(self) -> str:
        return self.command if shutil.which(self.command) else Path(self.command).name

    def arguments(self, source: Path, library: Path) -> list[str]:
        command_line = [
            self.program,
            str(source),
            *self.flags,
            *(f"-I{directory}" for directory in self.include_dirs),
            *("-w", "-fPIC", "-shared", "-o", str(library)),
            *self.link_flags,
        ]
        return [_here(word) for word in command_line]


class CppKernel:
    """A C++ function with C linkage. Tensors are passed as their data pointers, numbers as ctypes values."""

    backends: tuple[str, ...] = ()
    grid: tuple[int, ...] = ()

    def __init__(self, name: str, source: str, compiler: Compiler) -> None:
        self.name = name
        self.source = source + CALL.replace("$NAME", name)
        self.compiler = compiler
        self._library: ctypes.CDLL | None = None
        self._scalars: Mapping[int, int] = {}

    def default_backend(self) -> str:
        return ""

    def device(self, backend: str, recorded: str) -> str:
        return recorded

    def part(self, backend: str) -> Programs:
        return "none"

    def tolerance(self, backend: str) -> float:
        return 0.0

    def findings(self) -> Findings | None:
        return None

    def prepare(self, settings: Settings) -> None:
        """Compiles and loads the kernel; what was compiled before from the same text and command is used again.

        Raises:
            SystemExit: the compiler cannot be run or refuses the source; its messages are shown.
        """
        self._library = ctypes.CDLL(str(self.build(settings)))
        self._scalars = settings.scalars
        self._library.replay_call.restype = ctypes.c_char_p

    def build(self, settings: Settings) -> Path:
        """The compiled library; its source lies beside it.

        Raises:
            SystemExit: as `prepare`.
        """
        compiler = self.compiler
        if settings.sanitize:
            compiler = replace(compiler, flags=(*compiler.flags, *self.sanitizer().flags))
        command = compiler.arguments(Path("kernel.cpp"), Path("kernel.so"))
        key = hashlib.sha256("\0".join([self.source, torch.__version__, *command]).encode()).hexdigest()[:16]
        build = settings.folder / "build" if os.access(settings.folder, os.W_OK) else _elsewhere()
        library = build / f"{key}.so"
        if not library.exists():
            build.mkdir(exist_ok=True)
            self._compile(compiler, build / f"{key}.cpp", library)
        return library

    def sanitizer(self) -> Runtime:
        """AddressSanitizer of the compiler.

        Raises:
            SystemExit: it has none.
        """
        return runtime_of(self.compiler.program)

    def __call__(self, *arguments: torch.Tensor | Number | None) -> None:
        """Launches the kernel.

        Raises:
            RuntimeError: an exception left it, or the arguments do not fit its parameters.
        """
        assert self._library is not None, "prepare() comes first"
        values = [self._value(argument) for argument in arguments]
        count = len(values)
        addresses = (ctypes.c_void_p * count)(*(ctypes.addressof(value) for value in values))
        sizes = (ctypes.c_size_t * count)(*(ctypes.sizeof(value) for value in values))
        kernel = ctypes.cast(getattr(self._library, self.name), ctypes.c_void_p)
        message = self._library.replay_call(kernel, addresses, sizes, ctypes.c_size_t(count))
        if message is not None:
            raise RuntimeError(message.decode(errors="replace"))

    def _compile(self, compiler: Compiler, source: Path, library: Path) -> None:
        source.write_text(self.source, encoding="utf-8")
        unfinished = library.with_suffix(f".{os.getpid()}")
        command = compiler.arguments(source, unfinished)
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except OSError as error:
            raise SystemExit(f"the compiler cannot be run: {error}") from error
        if done.returncode != 0:
            raise SystemExit(f"the kernel does not compile:\n{' '.join(command)}\n{done.stderr}")
        os.replace(unfinished, library)

    def _value(self, argument: torch.Tensor | Number | None) -> Number | ctypes.c_void_p:
        """What the kernel takes for it: a data pointer, a number, or a null pointer."""
        if isinstance(argument, torch.Tensor):
            return ctypes.c_void_p(argument.data_ptr())
        if argument is None:
            return ctypes.c_void_p()
        value = argument.value
        if isinstance(value, int) and not isinstance(value, bool) and value in self._scalars:
            return type(argument)(self._scalars[value])
        return argument


@cache
def _elsewhere() -> Path:
    """Where things are built that cannot be built in the repro's folder; one directory a user."""
    directory = Path(tempfile.gettempdir()) / f"repro-build-{os.getuid()}"
    directory.mkdir(mode=0o700, exist_ok=True)
    if directory.stat().st_uid != os.getuid():
        return Path(tempfile.mkdtemp(prefix="repro-build-"))
    return directory


def _here(word: str) -> str:
    torch_dir = str(Path(torch.__file__).parent)
    return word.replace("{torch}", torch_dir).replace("{python}", sysconfig.get_paths()["include"])
