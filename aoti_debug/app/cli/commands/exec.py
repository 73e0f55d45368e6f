"""`aoti-debug exec`: runs an unmodified script that uses AOTInductor, and records its packages."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aoti_debug.app.cli import options, script_arguments
from aoti_debug.app.cli.lines import json_text, print_lines, width
from aoti_debug.app.cli.recording_options import RecordingOptions, recording
from aoti_debug.app.cli.run_lines import observed_lines, summary
from aoti_debug.app.cli.script_arguments import PassedThrough
from aoti_debug.app.execute.execute import ExecutedScript, execute, is_recorded
from aoti_debug.app.execute.failed_call import FailedCall
from aoti_debug.base import terminal_cells, wording
from aoti_debug.base.errors import UsageError
from aoti_debug.base.machine.files import atomic_write
from aoti_debug.runs.diagnosis import suggested_commands
from aoti_debug.runs.diagnosis.diagnosed_run import DiagnosedRun
from aoti_debug.runs.run.options import RunOptions
from aoti_debug.runs.run.script_process import UserScript
from aoti_debug.runs.rundir.run_directory import RunDir

if TYPE_CHECKING:
    from aoti_debug.runs.diagnosis.findings import Finding


@click.command("exec", context_settings={"allow_interspersed_args": False, "ignore_unknown_options": True})
@click.option("-m", "is_module", is_flag=True, help="SCRIPT.py is the name of a module, as for Python's -m.")
@script_arguments.torch_compile
@recording("AOTI_DEBUG_LEVEL, or 3; at 0, nothing is replaced")
@options.limits("the script began", "a call of a model has begun or ended no launch")
@click.option(
    "--json",
    "json_file",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write one JSON object about the runs to FILE, as stdout is the script's; its schema: aoti-debug guide "
    "--json-schema exec.",
)
@click.argument("script", metavar="SCRIPT.py")
@click.argument("arguments", metavar="[ARGS]...", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def command(
    context: click.Context,
    *,
    is_module: bool,
    torch_compile: bool,
    recording: RecordingOptions,
    timeout: float | None,
    stall: float | None,
    json_file: Path | None,
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
    chosen = recording.of(Path(script), is_level_given=recording.level is not None, timeout=timeout, stall=stall)
    if json_file is not None and not json_file.absolute().parent.is_dir():
        raise UsageError(f"{json_file.parent} is no directory", hint="--json FILE names a file in one that exists")
    if not is_recorded(chosen):
        _refuse_at_level_0(chosen, json_file)
        sys.stdout.flush()
        sys.stderr.flush()
        os.execv(sys.executable, chosen_script.python_command)
    print_lines(filter(None, [script_arguments.misplaced(context, chosen_script)]), err=True)
    executed = execute(chosen_script, chosen, PassedThrough())
    print_lines(outcome_lines(executed, width(err=True), is_compiling=torch_compile), err=True)
    if json_file is not None:
        _write(json_file, executed)
    context.exit(executed.exit_code)


def _refuse_at_level_0(chosen: RunOptions, json_file: Path | None) -> None:
    """Raises UsageError if an option looks at launches, of which none is recorded."""
    given = {
        "--watch": chosen.watch,
        "--guards": chosen.guards,
        "--summaries": chosen.summaries,
        "--json": json_file is not None,
        "--timeout": chosen.timeout is not None,
        "--stall": chosen.stall is not None,
    }
    for option, value in given.items():
        if value:
            raise UsageError(f"{option} needs a level above 0", hint="--level 3 records launches")


def _require_script(script: str) -> None:
    if not Path(script).exists():
        raise UsageError(f"{script} does not exist", hint="aoti-debug exec SCRIPT.py, or -m MODULE")
    if Path(script).suffix == ".pt2":
        raise UsageError(f"{script} is no script", hint=f"aoti-debug triage {script}")


def outcome_lines(executed: ExecutedScript, columns: int, *, is_compiling: bool = False) -> list[str]:
    """The runs of the packages that a script has called, and the fault that ended it.

    Args:
        is_compiling: graphs of `torch.compile` were recorded, too.
    """
    if executed.ranks is not None:
        from aoti_debug.runs.ranks import ranks_analysis, ranks_run, text  # most scripts have no ranks

        analysis = ranks_analysis.analyse(ranks_run.open_ranks(executed.ranks))
        return ["", *text.ranks_lines(analysis, columns), *_next(executed)]
    result = executed.result
    if result is None:
        if executed.killed:
            return terminal_cells.wrapped(
                f"HANG the script did not end: {executed.killed}; nothing was recorded", columns
            )
        note = "note: nothing was recorded: no call of a replaced AOTInductor package reached its model in this process"
        end = f"; it ended with exit code {executed.exit_code}, and what it wrote to stderr may say why"
        own = end if executed.exit_code else ""
        graphs = "" if is_compiling else "; graphs of torch.compile are recorded with --torch-compile"
        return terminal_cells.wrapped(f"{note}{own}{graphs}", columns)
    lines = ["", *summary(result, columns)]
    for run in executed.others:
        launches = wording.pluralize(len(run.launches), "launch")
        package = "another package" if run.package is None else run.package.name
        lines.append(f"also: {launches} of {package}: {suggested_commands.show(run)}")
    if executed.ended_by:
        said = f"note: the script was ended by {executed.ended_by}, in no call of a model; what it has recorded is kept"
        lines += terminal_cells.wrapped(said, columns)
    if result.verdict is not None:
        from aoti_debug.runs.show.verdict import verdict_lines  # most scripts end well

        lines += ["", *verdict_lines(result.verdict, columns)]
    lines += observed_lines(result.run, _overrun(result.run), columns)
    return [*lines, *_next(executed)]


def _overrun(run: RunDir) -> Finding | None:
    """The first launch that wrote out of bounds; None where none did, or no guards were there."""
    if not run.info.guards:
        return None
    from aoti_debug.triage.memory_errors import overruns  # few runs have guards

    return overruns.find(run)


def _next(executed: ExecutedScript) -> list[str]:
    """The command that looks into the call that failed."""
    return [f"  next     {command}" for command in _commands(executed)]


def _commands(executed: ExecutedScript) -> list[str]:
    if executed.failed is None or executed.failed.inputs is None:  # the package holds none
        return []
    package, inputs = map(suggested_commands.word_of, (executed.failed.package, executed.failed.inputs))
    return [shlex.join(["aoti-debug", "triage", package, "--inputs", inputs])]


def _write(file: Path, executed: ExecutedScript) -> None:
    """Writes the JSON object.

    Raises:
        UsageError: it cannot be written.
    """
    try:
        atomic_write.write(file, json_text(document(executed)) + "\n")
    except OSError as error:
        raise UsageError(f"cannot write {file}: {error.strerror}", hint="--json FILE names another one") from error


def document(executed: ExecutedScript) -> dict[str, Any]:
    """The object that --json writes: the run to look at first, and those of the other packages."""
    from aoti_debug.runs.show.document import FORMAT  # only --json needs it

    runs = [] if executed.result is None else [executed.result.run, *executed.others]
    return {
        "format": FORMAT,
        "exit_code": executed.exit_code,
        "runs": [_run_document(run) for run in runs],
        "ranks": None if executed.ranks is None else str(executed.ranks),
        "failed_call": None if executed.failed is None else _call_document(executed.failed),
        "next": _commands(executed),
    }


def _run_document(run: RunDir) -> dict[str, Any]:
    from aoti_debug.runs.diagnosis.verdict_text import finding_of  # only --json needs it
    from aoti_debug.runs.show.document import outcome_document

    verdict = DiagnosedRun(run).verdict
    return outcome_document(run, verdict, finding_of(run, verdict), _overrun(run))


def _call_document(failed: FailedCall) -> dict[str, Any]:
    return {
        "run": str(failed.run.path),
        "call": failed.number,
        "package": str(failed.package),
        "inputs": None if failed.inputs is None else str(failed.inputs),
        "what": failed.why,
    }
