"""The C++ compiler and the torch that a build uses: found, and checked for what would bite later."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from aoti_debug.errors import ToolchainError
from aoti_debug.machine import cache

OLDEST_TORCH = "2.11"
PROBE = """#include <iostream>
#include <stdexcept>
extern "C" int aoti_debug_probe(int x) {
  std::cerr << x;
  if (x > 1) throw std::runtime_error("x");
  return x;
}
"""
SHARED_RUNTIMES = (b"libstdc++.so", b"libc++.so")


@dataclass(frozen=True)
class Compiler:
    path: str
    version: str  # all that --version prints

    @property
    def is_clang(self) -> bool:
        return "clang" in self.version

    @property
    def header_suffix(self) -> str:
        """What a precompiled header adds to the header's name."""
        return ".pch" if self.is_clang else ".gch"


@dataclass(frozen=True)
class Torch:
    """The installed torch, read without importing it."""

    version: str
    directory: Path
    fingerprint: str  # changes when another build of torch is installed


def find_compiler() -> Compiler:
    """The compiler that Inductor would use: $CXX, or g++.

    Raises:
        ToolchainError: there is none, or its libraries would crash when they are loaded.
    """
    name = os.environ.get("CXX", "g++")
    path = shutil.which(name)
    if path is None:
        raise ToolchainError(f"no C++ compiler: {name} is not there", hint=_compiler_hint())
    return checked_compiler(path)


def checked_compiler(path: str) -> Compiler:
    """A compiler by its path.

    Raises:
        ToolchainError: it does not run, cannot make a shared library, or links the C++ runtime statically.
    """
    try:
        ran = subprocess.run([path, "--version"], capture_output=True, text=True, errors="replace", check=False)
    except OSError as error:
        raise ToolchainError(
            f"the C++ compiler {path} does not run: {error.strerror}", hint=_compiler_hint()
        ) from error
    if ran.returncode != 0:
        raise ToolchainError(f"the C++ compiler {path} does not run: {ran.stderr.strip()}", hint=_compiler_hint())
    compiler = Compiler(path, ran.stdout)
    cache.entry("compilers", cache.key(_identity(path), compiler.version), lambda work: _probe(compiler, work))
    return compiler


def find_torch() -> Torch:
    """The torch that this interpreter would import.

    Raises:
        ToolchainError: none is installed, or it is older than the oldest that writes C++ sources with provenance.
    """
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        raise ToolchainError(
            "torch is not installed in this Python environment", hint=f"install torch {OLDEST_TORCH} or newer"
        )
    return torch_in(Path(spec.origin).parent)


def torch_in(directory: Path) -> Torch:
    """The torch whose package is `directory`. Raises ToolchainError as find_torch."""
    version_file = directory / "version.py"
    text = version_file.read_text()
    found = re.search(r"__version__ = ['\"]([^'\"]+)['\"]", text)
    version = found.group(1) if found else "unknown"
    if _number(version) < _number(OLDEST_TORCH):
        raise ToolchainError(
            f"torch {version} is too old: it cannot write a package's C++ sources with their provenance",
            hint=f"install torch {OLDEST_TORCH} or newer",
        )
    return Torch(version, directory, cache.key(text, str(directory), str(version_file.stat().st_mtime_ns)))


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version.partition("+")[0])[:2])


def _identity(path: str) -> str:
    stat = os.stat(path)
    return f"{os.path.realpath(path)} {stat.st_mtime_ns} {stat.st_size}"


def _probe(compiler: Compiler, work: Path) -> None:
    source = work / "probe.cpp"
    source.write_text(PROBE)
    library = work / "probe.so"
    command = [compiler.path, "-shared", "-fPIC", str(source), "-o", str(library)]
    ran = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if ran.returncode != 0:
        raise ToolchainError(
            f"the C++ compiler {compiler.path} cannot make a shared library:\n{ran.stderr.strip()[-2000:]}",
            hint=_compiler_hint(),
        )
    binary = library.read_bytes()
    if not any(name in binary for name in SHARED_RUNTIMES):
        raise ToolchainError(
            f"{compiler.path} links the C++ runtime statically: packages that it builds crash when torch loads them",
            hint=_compiler_hint(),
        )


def _compiler_hint() -> str:
    system = next((path for path in ("/usr/bin/g++", "/usr/bin/clang++") if os.path.exists(path)), None)
    if system and os.path.realpath(system) != os.path.realpath(shutil.which(os.environ.get("CXX", "g++")) or ""):
        return f"use the system's compiler: export CXX={system}"
    return "install g++ (Debian and Ubuntu: apt-get install g++), or set CXX to a compiler that works"
