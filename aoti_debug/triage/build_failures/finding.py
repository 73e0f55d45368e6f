"""The finding that a part of a build fails, crashes or never ends."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from aoti_debug.base import wording
from aoti_debug.instrument.frontend.protocol.build_failure import (
    BuildFailure,
    BuildStage,
    Ending,
    Position,
    is_of_user,
    nodes_text,
    part_text,
)
from aoti_debug.runs.diagnosis.findings import UNFINISHED, Finding, Place
from aoti_debug.triage.build_failures.proof_script import Replay
from aoti_debug.triage.build_failures.script_text import SCRIPT
from aoti_debug.triage.results.finding_kinds import BUILD_FAILURE

_MAX_OPERATORS = 6  # names of operators
_HOW = {
    Ending.EXCEPTION: "the exception came out of it",
    Ending.DEATH: "it was at work when the process ended",
    Ending.TIMEOUT: "it was at work when the time limit passed",
}


def finding_of(failure: BuildFailure, replay: Replay) -> Finding:
    """The finding of a failure and the run of its repro."""
    sentence = f"repro.py: {replay.what}"
    blamed = blamed_of(failure, replay)
    return Finding(
        BUILD_FAILURE,
        f"{part_text(blamed)}: {wording.first_line(failure.what)}",
        where=_place(failure, blamed),
        evidence=tuple(_evidence(failure, replay)),
        confirmed_by=(sentence,) if replay.is_same else (),
        contradicted_by=(sentence,) if replay.folder is not None and not replay.is_same else (),
        repro="" if replay.folder is None else str(replay.folder),
        next=() if replay.folder is None else (shlex.join(["python", str(replay.folder / SCRIPT)]),),
        warnings=(replay.what,) if replay.folder is None else (),
    )


def all_failures(failures: Sequence[Finding]) -> Finding:
    """The first failure of a build, with the others."""
    return replace(failures[0], also=tuple(failures[1:]))


def with_failures(finding: Finding, failures: Sequence[Finding], left_out: str) -> Finding:
    """The failures of a build, with the finding of the package that was built without the parts that fail.

    Args:
        left_out: how it was built: "without the lowering of aten.silu.default".
    """
    first = all_failures(failures)
    if not finding.kind.is_fault:
        is_over = finding.kind == UNFINISHED
        result = "was not looked into to the end" if is_over else "has no other finding"
        rest = f"built {left_out}, the model {result}: {finding.what}"
        return replace(first, evidence=(*first.evidence, rest), warnings=(*first.warnings, *finding.warnings))
    note = f"this is of the package built {left_out}"
    other = replace(finding, warnings=(note, *finding.warnings))
    evidence = (*first.evidence, f"built {left_out}, the model has another finding, below")
    return replace(first, evidence=evidence, also=(*first.also, other))


def blamed_of(failure: BuildFailure, replay: Replay) -> Position:
    """The part to blame: what was at work; of a kernel, the operator whose call alone fails in the same way."""
    is_one = replay.is_same and replay.position is not None and bool(replay.position.node)
    return replay.position if is_one and replay.position is not None else failure.position


def _place(failure: BuildFailure, position: Position) -> Place | None:
    if position.stage in (BuildStage.TRACING, BuildStage.LOWERING, BuildStage.CODE):
        return Place(operator=position.name, frame=failure.line(position)) if position.node else None
    return (
        Place(kernel=position.name, frame=failure.line(position))
        if position.stage in (BuildStage.CPP, BuildStage.TRITON, BuildStage.AUTOTUNING)
        else None
    )


def _evidence(failure: BuildFailure, replay: Replay) -> Iterator[str]:
    position = failure.position
    if failure.note:
        yield failure.note
    if failure.compilation is not None:
        yield "the compiler fails on this kernel alone, and compiles an empty file with the same options"
        if failure.operators:
            yield f"the kernel computes {wording.join_truncated(failure.operators, _MAX_OPERATORS)}"
        return
    blamed = blamed_of(failure, replay)
    if position.stage is BuildStage.CODE and blamed.node and blamed.node != position.node:
        yield f"the call of {blamed.name} alone, node {blamed.node}, fails in the same way"
    names = (position.node,) if position.node else position.nodes
    code = "code of " if position.stage is BuildStage.CODE else ""
    graph = "exported program" if position.stage is BuildStage.TRACING else "graph that Inductor lowers"
    of = f"{code}{nodes_text(names)} of the {graph}: " if names else ""
    yield f"{of}{_HOW[failure.ending]}"
    yield from _sizes(failure, blamed)
    if len(position.nodes) > 1:
        yield f"the kernel computes {wording.join_truncated(list(_operators(failure)), _MAX_OPERATORS)}"
    yield from replay.evidence
    if failure.stack:
        yield f"innermost Python frame: {failure.stack[0]}"
    own = next((frame for frame in failure.stack if is_of_user(frame)), None)
    if own is not None and own != failure.stack[0]:
        yield f"innermost frame outside of installed packages: {own}"


def _sizes(failure: BuildFailure, blamed: Position) -> Iterator[str]:
    """Yields a sentence on the numbers that the operator to blame is called with, where there are lists of them."""
    reference = failure.reference
    graph = None if reference is None else reference.graph(blamed.graph, blamed.function)
    node = None if graph is None else graph.by_name.get(blamed.node)
    sizes = [str(item) for item in (() if node is None else node.args) if isinstance(item, list) and item]
    numbers = [text for text in sizes if not text.strip("[]0123456789-., ")]
    if numbers:
        yield f"{blamed.name} is called with {wording.comma_separated(numbers)}"


def _operators(failure: BuildFailure) -> Iterator[str]:
    """The operators of a kernel, each with its model line: "aten.erf.default (model.py:7)"."""
    position, reference = failure.position, failure.reference
    for name in position.nodes:
        graph = None if reference is None else reference.graph(position.graph, position.function)
        if graph is not None and name in graph.by_name:
            line = failure.line(replace(position, node=name))
            place = "" if line is None else f" ({Path(line.file).name}:{line.line})"
            yield f"{graph.by_name[name].target}{place}"
