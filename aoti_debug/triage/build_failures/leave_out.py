"""The changes of a build that leave out the part that failed."""

from __future__ import annotations

from aoti_debug.bisect.build_changes import LeaveOut, Part, SkipCandidate
from aoti_debug.frontend.protocol.build_failure import BuildFailure, Stage
from aoti_debug.frontend.protocol.inductor_parts import Candidate

_PARTS = {Stage.PASS: Part.PASS, Stage.LOWERING: Part.LOWERING}


def without(failure: BuildFailure) -> tuple[LeaveOut | SkipCandidate, ...]:
    """The changes; none for a part that no build can do without.

    A kernel is left out by calling all its operators as they are.
    """
    position = failure.position
    if position.stage in (Stage.AUTOTUNING, Stage.TRITON):
        return (SkipCandidate(Candidate(position.name, position.candidate)),)
    if failure.operators:
        return tuple(LeaveOut(Part.LOWERING, operator) for operator in failure.operators)
    part = _PARTS.get(position.stage)
    return () if part is None else (LeaveOut(part, position.name),)
