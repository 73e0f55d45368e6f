"""NaN and infinities that level 2 recorded in what a launch read and wrote, and values that come near to overflow."""

from __future__ import annotations

import math
from collections.abc import Iterable
from enum import Enum

from aoti_debug.base.abi import Phase
from aoti_debug.base.dtypes import LARGEST, SHARE
from aoti_debug.base.frozen import dataclass
from aoti_debug.package.manifest import Manifest, Role
from aoti_debug.runs.diagnosis.dataflow import Dataflow
from aoti_debug.runs.kernel_source import result_slices
from aoti_debug.runs.rundir.formats.journal_records import TensorStats
from aoti_debug.runs.rundir.formats.statistics import Statistics
from aoti_debug.runs.rundir.timeline import Argument, Launch

_FAR_BELOW = min(LARGEST.values()) * SHARE / 2  # for any dtype
MAX_WARNINGS = 3


class Special(str, Enum):
    """A kind of non-finite value."""

    NAN = "NaN"
    PLUS_INF = "+Inf"
    MINUS_INF = "-Inf"

    @property
    def sign(self) -> int:
        """1 or -1 for an infinity, 0 for NaN."""
        return {Special.NAN: 0, Special.PLUS_INF: 1, Special.MINUS_INF: -1}[self]

    def is_value(self, value: float) -> bool:
        """True if a number is of this kind."""
        return math.isnan(value) if self is Special.NAN else value == self.sign * math.inf


INFINITE = (Special.PLUS_INF, Special.MINUS_INF)


@dataclass(frozen=True)
class Occurrence:
    """A kind of non-finite value in an argument of a launch (what the launch wrote there, unless said otherwise)."""

    launch: Launch
    argument: Argument
    special: Special

    @property
    def key(self) -> tuple[object, str, Special]:
        """The identity of the occurrence within its run."""
        return self.launch.key, self.argument.name, self.special


def count(statistics: Statistics | None, special: Special) -> int:
    """The number of elements that are NaN, +Inf or -Inf, as asked; 0 without statistics."""
    if statistics is None:
        return 0
    match special:
        case Special.NAN:
            return statistics.n_nan
        case Special.PLUS_INF:
            return statistics.n_pos_inf
        case Special.MINUS_INF:
            return statistics.n_neg_inf


def statistics_of(argument: Argument, phase: Phase) -> Statistics | None:
    """The statistics recorded of an argument; None if there are none, or if its memory was not initialised yet."""
    recorded = argument.stats.get(phase)
    return None if recorded is None or recorded.uninitialised else recorded.statistics


def statistics_after(argument: Argument) -> Statistics | None:
    """The statistics after the launch of an argument that it may have written; None for others."""
    return statistics_of(argument, Phase.AFTER) if argument.written else None


def count_before(occurrence: Occurrence) -> int:
    """The number of the same values that the memory held before the launch wrote to it, whoever had put them there."""
    recorded = occurrence.argument.stats.get(Phase.BEFORE) if occurrence.argument.written else None
    return 0 if recorded is None else count(recorded.statistics, occurrence.special)


class SpecialValues:
    """The non-finite values that launches read and wrote, in the order of the launches.

    Attributes:
        kinds: of all values that a launch wrote, or read from an input of its own.
        written: occurrences in what launches wrote.
        readers: the launches that had such a value in an argument before they began.
    """

    def __init__(self, launches: Iterable[Launch]) -> None:
        self.written: dict[Special, list[Occurrence]] = {special: [] for special in Special}
        self.readers: dict[Special, list[Launch]] = {special: [] for special in Special}
        found: set[Special] = set()
        for launch in launches:
            if all(record.statistics is None or record.statistics.is_finite for record in launch.stats):
                continue
            for argument in launch.args:
                for phase, recorded in argument.stats.items():
                    s = recorded.statistics
                    if s is None or s.is_finite or recorded.uninitialised:
                        continue
                    kinds = [special for special in Special if count(s, special)]
                    if phase is Phase.BEFORE:
                        self._add_reader(launch, kinds)
                        found.update(kinds if argument.role is Role.IN else ())
                    elif argument.written:
                        found.update(kinds)
                        for special in kinds:
                            self.written[special].append(Occurrence(launch, argument, special))
        self.kinds = frozenset(found)

    def _add_reader(self, launch: Launch, kinds: Iterable[Special]) -> None:
        for special in kinds:
            readers = self.readers[special]
            if not readers or readers[-1] is not launch:
                readers.append(launch)


