"""The cost of measuring with the profiler of a GPU."""

from __future__ import annotations

import statistics

from aoti_debug.base.lazy.dataclass import dataclass
from aoti_debug.runs.rundir.device_activity import DeviceActivity


@dataclass(frozen=True)
class MeasuringCost:
    """Seconds of a call or replay until the GPU has completed it.

    Attributes:
        profiled, unprofiled: with and without the profiler, the median.
        back_to_back: of a replay without it, where replays follow one another; None for calls.
    """

    profiled: float
    unprofiled: float
    back_to_back: float | None

    @classmethod
    def of(cls, activity: DeviceActivity) -> MeasuringCost:
        """The medians of what a run has recorded."""
        following = statistics.median(activity.back_to_back) if activity.back_to_back else None
        return cls(statistics.median(activity.profiled), statistics.median(activity.unprofiled), following)
