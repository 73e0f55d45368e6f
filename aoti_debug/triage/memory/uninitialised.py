"""The launch whose result depends on what nobody wrote: two runs that differ only in what fresh buffers begin with."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from aoti_debug import wording
from aoti_debug.abi import Phase
from aoti_debug.diagnosis.dataflow import ByteRange, Dataflow, span_of
from aoti_debug.diagnosis.findings import Finding, FindingKind, Place, place_of
from aoti_debug.manifest import Role
from aoti_debug.rundir.run_directory import RunDir
from aoti_debug.rundir.timeline import Argument, Launch, LaunchStatus
from aoti_debug.show import text
from aoti_debug.triage.memory.poison import PoisonComparison, PoisonDifference, compare
from aoti_debug.values import Number

UNINITIALISED = FindingKind(
    "uninitialised", "a launch read what nothing had written", "UNINITIALISED", "uninitialised read", "?"
)

_RANDOM = re.compile(
    r"(?:^|[._:])(?:rand(?:n|int|perm)?|bernoulli|(?:log_)?normal|uniform|multinomial|dropout|exponential|geometric"
    r"|poisson|cauchy|random|rrelu|seeds?)(?=[._:]|$)"
)
_CHANGED = 1e-3  # of a tensor's values: the order of additions changes less
_UNFINISHED = (LaunchStatus.OPEN, LaunchStatus.FAILED)
_NOT_FILLED = "memory that operators allocate for themselves is not filled: reads of it do not show"


def find(flow: Dataflow, second: RunDir, again: RunDir | None = None) -> Finding | None:
    """The first launch that is suspected of reading what nobody wrote, or the output that nobody wrote.

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
        suspect = walk.look(one, other)
        if suspect is not None:
            return walk.suspected(suspect)
    return walk.left()


def _pairs(first: RunDir, second: RunDir) -> Iterator[tuple[Launch, Launch]]:
    """Launches that both runs made, up to where they part."""
    for one, other in zip(first.launches, second.launches, strict=False):
        if one.key != other.key or one.site.id != other.site.id:
            return
        yield one, other


@dataclass(frozen=True)
class _Unwritten:
    """An argument that holds `count` elements that nobody wrote (0: unknown how many)."""

    launch: Launch
    argument: Argument
    count: int


@dataclass(frozen=True)
class _Suspect:
    """A launch and the result that changed; `read` None: what it read is no argument of its own. `result` None: it
    ended in one of the runs only."""

    launch: Launch
    other: Launch
    read: _Unwritten | None
    result: Argument | None


