"""The words for a part of a build."""

from __future__ import annotations

from aoti_debug.frontend.protocol.build_failure import Position, Stage


def part_text(position: Position) -> str:
    """The part of a build in words: "lowering of aten.silu.default", "graph pass remove_noop_ops"."""
    of = " of" if position.stage is Stage.LOWERING else ""
    name = f"{of} {position.name}" if position.name else ""
    return f"{position.stage.value}{name}{f' with {position.candidate}' if position.candidate else ''}"
