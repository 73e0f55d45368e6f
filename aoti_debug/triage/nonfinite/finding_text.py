"""The sentences of a finding about non-finite values."""

from __future__ import annotations

from aoti_debug import wording
from aoti_debug.abi import Phase
from aoti_debug.diagnosis.findings import Finding, FindingKind, Place, place_of
from aoti_debug.lazy.dataclass import dataclass
from aoti_debug.rundir.nonfinite_replays import first_replays
from aoti_debug.rundir.run_directory import RunDir
from aoti_debug.rundir.timeline import Argument
from aoti_debug.triage.nonfinite.harmful_sinks import Sink
from aoti_debug.triage.nonfinite.observed_values import Occurrence, Special, count, statistics_after, statistics_of
from aoti_debug.triage.nonfinite.trace_roots import Root, RootKind, RootSearch

NONFINITE = FindingKind("nonfinite", "NaN or an unintended infinity", "NOT FINITE", "not finite", "∞")

_MOST_LINES = 3


@dataclass(frozen=True)
class NonfiniteCase:
    """A non-finite value that does harm, from its root to the sink.

    Attributes:
        root: where it came from.
        nan: where NaN arose from the root's infinity; else the root's own occurrence.
        sink: where it does harm.
        other_roots: further roots of such values.
    """

    root: Root
    nan: Occurrence
    sink: Sink
    other_roots: tuple[Root, ...]

    @property
    def path(self) -> tuple[Occurrence, ...]:
        """From the root to where NaN arose, both included."""
        return (self.root.occurrence,) if self.nan.key == self.root.occurrence.key else (*self.root.path, self.nan)


def produced(occurrence: Occurrence) -> str:
    """ "0.3 divide produces 2 NaN in buf1 (16 elements)"."""
    statistics = statistics_after(occurrence.argument)
    launch = occurrence.launch
    return (
        f"{launch.id} {launch.kernel} produces {count(statistics, occurrence.special)} {occurrence.special.value} in "
        f"{occurrence.argument.name} ({wording.count(statistics.numel if statistics else 0, 'element')})"
    )


def finding(run: RunDir, roots: RootSearch, case: NonfiniteCase) -> Finding:
    """The finding of a case, with its evidence in sentences."""
    root, occurrence = case.root, case.root.occurrence
    becomes_nan = case.nan.key != occurrence.key
    if root.kind is RootKind.EXTERNAL:
        where = Place(input=root.input, argument=occurrence.argument.name)
        what = f"{occurrence.special.value} in {root.input}, an input or weight of the model"
    else:
        where = place_of(occurrence.launch, occurrence.argument.name)
        what = f"{occurrence.special.value} in {occurrence.argument.name}"
    if becomes_nan:
        what += f", which becomes NaN in {case.nan.argument.name}"
    replay = _replay_of(run, occurrence)
    what += f", in {replay}" if replay else ""
    evidence = [*_root_evidence(roots, root), *_position_evidence(run, occurrence)]
    if becomes_nan:
        evidence.append(f"{produced(case.nan)} from it")
    evidence.append(f"the {case.nan.special.value} {case.sink.harm}")
    evidence += [line for line in dict.fromkeys(map(_other_root, case.other_roots)) if line != _other_root(root)][
        :_MOST_LINES
    ]
    chain = tuple(place_of(step.launch, step.argument.name) for step in case.path) if becomes_nan else ()
    return Finding(NONFINITE, what, where, tuple(evidence), origin=where if becomes_nan else None, chain=chain)


def _root_evidence(roots: RootSearch, root: Root) -> list[str]:
    """The observations that show the root."""
    launch, argument, special = root.occurrence.launch, root.occurrence.argument, root.occurrence.special
    if root.kind is RootKind.EXTERNAL:
        statistics = statistics_of(argument, Phase.BEFORE)
        number = count(statistics, special)
        elements = wording.count(statistics.numel if statistics else 0, "element")
        return [
            f"{number} of {elements} of {root.input} {'is' if number == 1 else 'are'} {special.value} "
            f"when {launch.id} {launch.kernel} reads it"
        ]
    if root.kind is RootKind.UNEXPLAINED:
        return [f"{argument.name} holds {special.value} before {launch.id}, but no recorded launch wrote it there"]
    operands = roots.operands(launch, argument)
    finite = [
        f"{a.name} {_range(a)}" for a in operands if not any(count(statistics_of(a, Phase.BEFORE), s) for s in Special)
    ]
    nonfinite = [
        f"{a.name} {_specials(a)}" for a in operands if any(count(statistics_of(a, Phase.BEFORE), s) for s in Special)
    ]
    parts = []
    if finite:
        parts.append(f"finite values in {wording.comma_separated(finite)}")
    if nonfinite:
        parts.append(f"non-finite values in {wording.comma_separated(nonfinite)}")
    return [
        produced(root.occurrence),
        f"it reads {', and '.join(parts)}" if parts else "it reads no recorded tensor",
    ]


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
        sentences.append(
            f"it ran in call {launch.key.call} (counted from 0); the earlier calls did not have this problem"
        )
    return sentences


def _other_root(root: Root) -> str:
    if root.kind is RootKind.EXTERNAL:
        return f"{root.input} holds {root.occurrence.special.value}, too"
    return (
        f"{produced(root.occurrence)}, too"
        if root.kind is RootKind.PRODUCED
        else f"{root.occurrence.argument.name} holds NaN, too"
    )
