"""An early warning: values that are finite still, and near the end of what their dtype can hold."""

from __future__ import annotations

from collections.abc import Iterable

from aoti_debug import dtypes
from aoti_debug.rundir.timeline import Argument, Launch
from aoti_debug.triage.nonfinite.observed import left

_EXEMPT = ("float64", "float8_e8m0fnu")  # no wider dtype to compare with; powers of two that scale other tensors
LARGEST = {d.name: d.largest for d in dtypes.DTYPES if d.largest is not None and d.name not in _EXEMPT}
SHARE = 0.5  # one doubling away
MOST = 3


def warnings(launches: Iterable[Launch]) -> tuple[str, ...]:
    """The largest values beyond half of their dtype's maximum, one a tensor, the nearest first.

    The maximum itself does not count: masks are filled with it, and scaled quantization aims at it.
    """
    found: dict[tuple[str, str], tuple[float, str]] = {}
    for launch in launches:
        for argument in launch.args:
            near = _nearest(argument)
            if near is None:
                continue
            share, value = near
            dtype = argument.layout.dtype if argument.layout else ""
            key = (launch.kernel, argument.name)
            if key not in found or share > found[key][0]:
                line = (
                    f"near overflow: {argument.name} of {launch.id} {launch.kernel} holds {value:.6g}, "
                    f"{share:.0%} of the largest {dtype} ({LARGEST[dtype]:.6g})"
                )
                found[key] = (share, line)
    return tuple(line for _, line in sorted(found.values(), key=lambda item: -item[0])[:MOST])


def _nearest(argument: Argument) -> tuple[float, float] | None:
    """(share of the maximum, value) of the finite value that is nearest to the dtype's end."""
    statistics = left(argument)
    largest = LARGEST.get(argument.layout.dtype) if argument.layout else None
    if statistics is None or largest is None:
        return None
    ends = [float(end) for end in (statistics.min, statistics.max) if end is not None]
    shares = [(abs(end) / largest, end) for end in ends if SHARE < abs(end) / largest < 1]
    return max(shares, default=None)
