"""The measured calls of a run, by the clock that it was measured with."""

from __future__ import annotations

from aoti_debug.profile.device_calls import device_calls
from aoti_debug.profile.measured_call import MeasuredCall, measured_calls
from aoti_debug.rundir import device_activity
from aoti_debug.rundir.run_directory import RunDir


def calls_of(run: RunDir, warm_up: int) -> tuple[MeasuredCall, ...]:
    """The measured calls of the model, or replays of its CUDA graph.

    Args:
        warm_up: how many calls are left out of a run that the profiler of a GPU has not recorded.

    Raises:
        RunDirError: what that profiler has recorded cannot be read.
    """
    activity = device_activity.read(run.path)
    if activity is None:
        return measured_calls(run, warm_up)
    return tuple(call.measured for call in device_calls(run, activity))
