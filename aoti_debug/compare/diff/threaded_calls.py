"""Calls a package from several threads, and compares each call with the same call alone."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

from aoti_debug.base.abi import CallKind, Level
from aoti_debug.base.errors import UsageError
from aoti_debug.base.frozen import dataclass
from aoti_debug.compare.diff.first_difference import CallPairs, FirstDifference
from aoti_debug.compare.diff.pair_launches import launches_by_call
from aoti_debug.runs.run import runner
from aoti_debug.runs.run.options import RunOptions, Shown
from aoti_debug.runs.run.runner import RunResult
from aoti_debug.runs.run.supervise import Observer
from aoti_debug.runs.rundir import threads_json
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.runs.rundir.run_json import ExitKind
from aoti_debug.runs.rundir.threads_json import CallState, ThreadCall, ThreadPlan, ThreadsRecord, WeightUpdates

CALLS_OF_A_THREAD = 4  # by default
HANGS_AFTER = 60.0  # seconds without a launch, by default: a deadlock is what threads may end in
_LOOKED_INTO = 16  # wrong calls of which the first launch that differs is found


@dataclass(frozen=True, kw_only=True)
class ThreadsOptions:
    """A package that is called from threads.

    Attributes:
        run: the options of the runs; `calls` is the number of calls of all threads together.
        threads: from 2.
        runners: how many calls the loader lets run at once; None for as many as threads.
    """

    run: RunOptions
    threads: int
    runners: int | None = None
    updates: WeightUpdates = WeightUpdates.NONE


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
class ThreadedCalls:
    """The calls from threads against those alone.

    Attributes:
        alone: the run of the same calls in one thread.
        together: None if the calls alone have already failed, or were no basis for a comparison.
        record: of the run that counts: from threads if there is one.
        unrepeatable: alone, the calls that differ from an earlier one with the same inputs.
        wrong: in the order of calls.
    """

    alone: RunResult
    together: RunResult | None
    record: ThreadsRecord | None
    unrepeatable: tuple[int, ...] = ()
    wrong: tuple[WrongCall, ...] = ()

    @property
    def result(self) -> RunResult:
        """The run that counts: from threads if there is one."""
        return self.alone if self.together is None else self.together


def call_from_threads(options: ThreadsOptions, observer: Observer | None = None) -> ThreadedCalls:
    """Runs a package twice, each time in a process of its own: all calls in one thread, then in several.

    Raises:
        UsageError: an option is wrong.
        ArtifactError, ToolchainError, TargetError, RunDirError: as of `runner.run`.
    """
    check(options)
    run = options.run
    if run.stall is None:
        run = replace(run, stall=HANGS_AFTER)
    with tempfile.TemporaryDirectory() as folder:
        plan = ThreadPlan(
            threads=1,
            runners=options.runners or options.threads,
            sets=min(options.threads, run.calls),
            updates=WeightUpdates.NONE,
            expected=str(Path(folder) / "expected.pt"),
        )
        alone = runner.run(replace(run, threads=plan), observer)
        record = threads_json.read(alone.run.path)
        if record is None or alone.run.state is not ExitKind.CLEAN:
            return ThreadedCalls(alone=alone, together=None, record=record)
        changed = tuple(number for number, call in enumerate(record.calls) if call.state is not CallState.EQUAL)
        if changed:
            return ThreadedCalls(alone=alone, together=None, record=record, unrepeatable=changed)
        threads = replace(plan, threads=options.threads, updates=options.updates)
        together = runner.run(replace(run, threads=threads), observer)
    return compared(alone, together)


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
    phase = "both" if level == Level.SAVE else options.phase
    return replace(options, level=level, phase=phase, shown=Shown.NOTHING)
