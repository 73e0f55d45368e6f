"""Values that come near to the largest one of their dtype, in what level 2 recorded."""

from __future__ import annotations

from collections.abc import Iterable

from aoti_debug.base.dtypes import LARGEST, SHARE
from aoti_debug.runs.diagnosis.special_values import statistics_after
from aoti_debug.runs.rundir.formats.journal_records import TensorStats
from aoti_debug.runs.rundir.timeline import Argument, Launch

_FAR_BELOW = min(LARGEST.values()) * SHARE / 2  # for any dtype
MAX_WARNINGS = 3


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
