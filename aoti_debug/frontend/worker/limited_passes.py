"""Limits how often a part of Inductor is applied, where torch's compiler bisector asks for it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

from aoti_debug.frontend.pass_limit import PassLimit


@contextlib.contextmanager
def limited(limit: PassLimit | None) -> Iterator[None]:
    """Inside the `with`, applications beyond the limit are left out; nothing changes without one."""
    if limit is None:
        yield
        return
    from torch._inductor.compiler_bisector import CompilerBisector

    applied: list[str] = []

    def disable_subsystem(backend: str, subsystem: str, debug_info: Callable[[], str] | None = None) -> bool:
        if (backend, subsystem) != ("inductor", limit.subsystem):
            return False
        applied.append(subsystem if debug_info is None else debug_info())
        return len(applied) > limit.most or applied[-1] in limit.without

    original = CompilerBisector.disable_subsystem
    CompilerBisector.disable_subsystem = disable_subsystem
    try:
        yield
    finally:
        CompilerBisector.disable_subsystem = original
        Path(limit.log).write_text("".join(f"{name.splitlines()[0] if name else ''}\n" for name in applied))
