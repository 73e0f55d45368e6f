"""Calls a package from several threads, and compares each call with the same call alone; which delays show a race."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from aoti_debug.base.abi import CallKind, Level
from aoti_debug.base.errors import UsageError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.processes import python_process
from aoti_debug.compare.bisect.delta_debugging import SetOutcome, smallest
from aoti_debug.compare.diff import thread_races
from aoti_debug.compare.diff.pair_launches import launches_by_call
from aoti_debug.compare.diff.repeated_calls import CallPairs, FirstDifference
from aoti_debug.compare.diff.thread_races import ThreadRace
from aoti_debug.package.launch_traits import writes_shared_memory
from aoti_debug.package.recording_settings import WITH_HASHES
from aoti_debug.runs.run import runner
from aoti_debug.runs.run.options import RunOptions, Shown
from aoti_debug.runs.run.protocol import PRELOADED
from aoti_debug.runs.run.runner import RunResult
from aoti_debug.runs.run.supervise import Observer
from aoti_debug.runs.rundir import threads_json
from aoti_debug.runs.rundir.launch import Launch
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.runs.rundir.run_json import ExitKind
from aoti_debug.runs.rundir.threads_json import Jitter, ThreadCall, ThreadPlan, ThreadsRecord, WeightUpdates

CALLS_OF_A_THREAD = 4  # by default
HANGS_AFTER = 60.0  # seconds without a launch, by default: a deadlock is what threads may end in
_LOOKED_INTO = 16  # wrong calls of which the first launch that differs is found


@dataclass(frozen=True, kw_only=True)
class Way:
    """A way of making the calls.

    Attributes:
        runners: how many calls the loader lets run at once.
    """

    runners: int
    updates: WeightUpdates = WeightUpdates.NONE
    jitter: Jitter | None = None


def ways(threads: int) -> tuple[Way, ...]:
    """Three ways with delays: all threads at once, the same with updates of the weights, and half of them at once."""
    return (
        Way(runners=threads, jitter=Jitter(0)),
        Way(runners=threads, updates=WeightUpdates.EQUAL, jitter=Jitter(1)),
        Way(runners=(threads + 1) // 2, jitter=Jitter(2)),
    )


@dataclass(frozen=True, kw_only=True)
class ThreadsOptions:
    """A package that is called from threads.

    Attributes:
        run: the options of the runs; `calls` is the number of calls of all threads together.
        threads: from 2.
        runners: how many calls the loader lets run at once; None for as many as threads.
        jitter: of the calls from threads.
        further: runs in other ways that are made while no call is wrong.
    """

    run: RunOptions
    threads: int
    runners: int | None = None
    updates: WeightUpdates = WeightUpdates.NONE
    jitter: Jitter | None = None
    further: tuple[Way, ...] = ()


@dataclass(frozen=True)
class WrongCall:
    """A call that returned something else than the same call alone.

    Attributes:
        number: among the calls of all threads, from 0.
        order: among those of its thread, from 0.
        run_call: its number in the run; None if it is not recorded.
        first: the first launch that differs; None if none is known to.
    """

    number: int
    order: int
    call: ThreadCall
    run_call: int | None
    first: FirstDifference | None


@dataclass(frozen=True, kw_only=True)
class DelayedLaunches:
    """The delays that show that calls are wrong.

    Attributes:
        without: runs without delays.
        wrong_without: those of them in which a call was wrong.
        launches: of the smallest set of launches whose delays show it; () if none smaller than all was found that shows
            it more often than no delays.
        memory: perturbed memory is part of that set.
        shown: the runs with delays of this set alone in which a call was wrong.
        tried: all runs with delays of this set alone.
        runs: from threads, all together.
    """

    without: int
    wrong_without: int
    launches: tuple[Launch, ...]
    memory: bool
    shown: int
    tried: int
    runs: int


@dataclass(frozen=True, kw_only=True)
class ThreadedCalls:
    """The calls from threads against those alone.

    Attributes:
        alone: the run of the same calls in one thread.
        together: None if the calls alone have already failed, or were no basis for a comparison and write nothing
            that calls share.
        record: of the calls from threads, or of those alone where these are all, or were no basis for a comparison.
        unrepeatable: alone, the calls that differ from an earlier one with the same inputs.
        wrong: in the order of calls.
        runs: from threads; all but the last one had no wrong call.
        way: in which the calls of the last one were made.
        delays: what delays have to do with it; None where there were none, or nothing is wrong.
        races: of the calls from threads, by the memory of their launches: those without doubt first.
    """

    alone: RunResult
    together: RunResult | None
    record: ThreadsRecord | None
    unrepeatable: tuple[int, ...] = ()
    wrong: tuple[WrongCall, ...] = ()
    runs: int = 1
    way: Way | None = None
    delays: DelayedLaunches | None = None
    races: tuple[ThreadRace, ...] = ()

    @property
    def is_racing(self) -> bool:
        """True if there is a race without doubt."""
        return _is_racing(self.races)

    @property
    def result(self) -> RunResult:
        """The run that counts: from threads if there is one."""
        return self.alone if self.together is None else self.together


class ThreadSession:
    """Runs of the same calls, each in a process of its own: alone, then from threads, as often as is asked for.

    Attributes:
        alone: the run of all calls in one thread.
        record: of that run.
        runs: how many there were from threads.
    """

    def __init__(self, options: ThreadsOptions, folder: Path, observer: Observer | None) -> None:
        """Makes the calls alone.

        Args:
            folder: for what the calls are expected to return.

        Raises:
            UsageError: an option is wrong.
            ArtifactError, ToolchainError, TargetError, RunDirError: as of `runner.run`.
        """
        check(options)
        self._observer = observer
        self._run = options.run if options.run.stall is not None else replace(options.run, stall=HANGS_AFTER)
        self._plan = ThreadPlan(
            threads=options.threads,
            runners=options.runners or options.threads,
            sets=min(options.threads, options.run.calls),
            updates=options.updates,
            expected=str(folder / "expected.pt"),
        )
        self.alone = self._called_alone()
        if self.alone.verdict is not None and self._plan.sets > 1:  # it may not take other inputs than the given ones
            self._plan = replace(self._plan, sets=1)
            self.alone = self._called_alone()
        self.record = threads_json.read(self.alone.run.path)
        self.runs = 0

    def _called_alone(self) -> RunResult:
        plan = replace(self._plan, threads=1, updates=WeightUpdates.NONE)
        return runner.run(replace(self._run, threads=plan), self._observer)

    def unrepeatable(self) -> tuple[int, ...]:
        """The calls alone that differ from an earlier one with the same inputs."""
        calls = () if self.record is None else self.record.calls
        return tuple(number for number, call in enumerate(calls) if call.state.is_wrong)

    def called(self, jitter: Jitter | None = None) -> RunResult:
        """The calls from threads, as the options say but for the delays.

        Raises:
            ArtifactError, TargetError, RunDirError: as of `runner.run`.
        """
        return self.called_as(Way(runners=self._plan.runners, updates=self._plan.updates, jitter=jitter))

    def called_as(self, way: Way) -> RunResult:
        """The calls from threads in another way.

        Raises:
            ArtifactError, TargetError, RunDirError: as of `runner.run`.
        """
        self.runs += 1
        plan = replace(self._plan, runners=way.runners, updates=way.updates, jitter=way.jitter)
        return runner.run(replace(self._run, threads=plan), self._observer)


def is_wrong(result: RunResult) -> bool:
    """True if a call of a run from threads differs from the same call alone, or the run has failed."""
    record = threads_json.read(result.run.path)
    return result.verdict is not None or (record is not None and any(call.state.is_wrong for call in record.calls))


def check(options: ThreadsOptions) -> None:
    """Validates the options.

    Raises:
        UsageError: one is wrong, or excludes another.
    """
    if options.threads < 2:
        raise UsageError(f"--threads {options.threads} is less than 2", hint="--threads 4 calls from four threads")
    if options.runners is not None and options.runners < 1:
        raise UsageError(f"--runners {options.runners} is less than 1", hint="--runners takes a number from 1")


def compared(alone: RunResult, together: RunResult) -> ThreadedCalls:
    """Compares the calls of two runs.

    Raises:
        RunDirError: a record of one of them is damaged.
    """
    record = threads_json.read(together.run.path)
    if record is None:
        return ThreadedCalls(alone=alone, together=together, record=None)
    wrong = _wrong_calls(alone.run, together.run, record)
    return ThreadedCalls(alone=alone, together=together, record=record, wrong=wrong)


def _wrong_calls(alone: RunDir, together: RunDir, record: ThreadsRecord) -> tuple[WrongCall, ...]:
    numbers = list(record.numbers(together.timeline.calls))
    pairs = CallPairs(alone, together)
    first, second = launches_by_call(alone), launches_by_call(together)
    orders: dict[int, int] = {}
    found: list[WrongCall] = []
    for number, (call, run_call) in enumerate(zip(record.calls, numbers, strict=True)):
        order = orders[call.thread] = orders.get(call.thread, -1) + 1
        if not call.state.is_wrong:
            continue
        difference = None
        if run_call is not None and len(found) < _LOOKED_INTO:
            launches = (first.get((CallKind.MODEL, number), []), second.get((CallKind.MODEL, run_call), []))
            difference = pairs.first_difference(*launches)
        found.append(WrongCall(number, order, call, run_call, difference))
    return tuple(found)


def recorded_by_default(options: RunOptions) -> RunOptions:
    """The options at the level that says which launch differs first, if they name none."""
    level = Level.HASH.value if options.level is None else options.level
    phase = "both" if level in WITH_HASHES and options.phase is None else options.phase
    return replace(options, level=level, phase=phase, shown=Shown.NOTHING)


MEMORY = -1  # as the number of a launch: perturbed memory
TRIES = 3  # runs of a set of delays
NEEDED = 2  # of these in which a call is wrong: one may be wrong without the delays
_CONFIRMING = 10  # runs of the smallest set, and without delays
_MOST_RUNS = 90  # of the search


def call_from_threads(options: ThreadsOptions, observer: Observer | None = None) -> ThreadedCalls:
    """Runs a package twice, each time in a process of its own: all calls in one thread, then in several.

    With delays, if a call is wrong: further runs without delays, and with those of some launches only.

    Raises:
        UsageError: an option is wrong.
        ArtifactError, ToolchainError, TargetError, RunDirError: as of `runner.run`.
    """
    forking = python_process.forking_from(PRELOADED, options.run.user_code.imports)
    with tempfile.TemporaryDirectory() as folder, forking as server:
        server.preload()
        session = ThreadSession(options, Path(folder), observer)
        changed = session.unrepeatable()
        chosen = Way(runners=options.runners or options.threads, updates=options.updates, jitter=options.jitter)
        if session.record is None or changed or session.alone.run.state is not ExitKind.CLEAN:
            alone = ThreadedCalls(alone=session.alone, together=None, record=session.record, unrepeatable=changed)
            return _with_races(alone, session, chosen) if changed else alone
        racing = None  # the first way with a race, which is told if no way gives a wrong output
        for way in (chosen, *options.further):
            together = session.called_as(way)
            races = thread_races.find(together.run)
            if is_wrong(together):
                break
            if racing is None and _is_racing(races):
                racing = way, together, races
        else:
            way, together, races = racing or (way, together, races)
        found = replace(compared(session.alone, together), runs=session.runs, way=way, races=races)
        if options.jitter is None or not is_wrong(together):
            return found
        return replace(found, delays=_delays(session, options.jitter, together))


def _is_racing(races: Sequence[ThreadRace]) -> bool:
    return any(not race.doubt for race in races)


def _with_races(alone: ThreadedCalls, session: ThreadSession, way: Way) -> ThreadedCalls:
    """The races of calls that cannot be compared, if they write to what they share."""
    if session.alone.run.state is not ExitKind.CLEAN or not writes_shared_memory(session.alone.run.manifest):
        return alone
    together = session.called_as(way)
    return replace(alone, together=together, way=way, races=thread_races.find(together.run))


def _delays(session: ThreadSession, jitter: Jitter, together: RunResult) -> DelayedLaunches:
    """The delays that show it, by more runs; a smallest set is kept if it shows it more often than no delays."""
    without = [is_wrong(session.called()) for _ in range(TRIES)]
    shown: list[bool] = []
    numbers: tuple[int, ...] = ()
    if sum(without) < NEEDED:
        search = DelaySearch(lambda chosen: is_wrong(session.called(_only(jitter.seed, chosen))))
        numbers = search.smallest((MEMORY, *range(_launches_of_a_call(together))))
    if numbers:
        without += [is_wrong(session.called()) for _ in range(_CONFIRMING - TRIES)]
        shown = [is_wrong(session.called(_only(jitter.seed, numbers))) for _ in range(_CONFIRMING)]
    launches = {launch.key.launch: launch for launch in session.alone.run.launches if launch.key.call == 0}
    is_confirmed = sum(shown) > sum(without)
    return DelayedLaunches(
        without=len(without),
        wrong_without=sum(without),
        launches=tuple(launches[number] for number in numbers if number in launches and is_confirmed),
        memory=MEMORY in numbers and is_confirmed,
        shown=sum(shown),
        tried=len(shown),
        runs=session.runs,
    )


def _only(seed: int, parts: tuple[int, ...]) -> Jitter:
    """Delays before some launches, by their numbers in a call; perturbed memory if MEMORY is one of these."""
    return Jitter(seed, tuple(part for part in parts if part != MEMORY), memory=MEMORY in parts)


def _launches_of_a_call(result: RunResult) -> int:
    """The number of launches of the longest call of a model."""
    keys = (launch.key for launch in result.run.launches if launch.key.kind is CallKind.MODEL)
    return max((key.launch + 1 for key in keys), default=0)


class DelaySearch:
    """Searches the smallest set of launches whose delays show that calls are wrong.

    Attributes:
        counts: of each set that was tried, the runs that showed it, and all of them.
    """

    def __init__(self, shows: Callable[[tuple[int, ...]], bool]) -> None:
        """`shows`: runs the calls with delays before launches of these numbers, or MEMORY; True if a call is wrong."""
        self._shows = shows
        self._runs = 0
        self.counts: dict[tuple[int, ...], tuple[int, int]] = {}

    def smallest(self, numbers: Sequence[int]) -> tuple[int, ...]:
        """The smallest set that shows it; () if none that was tried does, or only the set of all launches."""
        found = smallest(tuple(numbers), self._outcome)
        return found if len(found) < len(numbers) else ()

    def _outcome(self, chosen: tuple[int, ...]) -> SetOutcome:
        """Whether calls are wrong with these delays; if that was not seen, more runs may show it: parts are tried."""
        shown = 0
        for tried in range(1, TRIES + 1):
            if self._runs >= _MOST_RUNS:
                break
            self._runs += 1
            shown += self._shows(chosen)
            self.counts[chosen] = (shown, tried)
            if shown >= NEEDED:
                return SetOutcome.YES
            if shown + TRIES - tried < NEEDED:
                break
        return SetOutcome.UNKNOWN