class ResultOperands:
    """Finds the arguments of a launch that the values of a result are computed from."""

    def __init__(self, manifest: Manifest, dataflow: Dataflow) -> None:
        self._manifest = manifest
        self._dataflow = dataflow
        self._allocated = {allocation.name for allocation in manifest.allocations}

    def operands(self, launch: Launch, result: Argument) -> tuple[Argument, ...]:
        """The operands of a result according to the kernel's source; for an operator, all that it reads."""
        result_slice = result_slices.launch_slices(launch, self._manifest).get(result.spec.param)
        operands: dict[str, Argument] = {}
        for argument in launch.args:
            if statistics_of(argument, Phase.BEFORE) is None or argument.name in operands:
                continue
            if self._is_operand(launch, argument, result, None if result_slice is None else result_slice.sources):
                operands[argument.name] = argument
        return tuple(operands.values())

    def _is_operand(self, launch: Launch, argument: Argument, result: Argument, sources: frozenset[str] | None) -> bool:
        if sources is not None and argument.spec.param in sources:
            return True
        if argument.role is Role.IN:
            return sources is None
        if argument.role is Role.OUT:
            return False
        return (sources is None or argument.name == result.name) and self._was_initialised(launch, argument)

    def _was_initialised(self, launch: Launch, argument: Argument) -> bool:
        """True if a buffer that the launch writes to had content of its own before.

        What the previous owner of its memory wrote there does not count.
        """
        writer = self._dataflow.writer(launch, argument)
        if writer.launch is None or writer.argument is None:
            return bool(writer.input)
        own, written = argument.spec, writer.argument.spec
        if {own.base, own.name} & {written.base, written.name} - {""}:
            return True
        return bool(self._allocated) and (own.base or own.name) not in self._allocated


def near_overflow_warnings(launches: Iterable[Launch]) -> tuple[str, ...]:
    """One warning for each tensor with a value above half of its dtype's maximum, the closest first.

    The maximum itself does not count: masks are filled with it, and scaled quantization uses it on purpose.
    """
    closest: dict[tuple[str, str], tuple[float, str]] = {}
    for launch in launches:
        if not any(_may_be_near(record) for record in launch.stats):
            continue
        for argument in launch.args:
            extreme = _extreme_value(argument)
            if extreme is None:
                continue
            share, value = extreme
            dtype = argument.layout.dtype if argument.layout else ""
            key = (launch.kernel, argument.name)
            if key not in closest or share > closest[key][0]:
                line = (
                    f"near overflow: {argument.name} of {launch.id} {launch.kernel} holds {value:.6g}, "
                    f"{share:.0%} of the largest {dtype} ({LARGEST[dtype]:.6g})"
                )
                closest[key] = (share, line)
    return tuple(line for _, line in sorted(closest.values(), key=lambda item: -item[0])[:MAX_WARNINGS])


def _may_be_near(record: TensorStats) -> bool:
    """False if no value is large for the tensor's dtype, or the dtype has no such limit."""
    statistics = record.statistics
    if statistics is None or statistics.min is None or statistics.max is None:
        return False
    if statistics.min > -_FAR_BELOW and statistics.max < _FAR_BELOW:
        return False
    return record.layout is None or record.layout.dtype in LARGEST


def _extreme_value(argument: Argument) -> tuple[float, float] | None:
    """(share of the dtype's maximum, value) of the finite value with the largest magnitude."""
    statistics = statistics_after(argument)
    if statistics is None or statistics.min is None or statistics.max is None:
        return None
    low, high = statistics.min, statistics.max
    if low > -_FAR_BELOW and high < _FAR_BELOW:
        return None
    largest = LARGEST.get(argument.layout.dtype) if argument.layout else None
    if largest is None:
        return None
    extremes = (float(low), float(high))
    shares = [(abs(value) / largest, value) for value in extremes if SHARE < abs(value) / largest < 1]
    return max(shares, default=None)
