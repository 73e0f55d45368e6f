"""Checks of Python, compiler, torch, triton, shared memory and directories."""

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
from importlib import metadata
from pathlib import Path

from aoti_debug.app.doctor.check import MachineCheck, missing, missing_required, ok, warning
from aoti_debug.base import wording
from aoti_debug.base.errors import ToolchainError
from aoti_debug.base.machine import cache
from aoti_debug.base.machine import compiler as compilers
from aoti_debug.runs.rundir import run_directory

OLDEST_PYTHON = (3, 10)
NEWEST_TORCH = "2.13"  # the newest tested one
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
    if _numbers(installed.version) > _numbers(NEWEST_TORCH):
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
    if pinned and _numbers(pinned) != _numbers(version):
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
    yield _directory("runs", run_directory.base_directory(), "AOTI_DEBUG_DIR=DIR, or --out DIR, names another place")
    yield _directory("temporary files", Path(tempfile.gettempdir()), "export TMPDIR=DIR names another place")
    yield _directory("cache", cache.directory(), "export XDG_CACHE_HOME=DIR names another place")
    for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"):
        if os.environ.get(name):
            yield _directory(name, Path(os.environ[name]), f"unset {name}, or let it name a place that can be written")


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


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version.partition("+")[0])[:2])


def _size(count: int) -> str:
    return wording.byte_size(count) if count >= 1 << 30 else wording.byte_size_in("MiB", count)
