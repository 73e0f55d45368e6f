"""The work of a GPU during the calls of a run, as its own profiler recorded it: device_activity.json in the run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.files import atomic_write, json_data
from aoti_debug.base.machine.files.json_data import DamagedJsonError

NAME = "device_activity.json"
MAX_ACTIVITIES = 500_000  # kernels, copies and fills in a file: with what enqueued them, less than the largest JSON
_LARGEST = 1 << 63  # what any number is below


@dataclass(frozen=True)
class Enqueued:
    """A call on the host that gives the GPU work: a launch of a kernel, a copy, a fill, or the replay of a graph.

    Attributes:
        correlation: the number that it has in common with the work.
        begin_ns, end_ns: nanoseconds since 1970.
        replays: True if it replays a CUDA graph.
    """

    correlation: int
    begin_ns: int
    end_ns: int
    replays: bool = False


@dataclass(frozen=True)
class Activity:
    """A kernel, a copy or a fill on the GPU.

    Attributes:
        correlation: of what enqueued it; all work of a replay has the replay's.
        begin_ns: nanoseconds since 1970, by the clock of the host.
    """

    name: str
    stream: int
    correlation: int
    begin_ns: int
    duration_ns: int

    @property
    def end_ns(self) -> int:
        """Nanoseconds since 1970."""
        return self.begin_ns + self.duration_ns


@dataclass(frozen=True)
class DeviceActivity:
    """The work of a GPU during calls of the model, and during replays of a CUDA graph.

    Attributes:
        enqueued: in order of time.
        activities: in order of time.
        unprofiled: seconds of calls, or replays, without the profiler, each until the GPU has completed it.
        profiled: the same with it.
        back_to_back: seconds of a replay without the profiler, where replays follow one another.
    """

    enqueued: tuple[Enqueued, ...]
    activities: tuple[Activity, ...]
    unprofiled: tuple[float, ...]
    profiled: tuple[float, ...]
    back_to_back: tuple[float, ...] = ()


@dataclass(frozen=True)
class _File:
    """The content of the file: rows, since there may be a million.

    Attributes:
        begin_ns: that other times count from.
        names: of activities, each once.
        enqueued: correlation, beginning, duration, and 1 for a replay.
        activities: index of the name, stream, correlation, beginning, duration.
    """

    begin_ns: int
    names: tuple[str, ...]
    enqueued: tuple[tuple[int, int, int, int], ...]
    activities: tuple[tuple[int, int, int, int, int], ...]
    unprofiled: tuple[float, ...]
    profiled: tuple[float, ...]
    back_to_back: tuple[float, ...]


def write(activity: DeviceActivity, run: Path) -> None:
    """Writes the file into a run directory."""
    begins = [one.begin_ns for one in activity.enqueued] + [one.begin_ns for one in activity.activities]
    begin = min(begins, default=0)
    names = {name: index for index, name in enumerate(dict.fromkeys(one.name for one in activity.activities))}
    content = _File(
        begin,
        tuple(names),
        tuple(
            (one.correlation, one.begin_ns - begin, one.end_ns - one.begin_ns, int(one.replays))
            for one in activity.enqueued
        ),
        tuple(
            (names[one.name], one.stream, one.correlation, one.begin_ns - begin, one.duration_ns)
            for one in activity.activities
        ),
        activity.unprofiled,
        activity.profiled,
        activity.back_to_back,
    )
    atomic_write.write(run / NAME, json_data.to_text(content, indent=None) + "\n")


def read(run: Path) -> DeviceActivity | None:
    """Reads the file of a run directory; None if there is none.

    Raises:
        RunDirError: it is damaged, or cannot be read.
    """
    try:
        return json_data.read_file(run, NAME, _read, hint="run the package again")
    except FileNotFoundError:
        return None


def _read(data: Mapping[str, Any]) -> DeviceActivity:
    """The content of the parsed file.

    Raises:
        DamagedJsonError: it is malformed.
    """
    content = json_data.from_data(_File, data)
    _check(content)
    return _activity(content)


def _check(content: _File) -> None:
    """Checks what the types of the content leave open.

    Raises:
        DamagedJsonError: there are no times, or a number or an index is out of range.
    """
    for what, times in (("unprofiled", content.unprofiled), ("profiled", content.profiled)):
        if not times:
            raise DamagedJsonError(f"{what} is empty")
    if any(seconds < 0 for seconds in (*content.unprofiled, *content.profiled, *content.back_to_back)):
        raise DamagedJsonError("a time is negative")
    rows: tuple[tuple[str, Sequence[tuple[int, ...]]], ...] = (
        ("begin_ns", [(content.begin_ns,)]),
        ("enqueued", content.enqueued),
        ("activities", content.activities),
    )
    for what, numbers in rows:
        if any(min(row) < 0 or max(row) >= _LARGEST for row in numbers):
            raise DamagedJsonError(f"{what} has a number that is negative or too large")
    if any(name >= len(content.names) for name, *_ in content.activities):
        raise DamagedJsonError("activities has a name that is not in names")


def _activity(content: _File) -> DeviceActivity:
    start = content.begin_ns
    enqueued = (
        Enqueued(correlation, start + begin, start + begin + duration, bool(replays))
        for correlation, begin, duration, replays in content.enqueued
    )
    activities = (
        Activity(content.names[name], stream, correlation, start + begin, duration)
        for name, stream, correlation, begin, duration in content.activities
    )
    return DeviceActivity(
        tuple(sorted(enqueued, key=lambda one: one.begin_ns)),
        tuple(sorted(activities, key=lambda one: one.begin_ns)),
        content.unprofiled,
        content.profiled,
        content.back_to_back,
    )
