"""The measured calls of a model, taken apart into launches and the time between them; on a GPU its work as well."""

from __future__ import annotations

import shlex
import statistics
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from difflib import SequenceMatcher
from functools import cached_property
from pathlib import Path

from aoti_debug.base.abi import CallKind
from aoti_debug.base.errors import RunDirError
from aoti_debug.base.frozen import dataclass
from aoti_debug.runs.diagnosis import suggested_commands
from aoti_debug.runs.rundir.device_activity import Activity, DeviceActivity
from aoti_debug.runs.rundir.formats.journal import WallClock
from aoti_debug.runs.rundir.launch import Launch, ModelCall
from aoti_debug.runs.rundir.run_directory import RunDir


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


_OURS = "aoti_debug_"  # the names of kernels that are not the model's begin with this
_BEGIN = "aoti_debug_begin_replay"
_FILL = "Memset"


@dataclass(frozen=True)
class DeviceWork:
    """A kernel, a copy or a fill.

    Attributes:
        launch: that enqueued it; None if it was enqueued between launches.
        own_ns: nanoseconds in which no work was going on that had begun earlier.
    """

    activity: Activity
    launch: Launch | None
    own_ns: int


@dataclass(frozen=True)
class DeviceCall:
    """A call of the model, or a replay of its CUDA graph.

    Attributes:
        number: of the call in the run, or of the replay, from 1.
        begin_ns, end_ns: nanoseconds since 1970.
        works: in order of time.
        launches: of the call, or of the one that the graph captured.
        host_ns: nanoseconds of launches that gave the GPU no work, while it did none, by site.
        replay_of: the call that the graph captured; None for a call.
    """

    number: int
    begin_ns: int
    end_ns: int
    works: tuple[DeviceWork, ...]
    launches: tuple[Launch, ...]
    host_ns: Mapping[int, int] = field(default_factory=dict)
    replay_of: int | None = None

    @cached_property
    def measured(self) -> MeasuredCall:
        """Its launches and the time between them."""
        counts = Counter(launch.site.id for launch in self.launches)
        times = dict.fromkeys(counts, 0)
        for work in self.works:
            if work.launch is not None:
                times[work.launch.site.id] += work.own_ns
        for site, nanoseconds in self.host_ns.items():
            times[site] += nanoseconds
        return MeasuredCall(self.number, self.end_ns - self.begin_ns, times, dict(counts), self.replay_of)


def device_calls(run: RunDir, activity: DeviceActivity) -> tuple[DeviceCall, ...]:
    """The calls, or replays, that the profiler has recorded.

    Raises:
        RunDirError: they cannot be told from its records.
    """
    calls = _calls(run, activity)
    replays = [one.correlation for one in activity.enqueued if one.replays]
    if not replays:
        return calls
    captured = [call for call in run.timeline.calls if call.capturing and call.kind is CallKind.MODEL]
    if not calls or not captured:
        raise RunDirError(
            f"run {run.path.name} has no call that its CUDA graph can be compared with", hint="run the profile again"
        )
    return _replays(calls[-1], captured[-1], run, activity, replays)


def _program(run: RunDir) -> str:
    """The program that the package of a run takes weights from, as a word of a command; else what stands for it."""
    file = run.manifest.weights or run.manifest.program
    return "PROGRAM.pt2" if file is None else shlex.quote(suggested_commands.word_of(Path(file.path)))


