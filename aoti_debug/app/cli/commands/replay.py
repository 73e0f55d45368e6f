"""`aoti-debug replay`: a run again, with results of launches replaced."""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from typing import Any

import click

from aoti_debug.app.cli import options
from aoti_debug.app.cli.lines import print_json, print_lines, width
from aoti_debug.app.cli.live_output import StepLines
from aoti_debug.base import wording
from aoti_debug.base.abi import Phase
from aoti_debug.base.errors import EXIT_CLEAN, EXIT_FINDING, UsageError
from aoti_debug.base.machine.files.results_home import ResultKind
from aoti_debug.base.machine.steps import LastDurations
from aoti_debug.base.machine.user_code import UserCode
from aoti_debug.compare.what_if.replay import Reached, replay
from aoti_debug.compare.what_if.substituted_run import ReplayOptions
from aoti_debug.compare.what_if.what_if import Recovery, WhatIf, what_if_document, what_if_lines
from aoti_debug.runs.rundir.argument_statistics import Measurer
from aoti_debug.runs.show.detail import detail
from aoti_debug.runs.show.document import FORMAT, launch_documents


@click.command("replay")
@click.argument(
    "run",
    metavar="[RUN]",
    required=False,
    type=click.Path(path_type=Path),
    shell_complete=options.completing("runs"),
)
@click.option(
    "--substitute",
    "substitutions",
    metavar="LAUNCH=WHAT",
    multiple=True,
    help="Replace what this launch writes: 0.36=eager, =fp64, =OTHER.pt2, or =skip not to launch it. Repeatable.",
)
@click.option("--to", metavar="LAUNCH", default="", help="Stop before this launch, and show its arguments.")
@click.option(
    "--wait",
    is_flag=True,
    help="With --to: keep the process there until Enter is pressed, so that a debugger can be attached.",
)
@click.option(
    "--from",
    "begin",
    metavar="LAUNCH",
    default="",
    help="Launch nothing before this one; what is before it gets the recorded results.",
)
@options.user_code
@options.out(ResultKind.REPLAYS, "the replay")
@options.json_output("replay")
@click.pass_context
def command(
    context: click.Context,
    *,
    run: Path | None,
    substitutions: tuple[str, ...],
    to: str,
    wait: bool,
    begin: str,
    user_code: UserCode,
    out: Path,
    as_json: bool,
) -> None:
    """Run a model again with results of launches replaced: do its outputs match eager again? Or stop before a launch.

    RUN is a run directory or its name, by default the latest one. `eager` and `fp64` are what the program gives for the
    inputs that the launch was recorded with, OTHER.pt2 is another package, whose launch of the same value is taken.
    Outputs are compared with those of the program in eager. Exit code 1: they are wrong.
    """
    if wait and not to:
        raise UsageError("--wait needs --to", hint="--to 0.37 --wait stays before that launch")
    chosen = ReplayOptions(
        run=run,
        substitutions=substitutions,
        to=to,
        begin=begin,
        out=out,
        user_code=user_code,
    )
    with StepLines(LastDurations("replay", str(run))) as progress:
        found = replay(chosen, progress, functools.partial(_wait, is_result=not as_json) if wait else None)
    if as_json:
        print_json(document(found))
    elif isinstance(found, Reached):
        print_lines(["", *reached_lines(found, width())])
    else:
        print_lines(["", *what_if_lines(found)])
    if isinstance(found, Reached):
        return
    is_right = bool(found.outputs.after) and found.outputs.recovery in (Recovery.RECOVERED, Recovery.RIGHT_BEFORE)
    context.exit(EXIT_CLEAN if is_right else EXIT_FINDING)


def document(found: WhatIf | Reached) -> dict[str, Any]:
    """The object that --json prints; its members are null where they tell nothing of this kind of replay.

    Raises:
        RunDirError: a saved tensor is missing or damaged.
    """
    if isinstance(found, WhatIf):
        return {"format": FORMAT, "stopped_before": None, **what_if_document(found)}
    (launch,) = launch_documents(found.run, [found.launch], Measurer(found.run, None))
    return {
        "format": FORMAT,
        "run": str(found.run.path),
        "stopped_before": launch,
        "baseline": None,
        "substitutions": [],
        "from": None,
        "conclusion": None,
        "outputs": [],
        "notes": list(found.refused),
    }


def reached_lines(reached: Reached, columns: int) -> list[str]:
    """The launch that the run has stopped before, with its arguments."""
    return [
        *detail(reached.run, reached.launch, columns, (Phase.BEFORE,)),
        *(f"note: {reason}" for reason in reached.refused),
        "",
        f"STOPPED before {reached.launch.id} {reached.launch.kernel}, after {wording.duration(reached.seconds)}",
        f"  run      {wording.short_path(reached.run.path)}",
    ]


def _wait(pid: int, *, is_result: bool) -> None:
    """Keeps the process before its launch until Enter is pressed, or the input ends.

    Args:
        is_result: False where stdout has another result.
    """
    print_lines([f"process {pid} stands before the launch: gdb -p {pid}; Enter ends it"], err=not is_result)
    sys.stdin.readline()
