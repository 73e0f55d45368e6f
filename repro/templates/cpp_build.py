"""Compiles a generated C++ kernel as the model's package did."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import stat
import subprocess
import sysconfig
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import torch

from .header_name import header_name

_GOLD = "ld.gold"
_TORCH = ("-ltorch", "-lc10")  # the libraries of torch begin so
_NOTHING_UNDEFINED = "-Wl,-z,defs"

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
      message = "an exception that is not a std::exception";
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
class CppCompiler:
    """A compiler's command line. "{torch}" and "{python}" stand for what is installed where the replay runs.

    Attributes:
        command: the recorded compiler; where it does not exist, one of the same name on PATH is used.
    """

    command: str
    flags: tuple[str, ...]
    include_dirs: tuple[str, ...]
    link_flags: tuple[str, ...]

    @property
    def program(self) -> str:
        """The recorded compiler, or its bare name where it does not exist."""
        return self.command if shutil.which(self.command) else Path(self.command).name

    def compilation(self, source: Path, compiled: Path) -> list[str]:
        """The command line that compiles a source to an object file."""
        directories = [f"-I{directory}" for directory in self.include_dirs]
        words = [self.program, "-c", str(source), *self.flags, *directories, "-w", "-fPIC", "-o", str(compiled)]
        return [_here(word) for word in words]

    def linking(self, compiled: Path, library: Path, link_flags: Sequence[str]) -> list[str]:
        """The command line that links an object file to a library."""
        words = [self.program, str(compiled), *self.flags, "-shared", "-o", str(library), *link_flags]
        return [_here(word) for word in words]


def library_of(compiler: CppCompiler, source: str, kernel: str, folder: Path, flags: Sequence[str] = ()) -> Path:
    """Compiles a kernel and returns the library; its source lies next to it.

    A library that was compiled from the same text with the same command is reused.

    Args:
        folder: what is built lies in its `build/`, where that can be written.
        flags: further ones.

    Raises:
        SystemExit: the compiler cannot be run or refuses the source; its messages are in the text.
    """
    text = source + CALL.replace("$NAME", kernel)
    compiler = replace(compiler, flags=(*compiler.flags, *flags))
    compilation = compiler.compilation(Path("kernel.cpp"), Path("kernel.o"))
    linking = compiler.linking(Path("kernel.o"), Path("kernel.so"), compiler.link_flags)
    key = hashlib.sha256("\0".join([text, torch.__version__, *compilation, *linking]).encode()).hexdigest()[:16]
    build = build_directory(folder)
    library = build / f"{key}.so"
    if not library.exists():
        _compile(_with_header(compiler, text, build), text, build / f"{key}.cpp", library)
    return library


def build_directory(folder: Path) -> Path:
    """The directory for what a repro builds: `build/` in its folder, or a private one where that cannot be written."""
    return _beside(folder) or _elsewhere()


def _with_header(compiler: CppCompiler, text: str, build: Path) -> CppCompiler:
    """With the precompiled header of the package's kernels, if it lies there and the text includes it at its beginning.

    Further includes may precede it, and nothing that could change what it means.
    """
    header = build / header_name(torch.__version__, compiler.flags)
    if not header.with_name(f"{header.name}.gch").is_file():
        return compiler
    before, included, _ = text.partition(header.read_text(encoding="utf-8"))
    if not included or not all(line.startswith("#include <") for line in before.splitlines()):
        return compiler
    return replace(compiler, flags=("-include", str(header), *compiler.flags))


def _compile(compiler: CppCompiler, text: str, source: Path, library: Path) -> None:
    source.write_text(text, encoding="utf-8")
    unfinished = library.with_suffix(f".{os.getpid()}")
    compiled = library.with_suffix(f".{os.getpid()}.o")
    try:
        _run("the kernel does not compile", [compiler.compilation(source, compiled)])
        _run("the kernel cannot be linked", [compiler.linking(compiled, unfinished, way) for way in _ways(compiler)])
    finally:
        compiled.unlink(missing_ok=True)
    os.replace(unfinished, library)


def _run(failed: str, commands: Sequence[Sequence[str]]) -> None:
    """Runs commands until one succeeds."""
    for command in commands:
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except OSError as error:
            raise SystemExit(f"the compiler cannot be run: {error}") from error
        if done.returncode == 0:
            return
    raise SystemExit(f"{failed}:\n{' '.join(command)}\n{done.stderr}")


def _ways(compiler: CppCompiler) -> list[tuple[str, ...]]:
    """The flags for linking, the fastest first.

    Many kernels call no function of torch, whose libraries take a linker long to read.
    """
    flags = compiler.link_flags
    if any(flag.startswith("-fsanitize") for flag in compiler.flags):
        return [flags]
    fast = _faster_linker(compiler)
    alone = [flag for flag in flags if not flag.startswith(_TORCH)]
    return list(dict.fromkeys([(*alone, _NOTHING_UNDEFINED, *fast), (*flags, *fast), flags]))


def _faster_linker(compiler: CppCompiler) -> tuple[str, ...]:
    """The option for gold, if the compiler has it: it links against torch in half the time of the usual linker."""
    if platform.machine() != "x86_64" or any(flag.startswith("-fuse-ld") for flag in compiler.flags):
        return ()
    command = [compiler.program, f"-print-prog-name={_GOLD}"]
    found = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    return ("-fuse-ld=gold",) if shutil.which(found) else ()  # a bare name: one on PATH is used


@cache
def _elsewhere() -> Path:
    """The build directory where the repro's folder cannot be used; one for each user."""
    directory = Path(tempfile.gettempdir()) / f"repro-build-{os.getuid()}"
    try:
        directory.mkdir(mode=0o700, exist_ok=True)
    except FileExistsError:
        return Path(tempfile.mkdtemp(prefix="repro-build-"))
    return directory if _is_private(directory) else Path(tempfile.mkdtemp(prefix="repro-build-"))


def _beside(folder: Path) -> Path | None:
    """The build directory in the repro's folder; None where that cannot be written, or others may write there."""
    build = folder / "build"
    try:
        build.mkdir(mode=0o700, exist_ok=True)
    except OSError:
        return None
    return build if _is_private(build) and os.access(build, os.W_OK) else None


def _is_private(directory: Path) -> bool:
    """True for a directory, not a link to one, of this user, that no other user may write to: its files are loaded."""
    found = directory.lstat()
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o022


def _here(word: str) -> str:
    torch_dir = str(Path(torch.__file__).parent)
    return word.replace("{torch}", torch_dir).replace("{python}", sysconfig.get_paths()["include"])
