"""Whether this machine can build, run and debug packages, and what to do where it cannot."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from aoti_debug.doctor import cuda, host, tools
from aoti_debug.doctor.check import Check, Status

__all__ = ["Check", "Status", "examine", "is_well"]

CHECKS: tuple[Callable[[], Iterable[Check]], ...] = (
    host.python,
    host.compiler,
    host.torch,
    host.triton,
    cuda.driver,
    cuda.headers,
    tools.ptxas,
    tools.sanitizer,
    tools.debugger,
    tools.tracing,
    tools.symbolizer,
    host.shared_memory,
    host.directories,
)


def examine() -> tuple[Check, ...]:
    """Looks at everything; takes a second or two the first time, since it compiles something."""
    return tuple(check for look in CHECKS for check in look())


def is_well(checks: Iterable[Check]) -> bool:
    """Whether all that a build and a run need is there."""
    return not any(check.needed and check.status is Status.MISSING for check in checks)
