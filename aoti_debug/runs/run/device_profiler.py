"""Calls of a model on a GPU under torch's profiler, or replays of a CUDA graph that captures one, in their process."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

from aoti_debug.base import wording
from aoti_debug.base.errors import UsageError
from aoti_debug.base.frozen import dataclass
from aoti_debug.runs.rundir import device_activity
from aoti_debug.runs.rundir.device_activity import Activity, DeviceActivity, Enqueued
from aoti_debug.runs.rundir.run_json import CallPurpose

Announce = Callable[[CallPurpose, int], None]

_UNPROFILED = 20  # calls, or replays, without the profiler, at most
_FOLLOWING = 10  # replays that follow one another
_TRIED_FROM = 100  # calls, from which on one is recorded alone first
_ON_DEVICE = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
_ON_HOST = frozenset({"cuda_runtime", "cuda_driver"})
_REPLAY = "GraphLaunch"


class MeasuringError(UsageError):
    """A model that cannot be measured on a GPU; its class alone tells the hint, also in another process.

    Attributes:
        advice: the hint.
    """

    advice: ClassVar[str]

    def __init__(self, message: str) -> None:
        super().__init__(message, hint=self.advice)


class CaptureError(MeasuringError):
    """A call that no CUDA graph can capture."""

    advice = "without --cuda-graph its calls are measured"


class NoWorkError(MeasuringError):
    """A profiler that records no work of the GPU."""

    advice = "another profiler may have it: end nsys, ncu or dcgm, or run without them"


class TooMuchWorkError(MeasuringError):
    """More work of the GPU than device_activity.json holds."""

    advice = "--calls N measures fewer"


MEASURING_ERRORS = {cls.__name__: cls for cls in (CaptureError, NoWorkError, TooMuchWorkError)}


@dataclass(frozen=True)
class DeviceTimes:
    """The choice of what is measured on a GPU.

    Attributes:
        warm_up: how many calls are made before any time is taken.
        replays: measure replays of a CUDA graph instead of calls.
    """

    warm_up: int
    replays: bool = False


def is_available() -> bool:
    """True if torch's profiler can record the work of a GPU."""
    import torch

    return torch.profiler.ProfilerActivity.CUDA in torch.profiler.supported_activities()


def measure(call: Callable[[], Any], chosen: DeviceTimes, calls: int, run: Path, announce: Announce) -> None:
    """Measures calls or replays, and writes the work of the GPU into the run directory.

    Args:
        call: calls the model.
        calls: how many calls or replays are measured.
        announce: is told, before some calls of the model, what they are for and how many they are.

    Raises:
        CaptureError: a CUDA graph cannot capture the call.
        NoWorkError: torch's profiler records no work of the GPU.
        TooMuchWorkError: it would record, or has recorded, more than the file holds.
    """
    work = _measure_replays if chosen.replays else _measure_calls
    measured = work(call, chosen, calls, announce)
    if not measured.activities:
        raise NoWorkError("torch's profiler has recorded no work of the GPU")
    _check_amount(len(measured.activities), calls)
    device_activity.write(measured, run)


def _measure_calls(call: Callable[[], Any], chosen: DeviceTimes, calls: int, announce: Announce) -> DeviceActivity:
    announce(CallPurpose.WARM_UP, chosen.warm_up)
    for _ in range(chosen.warm_up):
        call()
    _try(call, calls, announce)
    count = min(calls, _UNPROFILED)
    announce(CallPurpose.UNPROFILED, count)
    unprofiled = _seconds(call, count)
    announce(CallPurpose.ASKED, calls)
    profiler = _profiler()
    with profiler:
        profiled = _seconds(call, calls)
    return _recorded(profiler, unprofiled, profiled)


def _measure_replays(call: Callable[[], Any], chosen: DeviceTimes, calls: int, announce: Announce) -> DeviceActivity:
    _try(call, calls, announce)
    graph = _captured(call, chosen.warm_up, announce)
    count = min(calls, _UNPROFILED)

    def following() -> None:
        for _ in range(_FOLLOWING):
            graph.replay()

    unprofiled = _seconds(graph.replay, count)
    back_to_back = tuple(seconds / _FOLLOWING for seconds in _seconds(following, count))
    profiler = _profiler()
    announce(CallPurpose.ATTRIBUTED, 1)
    with profiler:
        _seconds(call, 1)
        profiled = _seconds(graph.replay, calls)
    return _recorded(profiler, unprofiled, profiled, back_to_back)


