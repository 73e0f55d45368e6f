"""Finds the C++ compiler, the torch and the CUDA toolkit that a build uses, and checks them for known problems."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib import metadata
from pathlib import Path

from aoti_debug.base.errors import ToolchainError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine import cache

CPUINFO = Path("/proc/cpuinfo")


def installed_versions(*packages: str) -> dict[str, str]:
    """The versions by name: "Python", "system", and those of the packages that are installed."""
    versions = {"Python": platform.python_version(), "system": platform.platform()}
    for name in packages:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return versions


@dataclass(frozen=True)
class Processor:
    """A processor.

    Attributes:
        name: its model, such as "AMD EPYC 9654 96-Core Processor"; its architecture where Linux names none.
        features: the names of its instruction sets and other features ("avx2"); empty if Linux lists none.
    """

    name: str
    features: frozenset[str]


def this_processor() -> Processor:
    """Reads the name and the features of the first processor of this machine from /proc/cpuinfo."""
    try:
        lines = CPUINFO.read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    first: dict[str, str] = {}
    for line in lines:
        key, _, value = line.partition(":")
        first.setdefault(key.strip(), value.strip())
    features = first.get("flags", first.get("Features", ""))
    return Processor(first.get("model name", platform.machine()), frozenset(features.split()))


DEFAULT = Path("/usr/local/cuda")


def toolkit_directories() -> tuple[Path, ...]:
    """Directories that may hold a toolkit, the most specific first.

    The order: $CUDA_HOME, $CUDA_PATH, the one of the nvcc on PATH, /usr/local/cuda, /usr/local/cuda-VERSION.
    """
    from_environment = [Path(home) for name in ("CUDA_HOME", "CUDA_PATH") if (home := os.environ.get(name))]
    nvcc = shutil.which("nvcc")
    from_nvcc = [Path(nvcc).resolve().parent.parent] if nvcc else []
    versioned = sorted(DEFAULT.parent.glob(f"{DEFAULT.name}-*"), reverse=True)
    return tuple(dict.fromkeys((*from_environment, *from_nvcc, DEFAULT, *versioned)))


def package_directories() -> tuple[Path, ...]:
    """The directories of NVIDIA's Python packages, with `include`, `lib` or `bin` like a toolkit."""
    return tuple(sorted({path for site in sys.path for path in Path(site or ".").glob("nvidia/*") if path.is_dir()}))


def triton_directory() -> Path | None:
    """The folder of the toolkit programs and headers that the installed Triton contains; None without Triton."""
    spec = importlib.util.find_spec("triton")
    directory = Path(spec.origin).parent / "backends/nvidia" if spec and spec.origin else None
    return directory if directory and directory.is_dir() else None


def find_header_directory(header: str) -> Path | None:
    """Finds the include directory that has a header, of a toolkit or of a Python package."""
    candidates = (root / "include" for root in (*toolkit_directories(), *package_directories()))
    return next((folder for folder in candidates if (folder / header).is_file()), None)


def find_directory(relative: str) -> Path | None:
    """Finds a directory of a toolkit by its relative path: "targets/x86_64-linux/lib"."""
    return next((root / relative for root in toolkit_directories() if (root / relative).is_dir()), None)


def find_program(name: str) -> Path | None:
    """Finds a program of the toolkit: on PATH, in a toolkit, or in a Python package."""
    on_path = shutil.which(name)
    if on_path:
        return Path(on_path)
    candidates = (root / "bin" / name for root in (*toolkit_directories(), *package_directories()))
    return next((path for path in candidates if os.access(path, os.X_OK)), None)


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
# The usual linker reads all symbols of torch's libraries into a table. Gold puts weights behind all data, too;
# lld puts them beside the code, where more than 2 GB do not fit.
FASTER_LINKER = "-fuse-ld=gold"
_LINKER = "linker"  # a file in the cache: the options that choose the linker


@dataclass(frozen=True)
class Compiler:
    """A C++ compiler that was checked.

    Attributes:
        version: all that --version prints.
        linker: options that choose a faster linker than its default, if there is one.
    """

    path: str
    version: str
    linker: tuple[str, ...] = ()

    @property
    def is_clang(self) -> bool:
        """True for clang, False for g++."""
        return "clang" in self.version

    @property
    def header_suffix(self) -> str:
        """The suffix of a precompiled header."""
        return ".pch" if self.is_clang else ".gch"


@dataclass(frozen=True)
class Torch:
    """The installed torch, read without importing it.

    Attributes:
        fingerprint: changes when another build of torch is installed.
        has_cuda: False if it is a build without CUDA.
    """

    version: str
    directory: Path
    fingerprint: str
    has_cuda: bool = False


