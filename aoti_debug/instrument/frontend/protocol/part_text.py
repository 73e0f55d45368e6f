"""The words for a part of a build."""

from __future__ import annotations

from collections.abc import Sequence

from aoti_debug.base import wording
from aoti_debug.instrument.frontend.protocol.build_failure import BuildStage, Position

_MAX_NODES = 4  # nodes in a line


def part_text(position: Position) -> str:
    """The part of a build in words: "lowering of aten.silu.default", "graph pass remove_noop_ops".

    Where code of several nodes was generated, it names all: "code generation of nodes relu, erf".
    """
    of = " of" if position.stage in (BuildStage.TRACING, BuildStage.LOWERING, BuildStage.CODE) else ""
    name = f"{of} {position.name}" if position.name else ""
    if position.stage is BuildStage.CODE and not position.name and position.nodes:
        name = f"{of} {nodes_text(position.nodes)}"
    return f"{position.stage.value}{name}{f' with {position.candidate}' if position.candidate else ''}"


def nodes_text(names: Sequence[str]) -> str:
    """ "node erf", "nodes relu, erf, sin, sub and 3 more"."""
    return f"node{'' if len(names) == 1 else 's'} {wording.join_truncated(names, _MAX_NODES)}"
