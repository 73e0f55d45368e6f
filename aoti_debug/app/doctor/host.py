"""Checks of Python, compiler, torch, triton and directories, and of the programs that repros and stack traces use."""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from enum import Enum
from importlib import metadata
from pathlib import Path

from aoti_debug.base import wording
from aoti_debug.base.errors import ToolchainError, UsageError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine import cache
from aoti_debug.base.machine import compiler as compilers
from aoti_debug.base.machine.files.results_home import ResultKind
from aoti_debug.base.machine.processes import child_process


class Status(str, Enum):
    """The outcome of a check."""

    OK = "ok"
    WARNING = "warning"  # usable, but slower or with less information
    MISSING = "missing"


@dataclass(frozen=True)
class MachineCheck:
    """The result of one check.

    Attributes:
        found: a few words about what is installed, or the problem.
        todo: what to do about it; "" if nothing has to be done.
        needed: True if no package can be built or run here without it.
    """

    name: str
    status: Status
    found: str
    todo: str = ""
    needed: bool = False


def ok(name: str, found: str) -> MachineCheck:
    """A check that passed."""
    return MachineCheck(name, Status.OK, found)


def warning(name: str, found: str, todo: str) -> MachineCheck:
    """A check that found a limitation."""
    return MachineCheck(name, Status.WARNING, found, todo)


def missing(name: str, found: str, todo: str) -> MachineCheck:
    """A check of something optional that is missing."""
    return MachineCheck(name, Status.MISSING, found, todo)


def missing_required(name: str, found: str, todo: str) -> MachineCheck:
    """A check of something that is missing and required to build or run packages."""
    return MachineCheck(name, Status.MISSING, found, todo, needed=True)


OLDEST_PYTHON = (3, 10)
NEWEST_TORCH = "2.15"  # the newest tested one
SHARED_MEMORY = Path("/dev/shm")
FLIGHT_BYTES = 1 << 30  # of shared memory, enough for the inputs of the last launches of an ordinary model
FREE_BYTES = 5 << 30  # of disk for a build's objects and a run's tensors


def python() -> Iterator[MachineCheck]:
    """Checks the Python version and the operating system."""
    version = f"{platform.python_version()}, {platform.machine()} {platform.system()}"
    if sys.version_info < OLDEST_PYTHON:
        yield missing_required("python", version, "install Python 3.10 or newer")
    elif platform.system() != "Linux":
        yield missing_required("python", version, "packages are built and run on Linux only")
    else:
        yield ok("python", version)


def compiler() -> Iterator[MachineCheck]:
    """Checks the C++ compiler and OpenMP."""
    try:
        cxx = compilers.find_compiler()
    except ToolchainError as error:
        yield missing_required("compiler", str(error).splitlines()[0], error.hint)
        return
    version = cxx.version.splitlines()[0]
    yield ok("compiler", f"{cxx.path}: {version}; it links the C++ runtime as a shared library")
    yield _openmp(cxx)


def _openmp(cxx: compilers.Compiler) -> MachineCheck:
    """Checks that -fopenmp, which generated CPU kernels are compiled with, works."""
    with tempfile.TemporaryDirectory(dir=cache.directory()) as folder:
        source = Path(folder) / "openmp.cpp"
        source.write_text("#include <omp.h>\nint threads() { return omp_get_max_threads(); }\n")
        command = [cxx.path, "-shared", "-fPIC", "-fopenmp", str(source), "-o", str(source.with_suffix(".so"))]
        result = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if result.returncode == 0:
        return ok("openmp", "-fopenmp compiles and links")
    first_line = result.stderr.strip().splitlines()[:1]
    package = "libomp-dev" if cxx.is_clang else "libgomp1"
    return missing_required(
        "openmp", " ".join(["-fopenmp fails:", *first_line]), f"install OpenMP (Debian and Ubuntu: {package})"
    )


def torch() -> Iterator[MachineCheck]:
    """Checks the installed torch."""
    try:
        installed = compilers.find_torch()
    except ToolchainError as error:
        yield missing_required("torch", str(error), error.hint)
        return
    build = torch_cuda()
    text = f"{installed.version}, built for {f'CUDA {build}' if build else 'the CPU'}"
    if compilers.major_minor(installed.version) > compilers.major_minor(NEWEST_TORCH):
        todo = f"tested versions are {compilers.OLDEST_TORCH} to {NEWEST_TORCH}: a launch may go unrecognised"
        yield warning("torch", text, todo)
    else:
        yield ok("torch", text)