def _try(call: Callable[[], Any], calls: int, announce: Announce) -> None:
    """Records one call before many, to see how much work of the GPU all of them are.

    Raises:
        TooMuchWorkError: it is more than the file holds.
    """
    if calls < _TRIED_FROM:
        return
    announce(CallPurpose.SIZED, 1)
    profiler = _profiler()
    with profiler:
        seconds = _seconds(call, 1)
    _check_amount(len(_recorded(profiler, seconds, seconds).activities) * calls, calls)


def _check_amount(amount: int, calls: int) -> None:
    if amount > device_activity.MAX_ACTIVITIES:
        raise TooMuchWorkError(
            f"the GPU runs about {amount} kernels, copies and fills in {calls} calls: "
            f"more than the {device_activity.MAX_ACTIVITIES} that can be recorded"
        )


def _captured(call: Callable[[], Any], warm_up: int, announce: Announce) -> Any:
    """A CUDA graph of a call, after some others on the same stream."""
    import torch

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    before = max(warm_up, 1)
    announce(CallPurpose.WARM_UP, before)
    with torch.cuda.stream(stream):
        for _ in range(before):
            call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    announce(CallPurpose.CAPTURED, 1)
    try:
        with torch.cuda.graph(graph, stream=stream):
            call()
    except Exception as error:  # of any kind: torch's, or one of the model's own
        first: BaseException = error
        while first.__context__ is not None:
            first = first.__context__
        raise CaptureError(
            f"a CUDA graph cannot capture it: {wording.first_line(str(first)) or type(first).__name__}"
        ) from error
    return graph


def _seconds(work: Callable[[], Any], count: int) -> tuple[float, ...]:
    """Seconds of each of several calls, until the GPU has completed it."""
    import torch

    found = []
    torch.cuda.synchronize()
    for _ in range(count):
        began = time.perf_counter()
        work()
        torch.cuda.synchronize()
        found.append(time.perf_counter() - began)
    return tuple(found)


def _profiler() -> Any:
    import torch

    return torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA], acc_events=True)


def _recorded(
    profiler: Any,
    unprofiled: tuple[float, ...],
    profiled: tuple[float, ...],
    back_to_back: tuple[float, ...] = (),
) -> DeviceActivity:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        trace = json.loads(path.read_bytes())
    enqueued, activities = from_trace(trace)
    return DeviceActivity(enqueued, activities, unprofiled, profiled, back_to_back)


def from_trace(trace: dict[str, Any]) -> tuple[tuple[Enqueued, ...], tuple[Activity, ...]]:
    """The work of the GPU in a trace of torch's profiler, and what enqueued it, each in order of time."""
    base = int(trace.get("baseTimeNanoseconds", 0))
    complete = [event for event in trace["traceEvents"] if event.get("ph") == "X" and "correlation" in _args(event)]
    activities = sorted(_activities(complete, base), key=lambda one: one.begin_ns)
    known = {activity.correlation for activity in activities}
    enqueued = sorted(_enqueued(complete, base, known), key=lambda one: one.begin_ns)
    return tuple(enqueued), tuple(activities)


def _activities(events: Iterable[dict[str, Any]], base: int) -> Iterable[Activity]:
    for event in events:
        if event.get("cat") in _ON_DEVICE:
            args = _args(event)
            begin, end = _times(event, base)
            yield Activity(event["name"], int(args.get("stream", 0)), int(args["correlation"]), begin, end - begin)


def _enqueued(events: Iterable[dict[str, Any]], base: int, known: set[int]) -> Iterable[Enqueued]:
    for event in events:
        correlation = int(_args(event)["correlation"])
        if event.get("cat") in _ON_HOST and correlation in known:
            yield Enqueued(correlation, *_times(event, base), replays=_REPLAY in event["name"])


def _args(event: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = event.get("args", {})
    return found


def _times(event: dict[str, Any], base: int) -> tuple[int, int]:
    """The beginning and the end of an event, in nanoseconds since 1970; a trace has microseconds."""
    begin = base + round(event["ts"] * 1000)
    return begin, begin + round(event["dur"] * 1000)
