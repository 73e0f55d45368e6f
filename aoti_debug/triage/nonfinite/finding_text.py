"""The sentences of a finding about non-finite values."""

from __future__ import annotations

from dataclasses import replace

from aoti_debug.base import wording
from aoti_debug.base.abi import Phase
from aoti_debug.runs.diagnosis.dataflow import input_or_weight_name, kind_of_input, model_name
from aoti_debug.runs.diagnosis.findings import NONFINITE, Finding, Place, place_of
from aoti_debug.runs.diagnosis.special_values import (
    Occurrence,
    Special,
    count,
    count_before,
    statistics_after,
    statistics_of,
)
from aoti_debug.runs.diagnosis.trace_roots import Root, RootKind, RootSearch
from aoti_debug.runs.rundir.launch import Argument
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.runs.show.calls_and_replays import first_replays
from aoti_debug.triage.nonfinite.harm import NonfiniteCase, OriginTrial

HELD = ", from "  # before the value that a NaN was made of
SHOWN = 1  # sentence of a trial that leads the evidence where an input is the origin
_MAX_LINES = 3


def produced(run: RunDir, occurrence: Occurrence) -> str:
    """ "0.3 divide produces 2 NaN in buf1 (16 elements)"; of memory that held as many before, what it holds only."""
    statistics = statistics_after(occurrence.argument)
    launch, number = occurrence.launch, count(statistics, occurrence.special)
    before = count_before(occurrence)
    name = model_name(run.manifest, occurrence.argument)
    elements = wording.pluralize(statistics.numel if statistics else 0, "element")
    what = f"{number} {occurrence.special.value} in {name} ({elements})"
    if before == 0:
        return f"{launch.id} {launch.kernel} produces {what}"
    return f"after {launch.id} {launch.kernel} there are {what}, before it there were {before}"


def infinite_output(run: RunDir, case: NonfiniteCase) -> str:
    """A line about an infinity that may be one that leaves the model."""
    occurrence = case.root.occurrence
    if case.root.kind is RootKind.EXTERNAL:
        return f"{_held(case.root)}, which may be what {case.sink.harm}"
    return f"{produced(run, occurrence)}, which may be what {case.sink.harm}"


def finding(run: RunDir, roots: RootSearch, case: NonfiniteCase, trial: OriginTrial | None = None) -> Finding:
    """The finding of a case, with its evidence in sentences.

    Args:
        trial: what runs without the values of the root have shown; None without any.
    """
    root, occurrence = case.root, case.root.occurrence
    external = root.kind is RootKind.EXTERNAL
    origin = Place(input=root.input, argument=occurrence.argument.name) if external else _place(run, occurrence)
    where = _place(run, case.nan) if external and case.becomes_nan else origin
    evidence: list[str] = []
    possible: list[str] = []
    is_shown = trial is not None and bool(trial.is_origin)
    if trial is not None and trial.is_origin:
        evidence += trial.sentences
        origin = replace(origin, element=trial.element)
        where = where if where.launch else origin
    elif trial is not None and trial.is_origin is None and (external or case.becomes_nan):
        possible.append(_may_be_origin(run, case, trial))
    if root.kind is RootKind.PRODUCED and count_before(occurrence):
        possible.append(_may_be_older(run, occurrence))
    evidence += [*_root_evidence(run, roots, root), *_position_evidence(run, occurrence)]
    if case.becomes_nan:
        evidence.append(produced(run, case.nan))
    evidence.append(f"{case.sink.occurrence.special.value} {case.sink.harm}")
    first = _other_root(run, root)
    others = dict.fromkeys(_other_root(run, other) for other in case.other_roots)
    evidence += [line for line in others if line != first][:_MAX_LINES]
    chain = tuple(_place(run, step) for step in case.path) if case.becomes_nan and not external else ()
    named = origin if case.becomes_nan and (is_shown or not external) else None
    return Finding(
        NONFINITE, _what(run, case, trial), where, tuple(evidence), possible=tuple(possible), origin=named, chain=chain
    )


