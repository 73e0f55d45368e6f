"""`aoti-debug replay`: a run again, with results of launches replaced."""

from __future__ import annotations

from pathlib import Path

import click

from aoti_debug.cli import options
from aoti_debug.cli.lines import print_lines
from aoti_debug.cli.step_lines import StepLines
from aoti_debug.errors import EXIT_CLEAN, EXIT_FINDING, UsageError
from aoti_debug.machine.last_durations import LastDurations
from aoti_debug.replay.options import BASE, ReplayOptions
from aoti_debug.replay.outputs import Healing
from aoti_debug.replay.replay import replay
from aoti_debug.replay.text import what_if_lines


@click.command("replay")
@click.argument("run", metavar="[RUN]", required=False, type=click.Path(path_type=Path))
@click.option(
    "--substitute",
    "substitutions",
    metavar="LAUNCH=WHAT",
    multiple=True,
    help="Replace what this launch writes: 0.36=eager, =fp64, =OTHER.pt2, or =skip not to launch it. Repeatable.",
)
@options.imports
@options.libraries
@options.trust
@click.option(
    "--out",
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(BASE),
    show_default=True,
    help="Where the directory of the replay is made.",
)
@click.pass_context
def command(
    context: click.Context,
    run: Path | None,
    substitutions: tuple[str, ...],
    imports: tuple[str, ...],
    libraries: tuple[Path, ...],
    trusted: bool,
    out: Path,
) -> None:
    """Run a model again with results of launches replaced, and say whether its outputs heal.

    RUN is a run directory or its name, by default the latest one. `eager` and `fp64` are what the program gives for the
    inputs that the launch was recorded with, OTHER.pt2 is another package, whose launch of the same value is taken.
    Outputs are compared with those of the program in eager. Exit code 1: they are wrong.
    """
    if not substitutions:
        raise UsageError("there is nothing to do otherwise", hint="--substitute 0.36=eager replaces a result")
    chosen = ReplayOptions(
        run=run, substitutions=substitutions, out=out, imports=imports, libraries=libraries, trusted=trusted
    )
    with StepLines(LastDurations("replay", str(run))) as progress:
        found = replay(chosen, progress)
    print_lines(["", *what_if_lines(found)])
    is_right = bool(found.outputs.after) and found.outputs.healing in (Healing.HEALED, Healing.RIGHT_BEFORE)
    context.exit(EXIT_CLEAN if is_right else EXIT_FINDING)
