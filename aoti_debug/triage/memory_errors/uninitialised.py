"""Finds the launch whose result depends on uninitialised memory, from two runs that fill new buffers differently."""

from __future__ import annotations

import re
from collections.abc import Iterator

from aoti_debug.base import wording
from aoti_debug.base.abi import Phase
from aoti_debug.base.frozen import dataclass
from aoti_debug.package.manifest import Role
from aoti_debug.package.recording.values import Number
from aoti_debug.runs.diagnosis.dataflow import ByteRange, Dataflow, span_of
from aoti_debug.runs.diagnosis.findings import Finding, Place, place_of
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.runs.rundir.timeline import Argument, Launch, LaunchStatus
from aoti_debug.runs.show import text
from aoti_debug.triage.memory_errors.compare_poisons import PoisonComparison, PoisonDifference, compare
from aoti_debug.triage.results.finding_kinds import UNINITIALISED

_RANDOM = re.compile(
    r"(?:^|[._:])(?:rand(?:n|int|perm)?|bernoulli|(?:log_)?normal|uniform|multinomial|dropout|exponential|geometric"
    r"|poisson|cauchy|random|rrelu|seeds?)(?=[._:]|$)"
)
_CHANGED = 1e-3  # relative: the order of additions changes a value by less
_UNFINISHED = (LaunchStatus.OPEN, LaunchStatus.FAILED)
_NOT_FILLED = "memory that operators allocate for themselves is not filled: uninitialised reads of it are not detected"


def find(flow: Dataflow, second: RunDir, again: RunDir | None = None) -> Finding | None:
    """The first launch suspected of an uninitialised read, or the model output that was never written.

    Args:
        flow: of the first run.
        second: another one; both at level 2, with guards and with different poison.
        again: one with the poison of the first: a launch whose results differ between these two is not to blame.
    """
    first = flow.run
    if first.info.poison is None or second.info.poison is None or first.info.poison == second.info.poison:
        return None
    walk = _Walk((first.info.poison, second.info.poison), flow, again)
    for one, other in _pairs(first, second):
        suspect = walk.check(one, other)
        if suspect is not None:
            return walk.suspect_finding(suspect)
    return walk.output_finding()


def _pairs(first: RunDir, second: RunDir) -> Iterator[tuple[Launch, Launch]]:
    """The launches of both runs, pair by pair, up to the first that differs."""
    for one, other in zip(first.launches, second.launches, strict=False):
        if one.key != other.key or one.site.id != other.site.id:
            return
        yield one, other


@dataclass(frozen=True)
class _Unwritten:
    """An argument with `count` elements that no launch has written (0: the number is unknown)."""

    launch: Launch
    argument: Argument
    count: int


@dataclass(frozen=True)
class _Suspect:
    """A launch whose result depends on the poison.

    Attributes:
        launch: the launch in the first run.
        other: the same launch in the second run.
        read: the unwritten argument that it read; None if no argument that it read has unwritten elements.
        result: the result that changed; None if the launch completed in one of the runs only.
    """

    launch: Launch
    other: Launch
    read: _Unwritten | None
    result: Argument | None


