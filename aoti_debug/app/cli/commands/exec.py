"""`aoti-debug exec`: runs an unmodified script that uses AOTInductor, and records its packages."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

import click

from aoti_debug.app.cli import script_arguments
from aoti_debug.app.cli.commands.run import observed_lines, summary
from aoti_debug.app.cli.lines import print_lines, width
from aoti_debug.app.cli.recording_options import RecordingOptions, recording
from aoti_debug.app.cli.script_arguments import PassedThrough
from aoti_debug.app.execute.execute import ExecutedScript, execute, is_recorded
from aoti_debug.base import terminal_cells, wording
from aoti_debug.base.errors import UsageError
from aoti_debug.runs.diagnosis import suggested_commands
from aoti_debug.runs.run.options import RunOptions
from aoti_debug.runs.run.script_process import UserScript
from aoti_debug.runs.show.fault import verdict_lines
from aoti_debug.triage.memory_errors import overruns


@click.command("exec", context_settings={"allow_interspersed_args": False, "ignore_unknown_options": True})
@click.option("-m", "is_module", is_flag=True, help="SCRIPT.py is the name of a module, as for Python's -m.")
@script_arguments.torch_compile
@recording("AOTI_DEBUG_LEVEL, or 3; at 0, nothing is replaced")
@click.argument("script", metavar="SCRIPT.py")
@click.argument("arguments", metavar="[ARGS]...", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def command(
    context: click.Context,
    *,
    is_module: bool,
    torch_compile: bool,
    recording: RecordingOptions,
    script: str,
    arguments: tuple[str, ...],
) -> None:
    """Run the script SCRIPT.py, unmodified, and record the AOTInductor packages that it compiles or loads.

    Each package is instrumented when it is loaded. What the script prints, its exit code and its arguments are its own;
    what aoti-debug says is on stderr. If a model crashes it, the guilty launch is named and the exit code is 1.
    """
    if not is_module:
        _require_script(script)
    chosen_script = UserScript(script, arguments, is_module, torch_compile=torch_compile)
    chosen = recording.of(Path(script), is_level_given=recording.level is not None)
    if not is_recorded(chosen):
        _refuse_at_level_0(chosen)
        sys.stdout.flush()
        sys.stderr.flush()
        os.execv(sys.executable, chosen_script.python_command)
    executed = execute(chosen_script, chosen, PassedThrough())
    print_lines(outcome_lines(executed, width(err=True)), err=True)
    context.exit(executed.exit_code)


def _refuse_at_level_0(chosen: RunOptions) -> None:
    """Raises UsageError if an option looks at launches, of which none is recorded."""
    given = {"--watch": chosen.watch, "--guards": chosen.guards, "--summaries": chosen.summaries}
    for option, value in given.items():
        if value:
            raise UsageError(f"{option} needs a level above 0", hint="--level 3 records launches")


def _require_script(script: str) -> None:
    if not Path(script).exists():
        raise UsageError(f"{script} does not exist", hint="aoti-debug exec SCRIPT.py, or -m MODULE")
    if Path(script).suffix == ".pt2":
        raise UsageError(f"{script} is no script", hint=f"aoti-debug triage {script}")


def outcome_lines(executed: ExecutedScript, columns: int) -> list[str]:
    """The runs of the packages that a script has called, and the fault that ended it."""
    if executed.ranks is not None:
        from aoti_debug.runs.ranks import ranks_analysis, ranks_run, text  # most scripts have no ranks

        analysis = ranks_analysis.analyse(ranks_run.open_ranks(executed.ranks))
        return ["", *text.ranks_lines(analysis, columns), *_next(executed)]
    result = executed.result
    if result is None:
        note = "note: nothing was recorded: this process of the script called no AOTInductor package that was replaced"
        return terminal_cells.wrapped(note, columns)
    lines = ["", *summary(result, columns)]
    for run in executed.others:
        launches = wording.pluralize(len(run.launches), "launch")
        package = "another package" if run.package is None else run.package.name
        lines.append(f"also: {launches} of {package}: {suggested_commands.show(run)}")
    if result.verdict is not None:
        lines += ["", *verdict_lines(result.verdict, columns)]
    lines += observed_lines(result.run, overruns.find(result.run), columns)
    return [*lines, *_next(executed)]


def _next(executed: ExecutedScript) -> list[str]:
    """The command that looks into the call that failed."""
    if executed.failed is None or executed.failed.inputs is None:  # the package holds none
        return []
    package, inputs = map(suggested_commands.word_of, (executed.failed.package, executed.failed.inputs))
    return [f"  next     {shlex.join(['aoti-debug', 'triage', package, '--inputs', inputs])}"]
