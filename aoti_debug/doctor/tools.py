"""Programs that a repro and a backtrace use, and whether this place lets them watch another process."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from aoti_debug.doctor.check import Check, missing, ok, warning
from aoti_debug.doctor.host import torch_cuda
from aoti_debug.machine import cuda_toolkit, process

SANITIZER_PACKAGE = "nvidia-cuda-sanitizer-api"
PTRACE_SCOPE = Path("/proc/sys/kernel/yama/ptrace_scope")
DRIVER_PARAMETERS = Path("/proc/driver/nvidia/params")
_CAP_SYS_PTRACE = 19
_CAP_SYS_ADMIN = 21


def ptxas() -> Iterator[Check]:
    """Machine code of a repro equals the package's only where the same ptxas makes it."""
    if not torch_cuda():
        return
    own, chosen = _triton_ptxas(), os.environ.get("TRITON_PTXAS_PATH") or os.environ.get("PTXAS")
    if chosen:
        yield _chosen(Path(chosen), own)
        return
    path = own or cuda_toolkit.program("ptxas")
    if path is None:
        yield missing("ptxas", "neither in triton nor in a CUDA toolkit", "pip install triton")
    else:
        yield ok("ptxas", f"{_version(path) or 'unknown version'}: {path}")


def _chosen(path: Path, own: Path | None) -> Check:
    version, original = _version(path), _version(own) if own else ""
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


def sanitizer() -> Iterator[Check]:
    if not torch_cuda():
        return
    path = cuda_toolkit.program("compute-sanitizer") or _of_package(SANITIZER_PACKAGE, "compute-sanitizer")
    if path is None:
        todo = f"pip install {SANITIZER_PACKAGE}, or the CUDA toolkit: repros are confirmed with it"
        yield missing("compute-sanitizer", "not found", todo)
    else:
        yield ok("compute-sanitizer", f"{_version(path) or 'unknown version'}: {path}")


def debugger() -> Iterator[Check]:
    if not torch_cuda():
        return
    path = cuda_toolkit.program("cuda-gdb")
    if path is None:
        yield missing("cuda-gdb", "not found", "install the CUDA toolkit, if you want to step through a kernel")
    else:
        yield ok("cuda-gdb", str(path))


def tracing() -> Iterator[Check]:
    """Whether a process may watch another one (debuggers), and the GPU's counters (profilers)."""
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


def symbolizer() -> Iterator[Check]:
    path = shutil.which("addr2line")
    if path is None:
        todo = "stacks of crashes name functions but no lines: install binutils"
        yield missing("addr2line", "not found", todo)
    else:
        yield ok("addr2line", path)


def _of_package(package: str, program: str) -> Path | None:
    try:
        files = metadata.files(package) or []
    except metadata.PackageNotFoundError:
        return None
    return next((Path(str(file.locate())) for file in files if file.name == program), None)


def _version(program: Path) -> str:
    """ "13.0.88"; "" where it does not run or does not tell."""
    try:
        ran = process.run([str(program), "--version"], timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    found = re.search(r"\bV(\d[\d.]*)|[Vv]ersion (\d[\d.]*)", ran.stdout)
    return (found[1] or found[2]) if found else ""


def _has_capability(number: int) -> bool:
    found = re.search(r"^CapEff:\s*(\w+)", _read(Path("/proc/self/status")), re.MULTILINE)
    return bool(found and int(found[1], 16) >> number & 1)


def _read(path: Path) -> str:
    """ "" where there is no such file, or it may not be read."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
