"""The change of a build that leaves out the part that failed."""

from __future__ import annotations

from aoti_debug.bisect.changes import LeaveOut, Part
from aoti_debug.frontend.build_failure import Position, Stage

_PARTS = {Stage.PASS: Part.PASS, Stage.LOWERING: Part.LOWERING, Stage.DECOMPOSITION: Part.DECOMPOSITION}


def without(position: Position) -> LeaveOut | None:
    """The change; None for a part that no build can do without."""
    part = _PARTS.get(position.stage)
    return None if part is None else LeaveOut(part, position.name)