def _calls(run: RunDir, activity: DeviceActivity) -> tuple[DeviceCall, ...]:
    if run.journal is None:
        return ()
    complete = list(complete_calls(run))
    clock = WallClock(run.journal)
    if complete and not clock.is_recorded:
        name = "the package" if run.package is None else run.package.name
        raise RunDirError(
            f"{name} was built by an older aoti-debug: run {run.path.name} has no records of the wall clock, without "
            "which the launch of a kernel is not known",
            hint=f"build it again: aoti-debug build {_program(run)}",
        )
    by_call: dict[int, list[Launch]] = defaultdict(list)
    for launch in run.launches:
        if launch.key.kind is CallKind.MODEL and launch.end_ns is not None:
            by_call[launch.key.call].append(launch)
    hosts = {one.correlation: (one.begin_ns + one.end_ns) // 2 for one in activity.enqueued if not one.replays}
    times = sorted((middle, correlation) for correlation, middle in hosts.items())
    by_correlation = _by_correlation(activity.activities)
    found = []
    for call in complete:
        begin, end = clock.unix_ns(call.begin_ns), clock.unix_ns(call.end_ns or call.begin_ns)
        inside = times[bisect_left(times, (begin, 0)) : bisect_right(times, (end, 0))]
        if inside:
            launches = sorted(by_call[call.call], key=lambda launch: launch.begin_ns)
            owners = dict(_owners(launches, inside, clock))
            found.append(_call(call, (begin, end), launches, owners, by_correlation, clock))
    return tuple(found)


def _by_correlation(activities: Iterable[Activity]) -> dict[int, list[Activity]]:
    found: dict[int, list[Activity]] = defaultdict(list)
    for one in activities:
        found[one.correlation].append(one)
    return found


def _call(
    call: ModelCall,
    span: tuple[int, int],
    launches: Sequence[Launch],
    owners: Mapping[int, Launch | None],
    by_correlation: Mapping[int, Sequence[Activity]],
    clock: WallClock,
) -> DeviceCall:
    """A call; `owners` has the launch of each correlation."""
    mine = [one for correlation in owners for one in by_correlation.get(correlation, ())]
    mine.sort(key=lambda one: one.begin_ns)
    works = tuple(_works((one, owners[one.correlation]) for one in mine))
    host = _host_times(launches, works, clock)
    end = max(span[1], max((work.activity.end_ns for work in works), default=0))
    return DeviceCall(call.call, span[0], end, works, tuple(launches), host)


def _owners(
    launches: Sequence[Launch], times: Iterable[tuple[int, int]], clock: WallClock
) -> Iterator[tuple[int, Launch | None]]:
    """Yields the correlation of each time, with the innermost launch that was going on; both are in order of time."""
    open_: list[tuple[int, Launch]] = []  # with the ends, the innermost last
    following = iter([(clock.unix_ns(one.begin_ns), clock.unix_ns(one.end_ns or 0), one) for one in launches])
    next_ = next(following, None)
    for time, correlation in times:
        while next_ is not None and next_[0] <= time:
            open_.append((next_[1], next_[2]))
            next_ = next(following, None)
        while open_ and open_[-1][0] < time:
            open_.pop()
        yield correlation, open_[-1][1] if open_ else None


def _works(owned: Iterable[tuple[Activity, Launch | None]]) -> Iterator[DeviceWork]:
    """Yields work in order of time; where it overlaps, the time counts for what began first."""
    busy_until = 0
    for activity, launch in owned:
        own = max(activity.end_ns - max(activity.begin_ns, busy_until), 0)
        busy_until = max(busy_until, activity.end_ns)
        yield DeviceWork(activity, launch, own)


def _host_times(launches: Sequence[Launch], works: Sequence[DeviceWork], clock: WallClock) -> dict[int, int]:
    """The time that launches without work on the GPU took on the host, by site, without that in which it worked."""
    with_work = {work.launch.key for work in works if work.launch is not None}
    busy = [(work.activity.end_ns - work.own_ns, work.activity.end_ns) for work in works if work.own_ns]
    ends = [end for _, end in busy]
    found: dict[int, int] = defaultdict(int)
    counted_until = 0  # a launch within another one counts once
    for launch in launches:
        begin, end = clock.unix_ns(launch.begin_ns), clock.unix_ns(launch.end_ns or launch.begin_ns)
        begin = max(begin, counted_until)
        if launch.key in with_work or end <= begin:
            continue
        counted_until = end
        worked = 0
        for busy_begin, busy_end in busy[bisect_left(ends, begin) :]:
            if busy_begin >= end:
                break
            worked += max(min(busy_end, end) - max(busy_begin, begin), 0)
        found[launch.site.id] += max(end - begin - worked, 0)
    return dict(found)


def _replays(
    reference: DeviceCall, captured: ModelCall, run: RunDir, activity: DeviceActivity, correlations: Sequence[int]
) -> tuple[DeviceCall, ...]:
    """The replays; which launch a kernel belongs to is known of a call, which runs the same ones in the same order.

    Args:
        reference: a call of the same process.
        correlations: of the replays, in order of time.
    """
    launches = tuple(one for one in run.launches if one.key.kind is CallKind.MODEL and one.key.call == captured.call)
    by_number = {launch.key.launch: launch for launch in launches}
    expected = [
        (work.activity.name, None if work.launch is None else by_number.get(work.launch.key.launch))
        for work in reference.works
        if not work.activity.name.startswith(_OURS)
    ]
    by_correlation = _by_correlation(activity.activities)
    known: dict[tuple[str, ...], list[Launch | None]] = {}
    found = []
    for number, correlation in enumerate(correlations, 1):
        whole = by_correlation.get(correlation, [])
        ran = [one for one in whole if not one.name.startswith(_OURS)]
        has_breadcrumb = any(one.name.startswith(_BEGIN) for one in whole)  # which comes with one of the whole call
        if has_breadcrumb and len(ran) != len(expected) and ran and ran[-1].name.startswith(_FILL):
            ran = ran[:-1]
        names = tuple(one.name for one in ran)
        if names not in known:
            known[names] = _owners_in_replay(expected, names)
        owned = list(zip(ran, known[names], strict=True))
        while owned and owned[-1][1] is None:
            owned.pop()
        if not owned:
            raise RunDirError(f"a replay in run {run.path.name} ran no kernel of a launch", hint="run it again")
        end = max(one.end_ns for one, _ in owned)
        works = tuple(_works(owned))
        found.append(DeviceCall(number, owned[0][0].begin_ns, end, works, launches, {}, captured.call))
    return tuple(found)


def _owners_in_replay(expected: Sequence[tuple[str, Launch | None]], names: Sequence[str]) -> list[Launch | None]:
    """The launch of each kernel of a replay.

    Raises:
        RunDirError: the graph runs other kernels than the call, and it is not clear for which launches.
    """
    if [name for name, _ in expected] == list(names):
        return [launch for _, launch in expected]
    owners: list[Launch | None] = [None] * len(names)
    matcher = SequenceMatcher(None, [name for name, _ in expected], names, autojunk=False)
    for kind, first, last, begin, end in matcher.get_opcodes():
        launches = [launch for _, launch in expected[first:last]]
        if kind == "equal" or (kind == "replace" and len(launches) == end - begin):
            owners[begin:end] = launches
        elif kind == "replace" and all(launch is launches[0] for launch in launches):
            owners[begin:end] = [launches[0]] * (end - begin)
        elif kind == "replace":
            kernels = ", ".join(names[begin:end][:3])
            raise RunDirError(
                f"the CUDA graph runs other kernels than a call of the model does, and it is not clear for which "
                f"launches: {kernels}",
                hint="without --cuda-graph its calls are measured",
            )
    return owners