class _Walk:
    def __init__(self, poisons: tuple[int, int], flow: Dataflow, again: RunDir | None) -> None:
        self._poisons = poisons
        self._flow = flow
        self._again = None if again is None else {launch.key: launch for launch in again.launches}
        self._outputs: list[tuple[ByteRange, _Unwritten]] = []  # of the model, not wholly written so far

    def look(self, one: Launch, other: Launch) -> _Suspect | None:
        """Whether the launch made something of bytes that nobody wrote, and no launch before it did."""
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
        told = [a for a in changed if self._again is not None or _is_telling(a, other, read is not None)]
        return _Suspect(one, other, read, told[0]) if told else None

    def suspected(self, suspect: _Suspect) -> Finding:
        launch, read, result = suspect.launch, suspect.read, suspect.result
        argument = read.argument.name if read else result.name if result else ""
        return Finding(
            kind=UNINITIALISED,
            what=f"{launch.kernel} is suspected of reading what nobody wrote",
            where=place_of(launch, argument),
            evidence=(self._effect(suspect), *([] if read is None else self._cause(read))),
            origin=None if read is None else self._origin(read),
            warnings=(_NOT_FILLED,),
        )

    def left(self) -> Finding | None:
        """An output of the model that the call left unwritten, at least in part."""
        if not self._outputs:
            return None
        _, found = self._outputs[0]
        return Finding(
            kind=UNINITIALISED,
            what=f"the model returns {found.argument.name}, in which {_elements(found)} written by nobody",
            where=place_of(found.launch, found.argument.name),
            evidence=(
                f"{_elements(found)} still what the buffer began with, in a run with {self._bytes(0)} and in one with "
                f"{self._bytes(1)}",
                f"{found.launch.id} {found.launch.kernel} was the last to write to it",
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
            self._outputs = [(known, entry) for known, entry in self._outputs if not known.overlaps(span)]
            if comparison.difference is PoisonDifference.UNWRITTEN and self._flow.is_output(argument):
                self._outputs.append((span, _Unwritten(launch, argument, comparison.unwritten)))

    def _is_random(self, launch: Launch) -> bool:
        """Whether equal inputs may give other results."""
        if any(_RANDOM.search(name) for name in (launch.kernel, launch.site.op)):
            return True
        same = self._again.get(launch.key) if self._again is not None else None
        if same is None or same.site.id != launch.site.id:
            return self._again is not None
        pairs = zip(launch.args, same.args, strict=True)
        return any(
            a.written and Phase.AFTER in a.stats and Phase.AFTER in b.stats and _hash(a) != _hash(b) for a, b in pairs
        )

    def _effect(self, suspect: _Suspect) -> str:
        twin = (
            f"two runs that differ only in the bytes that fresh buffers begin with ({self._bytes(0)}, {self._bytes(1)})"
        )
        if suspect.result is None:
            return f"it ends in one of {twin} only"
        mine, others = suspect.result, _same(suspect.result, suspect.other)
        return f"its result {mine.name} changes between {twin}: {_told(mine)} against {_told(others)}"

    def _cause(self, read: _Unwritten) -> Iterator[str]:
        yield f"it reads {read.argument.name}, in which {_elements(read)} still what the buffer began with"
        writer = self._flow.writer(read.launch, read.argument)
        if writer.launch is None:
            yield f"no launch wrote to {read.argument.name} before it"
        else:
            yield f"{writer.launch.id} {writer.launch.kernel} was the last to write to it and left them unwritten"

    def _origin(self, read: _Unwritten) -> Place | None:
        writer = self._flow.writer(read.launch, read.argument)
        if writer.launch is None:
            return None
        return place_of(writer.launch, writer.argument.name if writer.argument else "")

    def _bytes(self, run: int) -> str:
        return f"{self._poisons[run]:02x}"


def _elements(found: _Unwritten) -> str:
    layout = found.argument.layout
    numel = layout.numel if layout is not None else 0
    if found.count == 0:
        return "some elements are"
    return f"{found.count} of {wording.count(numel, 'element')} {'is' if found.count == 1 else 'are'}"


def _same(argument: Argument, other: Launch) -> Argument:
    return other.args[argument.slot]


def _hash(argument: Argument) -> int:
    return argument.stats[Phase.AFTER].hash


def _is_other_number(argument: Argument, other: Launch) -> bool:
    twin = _same(argument, other)
    made = argument.before != argument.after
    return (
        made and isinstance(argument.after, Number) and isinstance(twin.after, Number) and argument.after != twin.after
    )


def _is_telling(argument: Argument, other: Launch, has_read: bool) -> bool:
    """Whether poison shows in the result. Where the launch read none that we know of, only NaN does."""
    if argument.stats.get(Phase.AFTER) is None:
        return has_read
    mine, others = (a.stats[Phase.AFTER].statistics for a in (argument, _same(argument, other)))
    if mine is None or others is None:
        return False
    if mine.n_nan != others.n_nan:
        return True
    counts = [(s.n_pos_inf, s.n_neg_inf, s.n_zero) for s in (mine, others)]
    if not has_read:
        return False
    return counts[0] != counts[1] or any(
        abs(a - b) > _CHANGED * max(abs(a), abs(b))
        for a, b in ((mine.min, others.min), (mine.max, others.max), (mine.mean, others.mean))
        if a is not None and b is not None
    )


def _told(argument: Argument) -> str:
    """What a result is, in a few words."""
    if isinstance(argument.after, Number):
        return text.value(argument.after)
    found = argument.stats[Phase.AFTER].statistics if Phase.AFTER in argument.stats else None
    return "not read" if found is None else " ".join(text.statistics(found))
