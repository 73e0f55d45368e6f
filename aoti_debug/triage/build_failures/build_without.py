"""Builds a package, without the parts of the build that fail."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

from aoti_debug.base import wording
from aoti_debug.base.errors import ToolchainError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.steps import Steps
from aoti_debug.compare.bisect.build_changes import Build, LeaveOut, Part, SkipCandidate, applied, name_of
from aoti_debug.instrument.builder import build as builder
from aoti_debug.instrument.builder.build import BuildSummary
from aoti_debug.instrument.builder.options import BuildOptions
from aoti_debug.instrument.frontend.protocol.build_failure import (
    BuildFailure,
    BuildFailureError,
    BuildStage,
    Ending,
    Position,
    nodes_text,
    part_text,
)
from aoti_debug.instrument.frontend.protocol.messages import LeftOut, TunedChoice
from aoti_debug.runs.diagnosis.findings import Finding
from aoti_debug.triage.build_failures.finding import blamed_of, finding_of
from aoti_debug.triage.build_failures.proof_script import BUILD_REPRO, Replay, replay

MAX_ALONE = 6  # calls of a kernel that are tried alone
Run: TypeAlias = Callable[[BuildFailure], Replay]
_PARTS = {BuildStage.PASS: Part.PASS, BuildStage.LOWERING: Part.LOWERING, BuildStage.CODE: Part.LOWERING}
MAX_LEFT_OUT = 4
_STEP = "build"
_NOTHING = LeftOut()
_Failed: TypeAlias = tuple[BuildFailure, Replay]
_HINT = "see whether torch._inductor.aoti_compile_and_package alone fails as well"


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
        if position.stage is BuildStage.CODE and done.folder is not None:
            seen.append(f"{_alone_text(position)}: {done.what}")
    assert first is not None, "there is a part"
    return first


def _parts(position: Position) -> Iterator[Position]:
    """The parts to try, each larger than the one before it."""
    if position.stage is not BuildStage.CODE:
        yield replace(position, nodes=())
        return
    if position.node:
        yield replace(position, nodes=())
    if len(position.nodes) > 1:
        yield replace(position, name="", node="")
    yield Position(BuildStage.CODE, graph=position.graph, function=position.function)


def _alone(failure: BuildFailure, shown: Position, run: Run, seen: list[str]) -> Replay | None:
    """The replay of the first call of a kernel that fails alone; None if none does, or there is no kernel.

    Args:
        seen: what else was tried is added to it, one line each.
    """
    graph = None if failure.reference is None else failure.reference.graph(shown.graph, shown.function)
    if graph is None:
        return None
    others = [name for name in shown.nodes if name != failure.position.node and name in graph.by_name]
    for name in others[:MAX_ALONE]:
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


def without(failure: BuildFailure, position: Position) -> tuple[LeaveOut | SkipCandidate, ...]:
    """The changes; none for a part that no build can do without.

    A kernel is left out by calling all its operators as they are; of one whose code cannot be generated, the operator
    that was at work, or fails alone.

    Args:
        position: the part to blame: of the failure, or an operator of its kernel.
    """
    if position.stage in (BuildStage.AUTOTUNING, BuildStage.TRITON):
        return (SkipCandidate(TunedChoice(position.name, position.candidate)),)
    if failure.operators and not (position.stage is BuildStage.CODE and position.node):
        return tuple(LeaveOut(Part.LOWERING, operator) for operator in failure.operators)
    part = _PARTS.get(position.stage)
    return () if part is None or not position.name else (LeaveOut(part, position.name),)


@dataclass(frozen=True)
class BuiltWithout:
    """The result of building.

    Attributes:
        summary: of the package; None if it cannot be built, or was given.
        failures: what fails: first what a repro confirms, each in the order in which it was met.
        left_out: how the package was built: "without the lowering of aten.silu.default"; "" if nothing was left out.
        notes: what failed once and did not fail again, one line each.
    """

    summary: BuildSummary | None
    failures: tuple[Finding, ...]
    left_out: str
    notes: tuple[str, ...] = ()


def build_without(
    options: BuildOptions, folder: Path, steps: Steps, described: Callable[[BuildSummary], str]
) -> BuiltWithout:
    """Builds a package; of each part that fails it writes and runs a repro, and builds again without the part.

    Where the repro does not fail in the same way, the same is built once more first: what does not fail again is no
    finding.

    Args:
        folder: the repros go there.
        described: the result of the step of a build that succeeds.

    Raises:
        UsageError, ArtifactError, ToolchainError: it cannot be built, and nothing that fails alone is to blame, nor
            what the process that built has found out.
    """
    changes: list[LeaveOut | SkipCandidate] = []
    met: list[_Failed] = []
    found: list[_Failed] = []
    name = _STEP
    while True:
        summary, error = _try(_with(options, changes), name, steps, described)
        if error is None:
            return BuiltWithout(summary, _findings(found, options), names_of(changes), _notes(met, found))
        failure = error.failure
        is_found = any(failure.position == other.position for other, _ in found)
        known = next((each for each in met if _is_alike(each[0], failure)), None)
        if known is None and not is_found:
            known = failure, _replayed(failure, _with(options, changes), folder, len(met), steps)
            met.append(known)
            if not known[1].is_same and len(met) <= MAX_LEFT_OUT:
                name = f"{_named(changes)}, again"
                continue
        blamed = failure.position if known is None else blamed_of(*known)
        more = [change for change in without(failure, blamed) if change not in changes]
        if known is not None and not is_found:
            found.append(known)
        if is_found or not more or len(met) > MAX_LEFT_OUT:
            told = [_refused(*each) for each in found]
            if not any(done.is_same or failure.note for failure, done in told):
                raise ToolchainError(str(error), hint=_HINT) from error
            findings = _unbuildable(_findings(told, options), changes)
            return BuiltWithout(None, findings, "", _notes(met, found))
        changes += more
        name = _named(changes)


def _refused(failure: BuildFailure, done: Replay) -> _Failed:
    """A failure; one of torch's tracing of an operator that only two builds show, with that as its note."""
    position = failure.position
    is_traced = position.stage is BuildStage.TRACING and bool(position.node) and failure.ending is Ending.EXCEPTION
    if done.is_same or failure.note or not is_traced:
        return failure, done
    alone = Replay(None, f"no repro: of a program of that call alone, {done.what}")
    return replace(failure, note="a second build of the program ended in the same way"), alone


