"""Checks of the programs that repros and stack traces use, and of the permission to trace processes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from aoti_debug.app.doctor.check import MachineCheck, missing, ok, warning
from aoti_debug.app.doctor.host import torch_cuda
from aoti_debug.base.machine import cuda_toolkit
from aoti_debug.base.machine.processes import child_process

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
    path = triton_ptxas or cuda_toolkit.find_program("ptxas")
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
    directory = cuda_toolkit.triton_directory()
    path = directory / "bin/ptxas" if directory else None
    return path if path and path.is_file() else None


def sanitizer() -> Iterator[MachineCheck]:
    """Checks for compute-sanitizer."""
    if not torch_cuda():
        return
    path = cuda_toolkit.find_program("compute-sanitizer") or _program_of_package(SANITIZER_PACKAGE, "compute-sanitizer")
    if path is None:
        todo = f"pip install {SANITIZER_PACKAGE}, or the CUDA toolkit: repros are confirmed with it"
        yield missing("compute-sanitizer", "not found", todo)
    else:
        yield ok("compute-sanitizer", f"{_version(path) or 'unknown version'}: {path}")


def debugger() -> Iterator[MachineCheck]:
    """Checks for cuda-gdb."""
    if not torch_cuda():
        return
    path = cuda_toolkit.find_program("cuda-gdb")
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
