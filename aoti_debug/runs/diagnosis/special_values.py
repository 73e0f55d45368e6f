"""NaN and infinities in what launches read and wrote, and those infinities that the model's own code intends."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from enum import Enum

from aoti_debug.base.abi import Phase
from aoti_debug.base.frozen import dataclass
from aoti_debug.package.argument_values import Number
from aoti_debug.package.manifest import Kernel, Manifest, Role
from aoti_debug.runs.kernel_source import result_slices
from aoti_debug.runs.rundir.formats.statistics import Statistics
from aoti_debug.runs.rundir.launch import Argument, Launch

Measure = Callable[[Argument, Phase], "Statistics | None"]  # None: not recorded, or memory that was not initialised


_BOTH = frozenset({1, -1})
_OPERAND_TEXT = re.compile(r"(?<![\w.])(-?)\s*\"?(-?)(?:inf|Infinity)\b", re.IGNORECASE)
_CPP = re.compile(r"(-?)\s*std::numeric_limits<[^<>]*>::infinity\(\)")
_TRITON = re.compile(r"""(-?)\s*float\(["']([+-]?)inf["']\)""")
_LOGSUMEXP = re.compile(r"attention")  # returns logsumexp, which is -Inf for a fully masked row


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


def intended_signs(launch: Launch, argument: Argument, manifest: Manifest) -> frozenset[int]:
    """The signs (1, -1) of the infinities that a launch may write to an argument because its code or call has them."""
    kernel = result_slices.kernel_of(launch, manifest)
    if kernel is None:
        return _operator_call_signs(launch)
    result_slice = result_slices.launch_slices(launch, manifest).get(argument.spec.param)
    return result_slice.infinities if result_slice is not None else infinite_constants(kernel)


def infinite_constants(kernel: Kernel) -> frozenset[int]:
    """The signs of the infinite constants anywhere in a kernel's source."""
    pattern = _CPP if kernel.language == "cpp" else _TRITON
    return frozenset(_sign("".join(match.groups())) for match in pattern.finditer(kernel.source))


def _operator_call_signs(launch: Launch) -> frozenset[int]:
    numbers = [a.after.value for a in launch.args if isinstance(a.after, Number)]
    signs = {1 if value > 0 else -1 for value in numbers if isinstance(value, float) and math.isinf(value)}
    for operand in launch.site.operands:
        signs |= {_sign(match.group(1) + match.group(2)) for match in _OPERAND_TEXT.finditer(operand.value)}
    return _BOTH if _LOGSUMEXP.search(launch.site.op or launch.kernel) else frozenset(signs)


def _sign(minuses: str) -> int:
    return -1 if minuses.count("-") % 2 else 1