def _named(changes: Sequence[LeaveOut | SkipCandidate]) -> str:
    return f"{_STEP}, {names_of(changes)}" if changes else _STEP


def _is_alike(one: BuildFailure, other: BuildFailure) -> bool:
    """True if two builds failed in the same way; the texts of exceptions may hold addresses."""
    return (one.position, one.ending) == (other.position, other.ending)


def _notes(met: Sequence[_Failed], found: Sequence[_Failed]) -> tuple[str, ...]:
    """What failed once, and not when the same was built again."""
    return tuple(
        f"the build failed once: {part_text(failure.position)}: {wording.first_line(failure.what)}; "
        "a second one did not fail in this way"
        for failure, done in met
        if (failure, done) not in found
    )


def names_of(changes: Sequence[LeaveOut | SkipCandidate]) -> str:
    """ "without the lowering of aten.silu.default and without the pass remove_noop_ops"; "" for no change."""
    parts = [change for change in changes if isinstance(change, LeaveOut)]
    groups = ([change for change in parts if change.part is part] for part in Part)
    names = [name_of(group) for group in groups if group]
    candidates = [change.candidate.name for change in changes if isinstance(change, SkipCandidate)]
    names += [f"without the candidate {wording.comma_separated(candidates)}"] if candidates else []
    return " and ".join(names)


def _with(options: BuildOptions, changes: Sequence[LeaveOut | SkipCandidate]) -> BuildOptions:
    if not changes:
        return options
    build = applied(changes, Build(options.inductor_configs, options.left_out or _NOTHING))
    is_unchanged = build.left_out == _NOTHING and options.left_out is None
    return replace(options, inductor_configs=build.configs, left_out=None if is_unchanged else build.left_out)


def _try(
    options: BuildOptions, name: str, steps: Steps, described: Callable[[BuildSummary], str]
) -> tuple[BuildSummary | None, BuildFailureError | None]:
    with steps.step(name) as note:
        try:
            built = builder.build_report(options)
        except BuildFailureError as error:
            note.text = f"{part_text(error.failure.position)}: {wording.first_line(error.failure.what)}"
            return None, error
        note.text, note.timings = described(built), built.stages
        return built, None


def _replayed(failure: BuildFailure, options: BuildOptions, folder: Path, number: int, steps: Steps) -> Replay:
    """Runs the repro of a failure; of the parts that are tried, the folder of the one that proves it is kept."""
    target = folder / (f"{BUILD_REPRO}_{number + 1}" if number else BUILD_REPRO)
    tried: list[Path] = []

    def run(part: BuildFailure) -> Replay:
        name = f"repro of {part_text(part.position)}" if tried else "repro of the build"
        tried.append(target.with_name(f"{target.name}.{len(tried)}"))
        with steps.step(name) as note:
            done = replay(part, options, tried[-1])
            note.text = done.what
        return done

    done = proved(failure, run)
    if done.folder in tried:
        done.folder.rename(target)
        done = replace(done, folder=target)
    for path in tried:
        shutil.rmtree(path, ignore_errors=True)
    return done


def _findings(found: Sequence[_Failed], options: BuildOptions) -> tuple[Finding, ...]:
    """The findings, the confirmed ones first; settings that were asked for may be to blame for the first."""
    findings = [finding_of(*each) for each in sorted(found, key=lambda each: not each[1].is_same)]
    if findings and options.inductor_configs:
        asked = wording.comma_separated(f"{key}={value}" for key, value in options.inductor_configs.items())
        findings[0] = replace(findings[0], warnings=(*findings[0].warnings, f"built with --inductor-config {asked}"))
    return tuple(findings)


def _unbuildable(findings: Sequence[Finding], changes: Sequence[LeaveOut | SkipCandidate]) -> tuple[Finding, ...]:
    how = f", also {names_of(changes)}" if changes else ""
    note = f"the model cannot be built{how}: it was not run"
    return (replace(findings[0], warnings=(note, *findings[0].warnings)), *findings[1:])