class _Walk:
    def __init__(self, poisons: tuple[int, int], flow: Dataflow, again: RunDir | None) -> None:
        self._poisons = poisons
        self._flow = flow
        self._again = None if again is None else {launch.key: launch for launch in again.launches}
        self._outputs: list[tuple[ByteRange, _Unwritten]] = []  # of the model, not completely written yet

    def check(self, one: Launch, other: Launch) -> _Suspect | None:
        """The suspect if this is the first launch whose result depends on unwritten memory; None otherwise."""
        before = self._compared(one, other, Phase.BEFORE)
        after = self._compared(one, other, Phase.AFTER)
        self._note_outputs(one, after)
        reads = [(a, c) for a, c in before if a.role in (Role.IN, Role.INOUT, Role.UNKNOWN)]
        if any(c.difference is PoisonDifference.WRITTEN for _, c in reads) or self._is_random(one):
            return None
        tainted = [_Unwritten(one, a, c.unwritten) for a, c in reads if c.difference is PoisonDifference.UNWRITTEN]
        read = min(tainted, key=lambda t: t.argument.role is not Role.IN, default=None)
        if read is not None and (one.status in _UNFINISHED) != (other.status in _UNFINISHED):
            return _Suspect(one, other, read, None)
        changed = [a for a, c in after if a.written and c.difference is PoisonDifference.WRITTEN]
        changed += [a for a in one.args if _is_other_number(a, other)]
        significant = [
            a for a in changed if self._again is not None or _shows_poison(a, other, has_read=read is not None)
        ]
        return _Suspect(one, other, read, significant[0]) if significant else None

    def suspect_finding(self, suspect: _Suspect) -> Finding:
        launch, read, result = suspect.launch, suspect.read, suspect.result
        argument = read.argument.name if read else result.name if result else ""
        return Finding(
            kind=UNINITIALISED,
            what=f"{launch.kernel} is suspected of reading memory that no launch had written",
            where=place_of(launch, argument),
            evidence=(self._effect(suspect), *([] if read is None else self._cause(read))),
            origin=None if read is None else self._origin(read),
            warnings=(_NOT_FILLED,),
        )

    def output_finding(self) -> Finding | None:
        """The finding of an output of the model that was not completely written; None if all were."""
        if not self._outputs:
            return None
        _, output = self._outputs[0]
        return Finding(
            kind=UNINITIALISED,
            what=f"the model returns {output.argument.name}, in which {_elements(output)} never written",
            where=place_of(output.launch, output.argument.name),
            evidence=(
                f"{_elements(output)} still filled with the poison of the run: {self._bytes(0)} in one run, "
                f"{self._bytes(1)} in the other",
                f"{output.launch.id} {output.launch.kernel} was the last to write to it",
            ),
            warnings=(_NOT_FILLED,),
        )

    def _compared(self, one: Launch, other: Launch, phase: Phase) -> list[tuple[Argument, PoisonComparison]]:
        return [
            (a, compare(a.stats.get(phase), b.stats.get(phase), a.layout, self._poisons))
            for a, b in zip(one.args, other.args, strict=True)
            if a.stats
        ]

    def _note_outputs(self, launch: Launch, after: list[tuple[Argument, PoisonComparison]]) -> None:
        for argument, comparison in after:
            span = span_of(argument)
            if not argument.written or span is None:
                continue
            self._outputs = [(written, entry) for written, entry in self._outputs if not written.overlaps(span)]
            if comparison.difference is PoisonDifference.UNWRITTEN and self._flow.is_output(argument):
                self._outputs.append((span, _Unwritten(launch, argument, comparison.unwritten)))

    def _is_random(self, launch: Launch) -> bool:
        """True if the results may differ although the inputs are equal."""
        if any(_RANDOM.search(name) for name in (launch.kernel, launch.site.op)):
            return True
        repeated = self._again.get(launch.key) if self._again is not None else None
        if repeated is None or repeated.site.id != launch.site.id:
            return self._again is not None
        pairs = zip(launch.args, repeated.args, strict=True)
        return any(
            a.written and Phase.AFTER in a.stats and Phase.AFTER in b.stats and _hash(a) != _hash(b) for a, b in pairs
        )

    def _effect(self, suspect: _Suspect) -> str:
        runs = f"two runs that differ only in the byte that fills new buffers ({self._bytes(0)}, {self._bytes(1)})"
        if suspect.result is None:
            return f"it completes in only one of {runs}"
        first, second = suspect.result, _counterpart(suspect.result, suspect.other)
        return f"its result {first.name} differs between {runs}: {_summary(first)} against {_summary(second)}"

    def _cause(self, read: _Unwritten) -> Iterator[str]:
        yield f"it reads {read.argument.name}, in which {_elements(read)} still unwritten"
        writer = self._flow.writer(read.launch, read.argument)
        if writer.launch is None:
            yield f"no launch wrote to {read.argument.name} before it"
        else:
            yield f"{writer.launch.id} {writer.launch.kernel} was the last to write to it, but did not write them"

    def _origin(self, read: _Unwritten) -> Place | None:
        writer = self._flow.writer(read.launch, read.argument)
        if writer.launch is None:
            return None
        return place_of(writer.launch, writer.argument.name if writer.argument else "")

    def _bytes(self, run: int) -> str:
        return f"{self._poisons[run]:02x}"


def _elements(unwritten: _Unwritten) -> str:
    """ "3 of 10 elements are"."""
    layout = unwritten.argument.layout
    numel = layout.numel if layout is not None else 0
    if unwritten.count == 0:
        return "some elements are"
    return f"{unwritten.count} of {wording.pluralize(numel, 'element')} {'is' if unwritten.count == 1 else 'are'}"


def _counterpart(argument: Argument, other: Launch) -> Argument:
    return other.args[argument.slot]


def _hash(argument: Argument) -> int | None:
    return argument.stats[Phase.AFTER].hash


def _is_other_number(argument: Argument, other: Launch) -> bool:
    counterpart = _counterpart(argument, other)
    is_written = argument.before != argument.after
    return (
        is_written
        and isinstance(argument.after, Number)
        and isinstance(counterpart.after, Number)
        and argument.after != counterpart.after
    )


def _shows_poison(argument: Argument, other: Launch, *, has_read: bool) -> bool:
    """True if the result depends on poison. If the launch reads no poison that is known, only NaN proves that."""
    if argument.stats.get(Phase.AFTER) is None:
        return has_read
    first, second = (a.stats[Phase.AFTER].statistics for a in (argument, _counterpart(argument, other)))
    if first is None or second is None:
        return False
    if first.n_nan != second.n_nan:
        return True
    counts = [(s.n_pos_inf, s.n_neg_inf, s.n_zero) for s in (first, second)]
    if not has_read:
        return False
    return counts[0] != counts[1] or any(
        abs(a - b) > _CHANGED * max(abs(a), abs(b))
        for a, b in ((first.min, second.min), (first.max, second.max), (first.mean, second.mean))
        if a is not None and b is not None
    )


def _summary(argument: Argument) -> str:
    """A result in a few words."""
    if isinstance(argument.after, Number):
        return text.value(argument.after)
    statistics = argument.stats[Phase.AFTER].statistics if Phase.AFTER in argument.stats else None
    return "not read" if statistics is None else " ".join(text.statistics(statistics))
