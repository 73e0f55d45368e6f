"""`aoti-debug run`: runs an instrumented package in a process of its own and shows the outcome."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from aoti_debug.app.cli import options, thread_options
from aoti_debug.app.cli.lines import print_json, print_lines, width
from aoti_debug.app.cli.live_output import START, LiveOutput, TimedPhase, timing_lines
from aoti_debug.app.cli.recording_options import RecordingOptions, recording
from aoti_debug.app.cli.run_lines import (
    missing_source_note,
    observed_lines,
    place_lines,
    summary,
    uncalled_inspector_warning,
    unmatched_warning,
    unmatched_watch_warning,
)
from aoti_debug.base import terminal_cells
from aoti_debug.base.abi import Level, Variable
from aoti_debug.base.errors import EXIT_CLEAN, EXIT_FINDING, EXIT_INCOMPLETE, UsageError
from aoti_debug.base.machine import current_rank as machine_ranks
from aoti_debug.base.machine.steps import since_process_start
from aoti_debug.base.machine.user_code import UserCode
from aoti_debug.compare.bisect.threaded_calls import ThreadedCalls, call_from_threads
from aoti_debug.compare.bisect.threads_text import threads_document
from aoti_debug.compare.diff.document import repeat_document
from aoti_debug.compare.diff.repeated_calls import compare_calls
from aoti_debug.compare.diff.text import repeat_lines
from aoti_debug.package import recording_settings
from aoti_debug.package.inputs.random_inputs import RANDOM_INPUTS_NOTE
from aoti_debug.package.manifest import Manifest
from aoti_debug.runs.diagnosis.verdict_text import finding_of
from aoti_debug.runs.run import runner
from aoti_debug.runs.run.inspector import InspectorError
from aoti_debug.runs.run.options import RunOptions, Shown
from aoti_debug.runs.run.runner import RunResult
from aoti_debug.runs.rundir import watch_condition
from aoti_debug.runs.rundir.run_json import ExitKind
from aoti_debug.runs.rundir.watchpoints import Watchpoint
from aoti_debug.runs.show.document import FORMAT, outcome_document
from aoti_debug.runs.show.finding import all_finding_lines
from aoti_debug.runs.show.verdict import verdict_lines
from aoti_debug.triage.memory_errors import overruns

_HEX_BYTE = re.compile(r"[0-9a-fA-F]{2}\Z")


class HexByte(click.ParamType):  # type: ignore[type-arg]
    """Two hexadecimal digits."""

    name = "byte"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The byte as a number."""
        if isinstance(value, int):
            return value
        if not _HEX_BYTE.match(value):
            self.fail(f"{value!r} is not two hexadecimal digits", param, ctx)
        return int(value, 16)