def torch_cuda() -> str:
    """The CUDA version that the installed torch was built for; "" for the CPU or without torch."""
    spec = importlib.util.find_spec("torch")
    version = Path(spec.origin).parent / "version.py" if spec and spec.origin else None
    if version is None or not version.is_file():
        return ""
    match = re.search(r"^cuda(?::[^=]+)? = ['\"]([\d.]+)['\"]", version.read_text(), re.MULTILINE)
    return match[1] if match else ""


def triton() -> Iterator[MachineCheck]:
    """Checks that triton is installed in the version that torch requires."""
    try:
        version = metadata.version("triton")
    except metadata.PackageNotFoundError:
        use = "CUDA models and their repros need it" if torch_cuda() else "repros of Triton kernels need it"
        pinned = _pinned_triton()
        yield missing("triton", "not installed", f"{use}: pip install triton{f'=={pinned}' if pinned else ''}")
        return
    pinned = _pinned_triton()
    if pinned and compilers.major_minor(pinned) != compilers.major_minor(version):
        todo = f"Inductor's code is for {pinned}: pip install triton=={pinned}"
        yield warning("triton", f"{version}, and this torch wants {pinned}", todo)
    else:
        yield ok("triton", version)


def _pinned_triton() -> str:
    """The version of triton that the installed torch requires; "" if it names none."""
    try:
        requirements = metadata.requires("torch") or []
    except metadata.PackageNotFoundError:
        return ""
    matches = (re.match(r"triton\s*==\s*([\w.]+)", requirement) for requirement in requirements)
    return next((match[1] for match in matches if match), "")


def shared_memory() -> Iterator[MachineCheck]:
    """Checks that /dev/shm is writable and large enough."""
    if not os.access(SHARED_MEMORY, os.W_OK):
        todo = "mount a tmpfs there: without it nothing shows how far a device had come when the process died"
        yield missing("shared memory", f"{SHARED_MEMORY} cannot be written", todo)
        return
    usage = shutil.disk_usage(SHARED_MEMORY)
    text = f"{SHARED_MEMORY}: {_size(usage.free)} of {_size(usage.total)} free"
    if usage.free < FLIGHT_BYTES:
        todo = "the inputs of the last launches are kept there: docker run --shm-size=2g, or remove what lies there"
        yield warning("shared memory", text, todo)
    else:
        yield ok("shared memory", text)


def directories() -> Iterator[MachineCheck]:
    """Checks that the directories for runs, temporary files and caches are writable and have space."""
    yield _results()
    yield _directory("temporary files", Path(tempfile.gettempdir()), "export TMPDIR=DIR names another place")
    yield _cache()
    for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"):
        if os.environ.get(name):
            yield _directory(name, Path(os.environ[name]), f"unset {name}, or let it name a place that can be written")


def _results() -> MachineCheck:
    """Checks the place of what commands make."""
    todo = "AOTI_DEBUG_HOME=DIR, or --out DIR, names another place"
    try:
        return _directory("runs", ResultKind.RUNS.place(), todo)
    except UsageError as error:
        return missing_required("runs", str(error), todo)


def _cache() -> MachineCheck:
    """Checks the cache, and says what it takes."""
    check = _directory("cache", cache.directory(), "export XDG_CACHE_HOME=DIR names another place")
    taken = sum(entry.bytes for entry in cache.cached_entries(cache.directory()))
    rest = "" if taken <= cache.LIMIT else ", the next build deletes what is above that"
    bound = f"it takes {_size(taken)} of at most {_size(cache.LIMIT)}{rest}; aoti-debug clean --cache empties it"
    return replace(check, found=f"{check.found}; {bound}")


def _directory(name: str, path: Path, todo: str) -> MachineCheck:
    """Checks that files can be made in a directory, or in its nearest existing parent."""
    existing = next(parent for parent in (path.absolute(), *path.absolute().parents) if parent.is_dir())
    try:
        with tempfile.TemporaryFile(dir=existing):
            free = shutil.disk_usage(existing).free
    except OSError as error:
        return missing_required(name, f"{path} cannot be written: {error.strerror}", todo)
    text = f"{path}: {_size(free)} free"
    return ok(name, text) if free >= FREE_BYTES else warning(name, text, f"make room; {todo}")


def _size(count: int) -> str:
    return wording.byte_size(count) if count >= 1 << 30 else wording.byte_size_in("MiB", count)


SANITIZER_PACKAGE = "nvidia-cuda-sanitizer-api"
PTRACE_SCOPE = Path("/proc/sys/kernel/yama/ptrace_scope")
DRIVER_PARAMETERS = Path("/proc/driver/nvidia/params")
_CAP_SYS_PTRACE = 19
_CAP_SYS_ADMIN = 21


