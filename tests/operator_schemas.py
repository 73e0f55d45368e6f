"""Schemas of operators of the installed torch, as a build stores them in the manifest."""

from __future__ import annotations

from aoti_debug.instrument.frontend.worker.called_operators import describe, find_overload
from aoti_debug.package.manifest import OperatorSchema


def registered(*names: str) -> tuple[OperatorSchema, ...]:
    """The schemas of these operators; those that torch does not know have none."""
    dotted = [name.replace("::", ".") for name in names if name]
    return tuple(describe(name, operator) for name in dotted if (operator := find_overload(name)) is not None)
