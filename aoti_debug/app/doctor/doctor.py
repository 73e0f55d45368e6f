"""Checks if this machine can build, run and debug packages, and says what to change if not."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from aoti_debug.app.doctor import cuda, host
from aoti_debug.app.doctor.host import MachineCheck, Status

CHECKS: tuple[Callable[[], Iterable[MachineCheck]], ...] = (
    host.python,
    host.compiler,
    host.torch,
    host.triton,
    cuda.driver,
    cuda.headers,
    host.ptxas,
    host.sanitizer,
    host.debugger,
    host.tracing,
    host.symbolizer,
    host.shared_memory,
    host.directories,
)


def run_checks() -> tuple[MachineCheck, ...]:
    """Runs all checks; takes a second or two the first time, because it compiles a test program."""
    return tuple(check for function in CHECKS for check in function())


def is_ready(checks: Iterable[MachineCheck]) -> bool:
    """True if nothing that builds and runs need is missing."""
    return not any(check.needed and check.status is Status.MISSING for check in checks)