def _place(run: RunDir, occurrence: Occurrence) -> Place:
    argument = occurrence.argument
    return place_of(occurrence.launch, argument.name, input_=input_or_weight_name(run.manifest, argument))


def _what(run: RunDir, case: NonfiniteCase, trial: OriginTrial | None) -> str:
    """ "NaN in buf1, from +Inf in x, an input of the model"; "NaN in buf1" where no run shows that."""
    root, occurrence = case.root, case.root.occurrence
    name, nan = model_name(run.manifest, occurrence.argument), model_name(run.manifest, case.nan.argument)
    special = trial.special if trial is not None and trial.special is not None else occurrence.special
    is_external, is_shown = root.kind is RootKind.EXTERNAL, trial is not None and bool(trial.is_origin)
    held = f"{special.value} in {name}"
    if is_external:
        element = f"{root.input}{_at(root.input, trial)}"
        held = f"{special.value} in {element}, {kind_of_input(run.manifest, root.input)} of the model"
    if not case.becomes_nan:
        what = held
    elif is_external:
        what = f"NaN in {nan}{HELD}{held}" if is_shown else f"NaN in {nan}"
    else:
        what = f"{held}, which becomes NaN in {nan}" if is_shown else f"{held}, and NaN in {nan}"
    replay = _replay_of(run, occurrence)
    return f"{what}, in {replay}" if replay else what


def _at(name: str, trial: OriginTrial | None) -> str:
    """The place of the element that runs have shown to do harm, as their first sentence says it: "[3, 7]"; else ""."""
    said = trial.sentences[0] if trial is not None and trial.is_origin and trial.sentences else ""
    place = said.removeprefix(name).partition("]")[0]
    return f"{place}]" if said.startswith(f"{name}[") else ""


def _may_be_origin(run: RunDir, case: NonfiniteCase, trial: OriginTrial) -> str:
    occurrence = case.root.occurrence
    source = case.root.input or model_name(run.manifest, occurrence.argument)
    why = f": {'; '.join(trial.sentences)}" if trial.sentences else ""
    nan = f"the NaN in {model_name(run.manifest, case.nan.argument)}" if case.becomes_nan else f"what {case.sink.harm}"
    return f"{nan} may come from the {occurrence.special.value} in {source} (not tried{why})"


def _may_be_older(run: RunDir, occurrence: Occurrence) -> str:
    launch, name = occurrence.launch, model_name(run.manifest, occurrence.argument)
    return (
        f"{launch.id} {launch.kernel} may have written fewer of the {occurrence.special.value} in {name}, or none: "
        "its memory held some before"
    )


def _root_evidence(run: RunDir, roots: RootSearch, root: Root) -> list[str]:
    """The observations that show the root."""
    launch, argument, special = root.occurrence.launch, root.occurrence.argument, root.occurrence.special
    if root.kind is RootKind.EXTERNAL:
        return [f"{_held(root)} when {launch.id} {launch.kernel} reads it"]
    if root.kind is RootKind.UNEXPLAINED:
        return [f"{argument.name} holds {special.value} before {launch.id}, but no recorded launch wrote it there"]
    operands = roots.operands(launch, argument)
    names = {id(a): roots.dataflow.content_name(launch, a) for a in operands}
    finite = [
        f"{names[id(a)]} {_range(a)}"
        for a in operands
        if not any(count(statistics_of(a, Phase.BEFORE), s) for s in Special)
    ]
    nonfinite = [
        f"{names[id(a)]} {_specials(a)}"
        for a in operands
        if any(count(statistics_of(a, Phase.BEFORE), s) for s in Special)
    ]
    parts = []
    if finite:
        parts.append(f"finite values in {wording.comma_separated(finite)}")
    if nonfinite:
        parts.append(f"non-finite values in {wording.comma_separated(nonfinite)}")
    unknown = [roots.dataflow.content_name(launch, other) for other in roots.unmeasured(launch, argument)]
    if unknown:
        parts.append(f"{wording.comma_separated(unknown)}, whose values are not known")
    return [
        produced(run, root.occurrence),
        f"it reads {', and '.join(parts)}" if parts else "it reads no recorded tensor",
    ]