@click.command("run")
@click.argument("package", metavar="PACKAGE.pt2", type=options.FilePath())
@options.inputs("those embedded in the package")
@options.random_inputs(" They are kept in the run directory.")
@click.option("--model", metavar="NAME", default="", help="Which model of a compiled package that holds several.")
@recording("the level of the package")
@options.calls
@options.limits("it began to load the package", "no launch has begun or ended")
@options.user_code
@click.option(
    "--crumb-every",
    metavar="N",
    type=click.IntRange(min=1),
    help="On a GPU, write one breadcrumb every N launches; 1 names the guilty launch exactly, always.  "
    "[default: 1, and 16 while launches take less than 20 µs each]",
)
@click.option(
    "--gpu-core",
    is_flag=True,
    help="On a GPU, have the driver write a core dump into the run directory, without the GPU's memory, where a kernel "
    "fails, and before --stall or --timeout kills the process. `aoti-debug triage` reads it with cuda-gdb.",
)
@click.option(
    "--poison",
    metavar="HH",
    type=HexByte(),
    help="With --guards: the byte, in hexadecimal, that those buffers are filled with at first.  [default: ff]",
)
@click.option(
    "--freq",
    metavar="K",
    type=click.IntRange(min=1),
    help="With --summaries: of one call in K only.  [default: 1; more if the file has no room]",
)
@click.option(
    "--inspect",
    "inspector",
    metavar="FILE.py:FUNCTION",
    default="",
    help="Call this function of a tensor and its launch on every argument of every launch that --filter and --launch "
    "select.",
)
@click.option(
    "--tag",
    metavar="PATTERN",
    default="",
    help="With --inspect: only the tensors that inspectors of such a tag in the model name.",
)
@click.option(
    "--ranks",
    metavar="R,R-R",
    default="",
    help="Of several ranks (torchrun): record at this level, and call --inspect, on these only: 0,2-3. The others keep "
    "their journals.",
)
@click.option(
    "--repeat",
    metavar="N",
    type=click.IntRange(min=2),
    help="Call the model N times, at level hash (or 2 or 1), and name the launches whose results change although what "
    "they read does not.",
)
@thread_options.threads
@options.timings
@options.json_output("run", " What the model writes to stdout goes to stderr then.")
@click.pass_context
def command(
    context: click.Context,
    *,
    package: Path,
    inputs: Path | None,
    random_inputs: int | None,
    model: str,
    recording: RecordingOptions,
    calls: int,
    timeout: float | None,
    stall: float | None,
    user_code: UserCode,
    crumb_every: int | None,
    gpu_core: bool,
    poison: int | None,
    freq: int | None,
    inspector: str,
    tag: str,
    ranks: str,
    repeat: int | None,
    threads: int | None,
    runners: int | None,
    update_weights: bool,
    jitter: int | None,
    timings: bool,
    as_json: bool,
) -> None:
    """Run the instrumented package PACKAGE.pt2 and record every kernel launch.

    A compiled package without the source of its wrapper is run as it is; its launches are recorded by interposing the
    symbols that it calls, without their values.

    The records are in a new directory, aoti-debug/runs/latest. If the model faults or hangs, the guilty launch is named
    and the exit code is 1. So it is if the records show NaN, or infinities that its code and its inputs do not hold, in
    an output: that takes level 1 or 2.
    """
    start = TimedPhase(START, since_process_start())
    if freq is not None and not recording.summaries:
        raise UsageError("--freq needs --summaries", hint=options.again_with("--summaries"))
    of_repeat: dict[str, Any] = {}
    if repeat is not None:
        _require_repeatable(recording, calls)
        level, calls = recording.level or Level.HASH.value, repeat
        of_repeat = {"level": level, "phase": "both" if level == 1 else None, "shown": Shown.NOTHING}
    calls = thread_options.calls(context, calls, threads)
    chosen = recording.of(
        package,
        is_level_given=recording.level is not None or Variable.LEVEL.value in os.environ,
        inputs=inputs,
        random_inputs=random_inputs,
        model=model,
        calls=calls,
        timeout=timeout,
        stall=stall,
        user_code=user_code,
        crumb_every=crumb_every,
        gpu_core=gpu_core,
        poison=poison,
        inspector=inspector,
        tag=tag,
        ranks=ranks,
        rank=machine_ranks.of_environment(),
        summaries=(freq or 1) if recording.summaries else None,
        **of_repeat,
    )
    quiet = recording.quiet
    called: ThreadedCalls | None = None
    with LiveOutput(calls, has_progress=not quiet, stdout=sys.stderr if as_json else sys.stdout) as live:
        if threads is None:
            result = runner.run(chosen, live)
        else:
            asked = thread_options.asked(chosen, threads, runners, jitter, update_weights=update_weights)
            called = call_from_threads(asked, live)
            result = called.result
    print_lines(_warnings(result.run.manifest, chosen), err=True)
    outcome = RunOutcome(result, repeat=repeat, on_hit=chosen.on_hit, called=called)
    if as_json:
        print_json(outcome.document())
        context.exit(outcome.exit_code)
    print_lines(place_lines(result, width()) if quiet else summary(result, width()))
    print_lines(outcome.lines(width(), quiet=quiet))
    if result.verdict is not None and random_inputs is not None:
        print_lines(terminal_cells.fitted(f"note: {RANDOM_INPUTS_NOTE}", width(err=True)), err=True)
    if timings:
        phases = [start, *(TimedPhase(name, seconds) for name, seconds in result.run.info.timings.items())]
        print_lines(["", *timing_lines(phases, since_process_start())])
    context.exit(outcome.exit_code)