def ptxas() -> Iterator[MachineCheck]:
    """Checks ptxas: a repro has the machine code of the package only if the same ptxas assembles it."""
    if not torch_cuda():
        return
    triton_ptxas, chosen = _triton_ptxas(), os.environ.get("TRITON_PTXAS_PATH") or os.environ.get("PTXAS")
    if chosen:
        yield _check_chosen_ptxas(Path(chosen), triton_ptxas)
        return
    path = triton_ptxas or compilers.find_program("ptxas")
    if path is None:
        yield missing("ptxas", "neither in triton nor in a CUDA toolkit", "pip install triton")
    else:
        yield ok("ptxas", f"{_version(path) or 'unknown version'}: {path}")


def _check_chosen_ptxas(path: Path, triton_ptxas: Path | None) -> MachineCheck:
    version, original = _version(path), _version(triton_ptxas) if triton_ptxas else ""
    if not version:
        return missing("ptxas", f"{path} does not run", "unset TRITON_PTXAS_PATH and PTXAS, or correct them")
    if original and original != version:
        todo = "unset TRITON_PTXAS_PATH and PTXAS, unless the model was compiled with this one"
        return warning("ptxas", f"{path} is {version}, triton's own {original}", todo)
    return ok("ptxas", f"{version}: {path}")


def _triton_ptxas() -> Path | None:
    directory = compilers.triton_directory()
    path = directory / "bin/ptxas" if directory else None
    return path if path and path.is_file() else None


def sanitizer() -> Iterator[MachineCheck]:
    """Checks for compute-sanitizer."""
    if not torch_cuda():
        return
    path = compilers.find_program("compute-sanitizer") or _program_of_package(SANITIZER_PACKAGE, "compute-sanitizer")
    if path is None:
        todo = f"pip install {SANITIZER_PACKAGE}, or the CUDA toolkit: repros are confirmed with it"
        yield missing("compute-sanitizer", "not found", todo)
    else:
        yield ok("compute-sanitizer", f"{_version(path) or 'unknown version'}: {path}")


def debugger() -> Iterator[MachineCheck]:
    """Checks for cuda-gdb."""
    if not torch_cuda():
        return
    path = compilers.find_program("cuda-gdb")
    if path is None:
        yield missing("cuda-gdb", "not found", "install the CUDA toolkit, if you want to step through a kernel")
    else:
        yield ok("cuda-gdb", str(path))


def tracing() -> Iterator[MachineCheck]:
    """Checks if debuggers may trace other processes, and profilers may read the counters of the GPU."""
    scope = _read(PTRACE_SCOPE).strip()
    capable = _has_capability(_CAP_SYS_PTRACE)
    if scope in ("2", "3") and not capable:
        todo = "docker run --cap-add SYS_PTRACE, or echo 0 > /proc/sys/kernel/yama/ptrace_scope"
        yield warning("debuggers", f"ptrace is for administrators (ptrace_scope {scope})", todo)
    elif scope == "1" and not capable:
        yield ok("debuggers", "may watch processes that they start themselves (ptrace_scope 1)")
    else:
        yield ok("debuggers", "may watch the processes of this user")
    restricted = re.search(r"^RmProfilingAdminOnly:\s*(\d)", _read(DRIVER_PARAMETERS), re.MULTILINE)
    if restricted and restricted[1] == "1" and not _has_capability(_CAP_SYS_ADMIN):
        todo = "only profilers need them: options nvidia NVreg_RestrictProfilingToAdminUsers=0, or --cap-add SYS_ADMIN"
        yield warning("GPU counters", "for administrators only", todo)


def symbolizer() -> Iterator[MachineCheck]:
    """Checks for addr2line."""
    path = shutil.which("addr2line")
    if path is None:
        todo = "stacks of crashes name functions but no lines: install binutils"
        yield missing("addr2line", "not found", todo)
    else:
        yield ok("addr2line", path)


def _program_of_package(package: str, program: str) -> Path | None:
    try:
        files = metadata.files(package) or []
    except metadata.PackageNotFoundError:
        return None
    return next((Path(str(file.locate())) for file in files if file.name == program), None)


def _version(program: Path) -> str:
    """The version that a program prints, "13.0.88"; "" if it does not run or prints none."""
    try:
        result = child_process.run([str(program), "--version"], timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    match = re.search(r"\bV(\d[\d.]*)|[Vv]ersion (\d[\d.]*)", result.stdout)
    return (match[1] or match[2]) if match else ""


def _has_capability(number: int) -> bool:
    match = re.search(r"^CapEff:\s*(\w+)", _read(Path("/proc/self/status")), re.MULTILINE)
    return bool(match and int(match[1], 16) >> number & 1)


def _read(path: Path) -> str:
    """The text of a file; "" if it does not exist or is not readable."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
