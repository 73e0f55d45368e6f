"""Finds the launch whose result depends on uninitialised memory, from two runs that fill new buffers differently.

Statistics of the two runs are compared; a poison that was read shows in them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from enum import Enum

from aoti_debug.base import wording
from aoti_debug.base.abi import Phase
from aoti_debug.base.frozen import dataclass
from aoti_debug.package.argument_values import Layout, Number
from aoti_debug.package.manifest import Role
from aoti_debug.runs.diagnosis.dataflow import ByteRange, Dataflow, span_of
from aoti_debug.runs.diagnosis.findings import Finding, Place, place_of
from aoti_debug.runs.rundir.formats.journal_records import TensorStats
from aoti_debug.runs.rundir.formats.statistics import Statistics
from aoti_debug.runs.rundir.launch import Argument, Launch, LaunchStatus
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.runs.show import text
from aoti_debug.runs.show.text import decode
from aoti_debug.triage.results.finding_kinds import UNINITIALISED

_SLACK = 1e-11  # of the sum of magnitudes: the rounding error of a mean


class PoisonDifference(str, Enum):
    """The kind of difference between the two runs."""

    NONE = "none"
    UNWRITTEN = "unwritten"  # every element that differs holds the poison of its run
    WRITTEN = "written"  # other elements differ too
    UNKNOWN = "unknown"  # it was not read in one of the runs


@dataclass(frozen=True)
class PoisonComparison:
    """The result of a comparison.

    Attributes:
        unwritten: the number of elements that hold poison; 0 if it is unknown.
    """

    difference: PoisonDifference
    unwritten: int = 0


_NONE = PoisonComparison(PoisonDifference.NONE)
_WRITTEN = PoisonComparison(PoisonDifference.WRITTEN)
_UNKNOWN = PoisonComparison(PoisonDifference.UNKNOWN)


def compare(
    first: TensorStats | None, second: TensorStats | None, layout: Layout | None, poisons: tuple[int, int]
) -> PoisonComparison:
    """Compares what two runs recorded of one tensor.

    Without recorded elements, poison can be told from computed floats only if one of the poisons is no ordinary number:
    ff is NaN in every float format. A number that is 0 in one run may have been computed.

    Args:
        poisons: the bytes that new buffers were filled with in the first and the second run.
    """
    if first is None or second is None or first.statistics is None or second.statistics is None:
        return _UNKNOWN
    if first.hash == second.hash:
        return _NONE
    item = layout.item_bytes if layout is not None else 0
    if layout is None or item == 0 or first.statistics.numel != second.statistics.numel:
        return _WRITTEN
    if first.values and len(first.values) == len(second.values):
        return _by_elements(first.values, second.values, item, poisons)
    values = [_value(poison, item, layout.dtype) for poison in poisons]
    return _by_statistics(_Measured(first.statistics, values[0]), _Measured(second.statistics, values[1]))


def _value(poison: int, item: int, dtype: str) -> int | float:
    """The value of an element of poison; the magnitude of a complex one."""
    value = decode(bytes([poison]) * item, dtype)[0]
    return abs(value) if isinstance(value, complex) else value


def _by_elements(first: bytes, second: bytes, item: int, poisons: tuple[int, int]) -> PoisonComparison:
    fill = [bytes([poison]) * item for poison in poisons]
    pairs = [(first[i : i + item], second[i : i + item]) for i in range(0, len(first), item)]
    differing = [list(pair) for pair in pairs if pair[0] != pair[1]]
    if any(pair != fill for pair in differing):
        return _WRITTEN
    return PoisonComparison(PoisonDifference.UNWRITTEN, len(differing))


@dataclass(frozen=True)
class _Measured:
    """A tensor's statistics in one run, and the value of an element that is all poison there."""

    statistics: Statistics
    poison: int | float

    @property
    def is_finite(self) -> bool:
        return math.isfinite(self.poison)

    @property
    def counts(self) -> tuple[int, int, int, int]:
        s = self.statistics
        return s.n_nan, s.n_pos_inf, s.n_neg_inf, s.n_zero

    @property
    def kind(self) -> tuple[int, int, int, int]:
        """The amounts that one element of poison adds to `counts`."""
        v = self.poison
        return int(math.isnan(v)), int(v == math.inf), int(v == -math.inf), int(v == 0)

    @property
    def total(self) -> float:
        """The sum of the finite elements."""
        return self.statistics.mean * self.statistics.n_finite if self.statistics.n_finite else 0.0

    @property
    def magnitude(self) -> float:
        """An upper bound of the sum of the finite elements' magnitudes."""
        if self.statistics.n_finite == 0:
            return 0.0
        return self.statistics.n_finite * max(abs(self.bound(1)), abs(self.bound(-1)))

    def bound(self, sign: int) -> float:
        """The smallest finite element, or with -1 the largest, negated; infinite if there is none."""
        extreme = self.statistics.min if sign > 0 else self.statistics.max
        return math.inf if extreme is None else sign * extreme


