"""`aoti-debug attach`: changes what a running process records, without a restart."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import click

from aoti_debug.app.cli import options
from aoti_debug.app.cli.lines import print_json, print_lines, width
from aoti_debug.app.cli.recording_options import recorded_values, run_out, watchpoints
from aoti_debug.app.cli.run_lines import unmatched_warning, unmatched_watch_warning
from aoti_debug.base import terminal_cells
from aoti_debug.base.abi import Level, Variable
from aoti_debug.base.errors import TargetError, UsageError
from aoti_debug.package import manifest, recording_settings
from aoti_debug.runs.run import configuration, running_process
from aoti_debug.runs.run import options as run_options
from aoti_debug.runs.run.options import RunOptions, Shown
from aoti_debug.runs.run.running_process import ControlDelay, ControlPage, PackageState
from aoti_debug.runs.rundir import run_directory, watch_condition

FORMAT = 1
_POLL = 0.02  # seconds
_PENDING = {
    ControlDelay.NONE: "no call of the model has begun since: the settings come into force when the next one begins",
    ControlDelay.CALLS: "its calls overlap, which on a GPU must not be: the settings wait for a call that begins alone",
    ControlDelay.CAPTURED: "a CUDA graph holds calls of its run, so that the run cannot end: nothing changes",
}


@click.command("attach")
@click.argument("pid", type=click.IntRange(min=1))
@click.option(
    "--level",
    metavar="LEVEL",
    type=options.LevelType(),
    help=f"{recording_settings.MEANINGS}; 0 ends the recording.  [default: the level in force, 3 if that is 0]",
)
@recorded_values
@watchpoints
@click.option("--print", "prints", is_flag=True, help="Have the process print names and values to its stderr, too.")
@click.option("--reset", is_flag=True, help="Go back to what the environment of the process says.")
@options.seconds("--wait", "How long to wait until the settings are in force.", default=10.0)
@run_out
@options.json_output("attach")
def command(
    *,
    pid: int,
    level: int | None,
    filters: tuple[str, ...],
    modules: tuple[str, ...],
    lines: tuple[str, ...],
    phase: str | None,
    flight: int | None,
    watch: tuple[str, ...],
    on_hit: str,
    prints: bool,
    reset: bool,
    wait: float,
    out: Path | None,
    as_json: bool,
) -> None:
    """Change what the running process PID records of its instrumented packages, without a restart.

    The next call of the model begins a new run with these settings; calls that are running end in the run before. The
    settings replace those of an earlier attach.
    """
    chosen = RunOptions(
        package=Path(),
        level=level,
        filters=filters or None,
        modules=modules or None,
        lines=lines or None,
        phase=phase,
        flight=flight,
        watch=watch,
        on_hit=on_hit,
        shown=Shown.ALL if prints else Shown.NOTHING,
    )
    run_options.check(chosen)
    if reset and (out is not None or chosen != RunOptions(package=Path(), shown=chosen.shown)):
        raise UsageError("--reset takes no other setting", hint=f"aoti-debug attach {pid} --reset")
    with running_process.control_pages(pid) as pages:
        before = [page.read() for page in pages]
        for page, state in zip(pages, before, strict=True):
            page.request({} if reset else _settings(chosen, state.level, out))
        after = _wait(pid, pages, time.monotonic() + wait)
    if as_json:
        print_json(document(pid, before, after))
    else:
        print_lines(attached_lines(pid, before, after, width()))
    _warn(chosen, after)
    if not all(_is_settled(state) for state in after):
        delay = next(state.delay for state in after if not _is_settled(state))
        raise TargetError(f"process {pid}: {_PENDING[delay]}", hint=f"aoti-debug top {pid}")


def _settings(chosen: RunOptions, level: int, out: Path | None) -> dict[str, str]:
    """The chosen settings as environment variables; for others, those of the process's own environment hold."""
    given = chosen.level if chosen.level is not None else (level or Level.NAMES.value)
    settings = configuration.recording_variables(Path(), chosen, given)
    del settings[Variable.BACKTRACE.value]  # the process keeps its signal handlers
    settings |= {Variable.RUN.value: "", Variable.LEVEL.value: str(recording_settings.written_level(given))}
    return settings | ({} if out is None else {Variable.DIR.value: str(out.resolve())})


def _is_settled(state: PackageState) -> bool:
    return state.accepted == state.requested


def _wait(pid: int, pages: Sequence[ControlPage], deadline: float) -> list[PackageState]:
    """The states as soon as all have the settings, and a run where they record; at the latest at a deadline."""
    while True:
        states = [page.read() for page in pages]
        if all(_is_settled(state) and (state.run_directory is not None or not state.level) for state in states):
            return states
        if not running_process.is_alive(pid):
            raise TargetError(f"process {pid} has ended", hint="aoti-debug list shows its runs")
        if time.monotonic() >= deadline or all(state.delay is ControlDelay.CAPTURED for state in states):
            return states
        time.sleep(_POLL)


def attached_lines(pid: int, before: Sequence[PackageState], after: Sequence[PackageState], columns: int) -> list[str]:
    """Describes the outcome of a request: a line for each package, and one for each run that has begun."""
    lines = []
    for old, new in zip(before, after, strict=True):
        level = recording_settings.written_level(old.level)
        if not _is_settled(new):
            lines += terminal_cells.wrapped(f"{new.model} in process {pid}: still level {level}", columns)
            continue
        change = f"level {level} until now, {recording_settings.written_level(new.level)} from now on"
        lines += terminal_cells.wrapped(f"{new.model} in process {pid}: {change}", columns)
        if new.run_directory is not None:
            lines += terminal_cells.wrapped(f"recording in {new.run_directory}", columns, "  ")
        elif new.level:
            lines.append("  no run has begun: where nothing can be recorded, the process says why on its stderr")
    return lines


def document(pid: int, before: Sequence[PackageState], after: Sequence[PackageState]) -> dict[str, object]:
    """The JSON object of the outcome of a request: docs/attach.schema.json."""
    packages = [
        {
            "model": new.model,
            "library": str(new.library),
            "level_before": recording_settings.written_level(old.level),
            "level": recording_settings.written_level(new.level),
            "in_force": _is_settled(new),
            "pending": None if _is_settled(new) else _PENDING[new.delay],
            "run": None if new.run_directory is None else str(new.run_directory),
        }
        for old, new in zip(before, after, strict=True)
    ]
    return {"format": FORMAT, "pid": pid, "packages": packages}


def _warn(chosen: RunOptions, states: Sequence[PackageState]) -> None:
    """Prints which patterns and watchpoints match nothing in a package."""
    for state in states:
        if state.run_directory is None or not _is_settled(state):
            continue
        package = manifest.from_json((state.run_directory / run_directory.MANIFEST).read_bytes())
        print_lines(unmatched_warning(recording_settings.unmatched(package, chosen.site_filter)), err=True)
        print_lines(unmatched_watch_warning(package, watch_condition.unmatched(chosen.watch, package)), err=True)
