"""The measured calls of a run, by the clock that it was measured with."""

from __future__ import annotations

from aoti_debug.base.lazy.dataclass import dataclass
from aoti_debug.runs.rundir import device_activity
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.views.profile.device_calls import DeviceCall, device_calls
from aoti_debug.views.profile.measured_call import MeasuredCall, measured_calls
from aoti_debug.views.profile.measuring_cost import MeasuringCost


@dataclass(frozen=True)
class RunCalls:
    """The measured calls of the model, or replays of its CUDA graph.

    Attributes:
        cost: of measuring; None without the profiler of a GPU.
        on_device: the same calls with the work of the GPU; None without its profiler.
    """

    measured: tuple[MeasuredCall, ...]
    cost: MeasuringCost | None = None
    on_device: tuple[DeviceCall, ...] | None = None


def calls_of(run: RunDir, warm_up: int) -> RunCalls:
    """Reads the measured calls of a run.

    Args:
        warm_up: how many calls are left out of a run that the profiler of a GPU has not recorded.

    Raises:
        RunDirError: what that profiler has recorded cannot be read.
    """
    activity = device_activity.read(run.path)
    if activity is None:
        return RunCalls(measured_calls(run, warm_up))
    calls = device_calls(run, activity)
    return RunCalls(tuple(call.measured for call in calls), MeasuringCost.of(activity), calls)
