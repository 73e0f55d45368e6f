"""Compares a tensor in two runs with different poison: unwritten elements still hold the poison of their run."""

from __future__ import annotations

import math
from enum import Enum

from aoti_debug.base.frozen import dataclass
from aoti_debug.package.recording.values import Layout
from aoti_debug.runs.rundir.formats.journal_records import TensorStats
from aoti_debug.runs.rundir.formats.statistics import Statistics
from aoti_debug.runs.show.text import decode

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
