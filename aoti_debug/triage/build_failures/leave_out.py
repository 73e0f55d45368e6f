"""The changes of a build that leave out the part that failed."""

from __future__ import annotations

from aoti_debug.compare.bisect.build_changes import LeaveOut, Part, SkipCandidate
from aoti_debug.instrument.frontend.protocol.build_failure import BuildFailure, Position, Stage
from aoti_debug.instrument.frontend.protocol.inductor_parts import Candidate

_PARTS = {Stage.PASS: Part.PASS, Stage.LOWERING: Part.LOWERING, Stage.CODE: Part.LOWERING}


def without(failure: BuildFailure, position: Position) -> tuple[LeaveOut | SkipCandidate, ...]:
    """The changes; none for a part that no build can do without.

    A kernel is left out by calling all its operators as they are; of one whose code cannot be generated, the operator
    that was at work, or fails alone.

    Args:
        position: the part to blame: of the failure, or an operator of its kernel.
    """
    if position.stage in (Stage.AUTOTUNING, Stage.TRITON):
        return (SkipCandidate(Candidate(position.name, position.candidate)),)
    if failure.operators and not (position.stage is Stage.CODE and position.node):
        return tuple(LeaveOut(Part.LOWERING, operator) for operator in failure.operators)
    part = _PARTS.get(position.stage)
    return () if part is None or not position.name else (LeaveOut(part, position.name),)
