"""The calls of a run, each taken apart into its launches and the time between them; the cost of measuring them."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from aoti_debug.base.abi import CallKind
from aoti_debug.base.frozen import dataclass
from aoti_debug.runs.rundir.device_activity import DeviceActivity
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.runs.rundir.timeline import Launch, ModelCall


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


@dataclass(frozen=True)
class MeasuredCall:
    """A call of the model, or a replay of its CUDA graph.

    Attributes:
        call: its number in the run, or that of the replay, from 1.
        wall_ns: from its beginning to its end, nanoseconds.
        launches_ns: nanoseconds within the launches of each site, by the site's id, without launches within them.
        counts: the number of launches of each site.
        replay_of: the call that the graph captured; None for a call.
    """

    call: int
    wall_ns: int
    launches_ns: Mapping[int, int]
    counts: Mapping[int, int]
    replay_of: int | None = None

    @property
    def recorded_call(self) -> int:
        """The number of the call whose launches the run has recorded."""
        return self.call if self.replay_of is None else self.replay_of

    @property
    def gaps_ns(self) -> int:
        """Nanoseconds in which no launch was going on."""
        return self.wall_ns - sum(self.launches_ns.values())


def measured_calls(run: RunDir, warm_up: int) -> tuple[MeasuredCall, ...]:
    """The calls of the model that returned, without the first ones.

    Args:
        warm_up: how many calls are left out.
    """
    by_call: dict[int, list[Launch]] = defaultdict(list)
    for launch in run.launches:
        if launch.key.kind is CallKind.MODEL:
            by_call[launch.key.call].append(launch)
    return tuple(_measured(call, by_call[call.call]) for call in complete_calls(run) if call.call >= warm_up)


def complete_calls(run: RunDir) -> Iterator[ModelCall]:
    """Yields the calls of the model that returned without a fault."""
    for call in run.timeline.calls:
        if call.kind is CallKind.MODEL and call.end_ns is not None and not call.failed and not call.capturing:
            yield call


def _measured(call: ModelCall, launches: Sequence[Launch]) -> MeasuredCall:
    assert call.end_ns is not None
    times: dict[int, int] = defaultdict(int)
    counts: dict[int, int] = defaultdict(int)
    for launch, nanoseconds in _own_times(launches):
        times[launch.site.id] += nanoseconds
        counts[launch.site.id] += 1
    return MeasuredCall(call.call, call.end_ns - call.begin_ns, dict(times), dict(counts))


def _own_times(launches: Iterable[Launch]) -> Iterator[tuple[Launch, int]]:
    """Yields each launch that ended with its nanoseconds; those of a launch within another one count once."""
    within: list[tuple[Launch, int]] = []  # launches that go on, the innermost last, with the time of those within
    for launch in sorted(launches, key=lambda launch: launch.begin_ns):
        if launch.end_ns is None:
            continue
        yield from _ended(within, launch.begin_ns)
        within.append((launch, 0))
    yield from _ended(within, None)


def _ended(within: list[tuple[Launch, int]], now_ns: int | None) -> Iterator[tuple[Launch, int]]:
    """Takes the launches that have ended by a time from the list; all for None."""
    while within and (now_ns is None or _end(within[-1][0]) <= now_ns):
        launch, inner_ns = within.pop()
        whole_ns = _end(launch) - launch.begin_ns
        yield launch, whole_ns - inner_ns
        if within:
            outer, known_ns = within[-1]
            within[-1] = (outer, known_ns + whole_ns)


def _end(launch: Launch) -> int:
    assert launch.end_ns is not None
    return launch.end_ns