def _by_statistics(first: _Measured, second: _Measured) -> PoisonComparison:
    """Compares the statistics: apart from the elements of poison, they must describe the same elements."""
    count = _count(first, second)
    if count is None:
        return _WRITTEN
    if not all(_bounds_agree(first, second, sign) for sign in (1, -1)):
        return _WRITTEN
    rest = [m.total - (count * m.poison if m.is_finite else 0.0) for m in (first, second)]
    if abs(rest[0] - rest[1]) > _SLACK * (first.magnitude + second.magnitude):
        return _WRITTEN
    return PoisonComparison(PoisonDifference.UNWRITTEN, count)


def _count(first: _Measured, second: _Measured) -> int | None:
    """The number of poison elements that explains the difference of the counts; None if no number does."""
    gained = [a - b for a, b in zip(first.counts, second.counts, strict=True)]
    each = [a - b for a, b in zip(first.kind, second.kind, strict=True)]
    position = next((i for i, e in enumerate(each) if e), None)
    if position is not None:
        count = gained[position] * each[position]
        return count if count > 0 and gained == [count * e for e in each] else None
    if any(gained) or isinstance(first.poison, float):
        return None  # a float that is computed from poison may differ by just as much
    if first.poison == second.poison:
        return 0
    exact = (first.total - second.total) / (first.poison - second.poison)
    return round(exact) if math.isfinite(exact) and round(exact) > 0 else None


def _bounds_agree(first: _Measured, second: _Measured, sign: int) -> bool:
    """True if the same other elements, with the poison of each run added, can have these bounds."""
    low = [m.bound(sign) for m in (first, second)]
    added = [sign * m.poison if m.is_finite else math.inf for m in (first, second)]
    if any(bound > poison for bound, poison in zip(low, added, strict=True)):
        return False  # the poison is not in it
    unmasked = [bound for bound, poison in zip(low, added, strict=True) if bound < poison]
    if len(unmasked) == 2:
        return unmasked[0] == unmasked[1]
    if not unmasked:
        return True
    hidden = max(poison for bound, poison in zip(low, added, strict=True) if bound == poison)
    return unmasked[0] >= hidden


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
        first, second = suspect.result, suspect.other.args[suspect.result.slot]
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


def _hash(argument: Argument) -> int | None:
    return argument.stats[Phase.AFTER].hash


def _is_other_number(argument: Argument, other: Launch) -> bool:
    counterpart = other.args[argument.slot]
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
    first, second = (a.stats[Phase.AFTER].statistics for a in (argument, other.args[argument.slot]))
    if first is None or second is None:
        return False
    if first.n_nan != second.n_nan:
        return True
    if not has_read:
        return False
    counts = [(s.n_pos_inf, s.n_neg_inf, s.n_zero) for s in (first, second)]
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