def find_compiler() -> Compiler:
    """Finds and checks the compiler that Inductor would use: $CXX, or g++.

    Raises:
        ToolchainError: there is none, or it fails the checks of `check_compiler`.
    """
    name = os.environ.get("CXX", "g++")
    path = shutil.which(name)
    if path is None:
        raise ToolchainError(f"no C++ compiler: {name} is not there", hint=_compiler_hint())
    return check_compiler(path)


def check_compiler(path: str) -> Compiler:
    """Checks the compiler at a path.

    Raises:
        ToolchainError: it does not run, cannot make a shared library, or links the C++ runtime statically.
    """
    try:
        result = subprocess.run([path, "--version"], capture_output=True, text=True, errors="replace", check=False)
    except OSError as error:
        raise ToolchainError(
            f"the C++ compiler {path} does not run: {error.strerror}", hint=_compiler_hint()
        ) from error
    if result.returncode != 0:
        raise ToolchainError(f"the C++ compiler {path} does not run: {result.stderr.strip()}", hint=_compiler_hint())
    compiler = Compiler(path, result.stdout)
    name = cache.key(_identity(path), compiler.version, FASTER_LINKER, shutil.which("ld.gold") or "")
    probed = cache.entry("compilers", name, lambda work: _probe(compiler, work))
    return replace(compiler, linker=tuple((probed / _LINKER).read_text().split()))


def find_torch() -> Torch:
    """Finds the torch that this interpreter would import.

    Raises:
        ToolchainError: none is installed, or it is older than OLDEST_TORCH, the first that writes C++ sources with
            provenance.
    """
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        raise ToolchainError(
            "torch is not installed in this Python environment", hint=f"install torch {OLDEST_TORCH} or newer"
        )
    return read_torch(Path(spec.origin).parent)


def read_torch(directory: Path) -> Torch:
    """Reads version and fingerprint of the torch in `directory`. Raises ToolchainError like `find_torch`."""
    version_file = directory / "version.py"
    text = version_file.read_text()
    match = re.search(r"__version__ = ['\"]([^'\"]+)['\"]", text)
    version = match.group(1) if match else "unknown"
    if major_minor(version) < major_minor(OLDEST_TORCH):
        raise ToolchainError(
            f"torch {version} is too old: it cannot write a package's C++ sources with their provenance",
            hint=f"install torch {OLDEST_TORCH} or newer",
        )
    fingerprint = cache.key(text, str(directory), str(version_file.stat().st_mtime_ns))
    has_cuda = re.search(r"^cuda\b[^=]*= *['\"]", text, re.MULTILINE) is not None
    return Torch(version, directory, fingerprint, has_cuda)


def major_minor(version: str) -> tuple[int, ...]:
    """The first two numbers of a version: (2, 13) of "2.13.0+cpu"."""
    return tuple(int(part) for part in re.findall(r"\d+", version.partition("+")[0])[:2])


def _identity(path: str) -> str:
    stat = os.stat(path)
    return f"{os.path.realpath(path)} {stat.st_mtime_ns} {stat.st_size}"


def _probe(compiler: Compiler, work: Path) -> None:
    source = work / "probe.cpp"
    source.write_text(PROBE)
    library = work / "probe.so"
    command = [compiler.path, "-shared", "-fPIC", str(source), "-o", str(library)]
    result = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if result.returncode != 0:
        raise ToolchainError(
            f"the C++ compiler {compiler.path} cannot make a shared library:\n{result.stderr.strip()[-2000:]}",
            hint=_compiler_hint(),
        )
    binary = library.read_bytes()
    if not any(name in binary for name in SHARED_RUNTIMES):
        raise ToolchainError(
            f"{compiler.path} links the C++ runtime statically: packages that it builds crash when torch loads them",
            hint=_compiler_hint(),
        )
    (work / _LINKER).write_text(FASTER_LINKER if _links_with(FASTER_LINKER, command) else "")


def _links_with(option: str, command: Sequence[str]) -> bool:
    """True if a command links with that option too. Only on x86-64, where such libraries were tested."""
    return platform.machine() == "x86_64" and subprocess.run([*command, option], capture_output=True).returncode == 0


def _compiler_hint() -> str:
    system = next((path for path in ("/usr/bin/g++", "/usr/bin/clang++") if os.path.exists(path)), None)
    if system and os.path.realpath(system) != os.path.realpath(shutil.which(os.environ.get("CXX", "g++")) or ""):
        return f"use the system's compiler: export CXX={system}"
    return "install g++ (Debian and Ubuntu: apt-get install g++), or set CXX to a compiler that works"
