"""Proves a failure of code generation with the smallest part that fails as the build did: one call, a kernel, all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeAlias

from aoti_debug.instrument.frontend.protocol.build_failure import BuildFailure, Position, Stage
from aoti_debug.instrument.frontend.protocol.part_text import nodes_text
from aoti_debug.triage.build_failures.proof_script import Replay

MOST_ALONE = 6  # calls of a kernel that are tried alone
Run: TypeAlias = Callable[[BuildFailure], Replay]


def proved(failure: BuildFailure, run: Run) -> Replay:
    """Replays the part that failed; of several operators whose code was generated, also each alone.

    What was at work is tried first, then its kernel, then the whole graph. Of a kernel that fails, each call is tried
    alone until one fails.

    Args:
        run: writes the script of a part, and runs it.

    Returns:
        the replay of the smallest part that failed in the same way; the first one if none did.
    """
    first: Replay | None = None
    seen: list[str] = []
    for position in _parts(failure.position):
        done = run(replace(failure, position=position))
        if done.is_same:
            found = _alone(failure, position, run, seen)
            return found or replace(done, evidence=tuple(seen))
        first = first or done
        if position.stage is Stage.CODE and done.folder is not None:
            seen.append(f"{_alone_text(position)}: {done.what}")
    assert first is not None, "there is a part"
    return first


def _parts(position: Position) -> Iterator[Position]:
    """The parts to try, each larger than the one before it."""
    if position.stage is not Stage.CODE:
        yield replace(position, nodes=())
        return
    if position.node:
        yield replace(position, nodes=())
    if len(position.nodes) > 1:
        yield replace(position, name="", node="")
    yield Position(Stage.CODE, graph=position.graph, function=position.function)


def _alone(failure: BuildFailure, shown: Position, run: Run, seen: list[str]) -> Replay | None:
    """The replay of the first call of a kernel that fails alone; None if none does, or there is no kernel.

    Args:
        seen: what else was tried is added to it, one line each.
    """
    graph = None if failure.reference is None else failure.reference.graph(shown.graph, shown.function)
    if graph is None:
        return None
    others = [name for name in shown.nodes if name != failure.position.node and name in graph.by_name]
    for name in others[:MOST_ALONE]:
        position = replace(shown, name=graph.by_name[name].target, node=name, nodes=())
        done = run(replace(failure, position=position))
        if done.is_same:
            return replace(done, evidence=tuple(seen))
        if done.folder is not None:
            seen.append(f"{_alone_text(position)}: {done.what}")
    return None


def _alone_text(position: Position) -> str:
    """ "node erf alone", "nodes relu, erf alone"."""
    names = (position.node,) if position.node else position.nodes
    return f"{nodes_text(names)} alone" if names else "the whole graph"