def _warnings(manifest: Manifest, chosen: RunOptions) -> list[str]:
    """Names in options that match nothing in the package, and the note on a package without source."""
    return [
        *unmatched_warning(recording_settings.unmatched(manifest, chosen.site_filter)),
        *unmatched_watch_warning(manifest, watch_condition.unmatched(chosen.watch, manifest)),
        *uncalled_inspector_warning(manifest, chosen.tag, chosen.ranks if chosen.inspector else ""),
        *terminal_cells.wrapped(missing_source_note(manifest), width(err=True)),
    ]


class RunOutcome:
    """The finding of a run, what else its records show, and the exit code.

    Args:
        repeat: as the option; None without it.
        on_hit: as the option.
        called: the calls from threads; None without --threads.
    """

    def __init__(self, result: RunResult, *, repeat: int | None, on_hit: str, called: ThreadedCalls | None) -> None:
        self._result = result
        self._called = called
        run = result.run
        self._finding = finding_of(run, result.verdict)
        self._overrun = overruns.find(run)
        self._is_stopped = run.state is ExitKind.STOPPED
        has_calls = repeat is not None and result.verdict is None and not self._is_stopped
        self._repeated = compare_calls(run) if has_calls else None
        found = (
            self._is_stopped
            or self._finding.kind.is_fault
            or self._overrun is not None
            or (self._repeated is not None and bool(self._repeated.launches))
            or is_hit(run.timeline.watchpoints, on_hit)
            or (called is not None and (bool(called.wrong) or called.is_racing))
        )
        is_compared = called is None or found or not called.unrepeatable
        self.exit_code = EXIT_FINDING if found else EXIT_CLEAN if is_compared else EXIT_INCOMPLETE

    def lines(self, columns: int, *, quiet: bool) -> list[str]:
        """The lines after the summary."""
        result, lines = self._result, []
        if result.verdict is not None:
            lines += ["", *verdict_lines(result.verdict, columns)]
            lines += thread_options.fault_lines(self._called, columns)
        elif self._finding.kind.is_fault or not (quiet or self._is_stopped):
            # the next command of a clean one stands above
            shown = self._finding if self._finding.kind.is_fault else replace(self._finding, next=())
            lines += ["", *all_finding_lines(shown, columns)]
        lines += observed_lines(result.run, self._overrun, columns)
        if self._is_stopped and result.run.info.exit.exception == InspectorError.__name__:
            lines += ["", *terminal_cells.fitted(f"STOPPED {result.run.info.exit.detail}", columns)]
        if self._repeated is not None:
            lines += ["", *repeat_lines(self._repeated)]
        return lines + thread_options.outcome_lines(self._called, columns)

    def document(self) -> dict[str, Any]:
        """The object that --json prints."""
        result, repeated, called = self._result, self._repeated, self._called
        return {
            "format": FORMAT,
            "exit_code": self.exit_code,
            **outcome_document(result.run, result.verdict, self._finding, self._overrun),
            "seconds": result.seconds,
            "repeated": None if repeated is None else repeat_document(repeated),
            "threads": None if called is None else threads_document(called),
        }


def _require_repeatable(recording: RecordingOptions, calls: int) -> None:
    """Raises UsageError if another option leaves --repeat nothing to compare."""
    if recording.launches or recording.phase is not None:
        raise UsageError("--repeat compares all launches, before and after", hint="leave out --launch and --phase")
    if calls > 1:
        raise UsageError("--repeat and --calls exclude each other", hint="--repeat N is the number of calls")
    if recording.level not in (None, *recording_settings.WITH_HASHES):
        raise UsageError(
            f"--repeat compares hashes, and level {recording.level} records none", hint="leave out --level"
        )


def is_hit(watchpoints: Sequence[Watchpoint], on_hit: str) -> bool:
    """True if a hit of a watchpoint is a finding: unless hits are only counted."""
    if any(watchpoint.stopped for watchpoint in watchpoints):
        return True
    return "count" not in on_hit and any(watchpoint.hits for watchpoint in watchpoints)