def _held(root: Root) -> str:
    """ "1 of 16 elements of x is +Inf"."""
    statistics = statistics_of(root.occurrence.argument, Phase.BEFORE)
    number = count(statistics, root.occurrence.special)
    elements = wording.pluralize(statistics.numel if statistics else 0, "element")
    verb = "is" if number == 1 else "are"
    return f"{number} of {elements} of {root.input} {verb} {root.occurrence.special.value}"


def _range(argument: Argument) -> str:
    statistics = statistics_of(argument, Phase.BEFORE)
    if statistics is None or statistics.min is None or statistics.max is None:
        return "(empty)"
    return f"({statistics.min:.6g} to {statistics.max:.6g})"


def _specials(argument: Argument) -> str:
    statistics = statistics_of(argument, Phase.BEFORE)
    return "(" + ", ".join(f"{n} {s.value}" for s in Special if (n := count(statistics, s))) + ")"


def _replay_of(run: RunDir, occurrence: Occurrence) -> str:
    """The first replay of a CUDA graph that the value is known to be of; "" if it is of a call."""
    measured = _measured_replay(occurrence)
    first = _first_replay(run, occurrence)
    return "" if measured is None else wording.replay_of(first or measured, occurrence.launch.key.call)


def _measured_replay(occurrence: Occurrence) -> int | None:
    """The replay of a CUDA graph that has left the value; None if a call has."""
    stats = occurrence.argument.stats
    recorded = (stats.get(Phase.AFTER) if occurrence.argument.written else None) or stats.get(Phase.BEFORE)
    return None if recorded is None else recorded.replay


def _first_replay(run: RunDir, occurrence: Occurrence) -> int | None:
    """The first replay in which a watchpoint or the summaries saw it; None if none did."""
    return next(
        (
            seen.replay
            for seen in first_replays(run)
            if seen.launch == occurrence.launch.key
            and seen.argument == occurrence.argument.name
            and occurrence.special.is_value(seen.value)
        ),
        None,
    )


def _replay_evidence(run: RunDir, occurrence: Occurrence, measured: int) -> str:
    """The replay that the numbers of a captured call are of, and what is known of those before."""
    call = occurrence.launch.key.call
    first = _first_replay(run, occurrence)
    if first is None:
        return f"the numbers are of {wording.replay_of(measured, call)}; earlier replays are not kept"
    text = f"the {occurrence.special.value} was seen first in {wording.replay_of(first, call)}"
    return text if first == measured else f"{text}; the numbers are of replay {measured}"


def _position_evidence(run: RunDir, occurrence: Occurrence) -> list[str]:
    """The loop iteration, branch, and call or replay of a launch, if the model has several."""
    launch = occurrence.launch
    sentences = []
    if launch.loops:
        iterations = " within iteration ".join(str(iteration) for iteration in reversed(launch.loops))
        sentences.append(f"it ran in iteration {iterations} of the loop (counted from 0)")
    elif launch.site.subgraph:
        sentences.append(f"it ran in the branch {launch.site.subgraph}")
    if (measured := _measured_replay(occurrence)) is not None:
        return [*sentences, _replay_evidence(run, occurrence, measured)]
    calls = {other.key.call for other in run.launches if other.key.kind is launch.key.kind}
    if launch.key.call > min(calls):
        sentences.append(f"it ran in call {launch.key.call} (counted from 0); in none of the earlier ones was it seen")
    return sentences


def _other_root(run: RunDir, root: Root) -> str:
    if root.kind is RootKind.EXTERNAL:
        return f"{root.input} holds {root.occurrence.special.value}, too"
    return (
        f"{produced(run, root.occurrence)}, too"
        if root.kind is RootKind.PRODUCED
        else f"{root.occurrence.argument.name} holds NaN, too"
    )
