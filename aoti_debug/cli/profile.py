"""`aoti-debug profile`: where the time of a model goes, launch by launch."""

from __future__ import annotations

from pathlib import Path

import click

from aoti_debug.cli import options
from aoti_debug.cli.lines import print_lines, width
from aoti_debug.cli.step_lines import StepLines
from aoti_debug.machine.last_durations import LastDurations
from aoti_debug.profile.options import BASE, CALLS, WARM_UP, ProfileOptions
from aoti_debug.profile.profile import profile
from aoti_debug.profile.text import profile_lines
from aoti_debug.show.cells import UNLIMITED

LIMIT = 40  # rows


@click.command("profile")
@click.argument("model", metavar="MODEL.pt2", type=options.FilePath())
@click.option(
    "--inputs",
    metavar="FILE",
    type=options.FilePath(),
    help="Inputs (.pt or .safetensors).  [default: the embedded ones]",
)
@click.option(
    "--calls",
    metavar="N",
    type=click.IntRange(min=1),
    default=CALLS,
    show_default=True,
    help=f"How many calls are measured, after {WARM_UP} others.",
)
@options.imports
@options.libraries
@options.trust
@options.out(BASE, "the profile")
@click.option("--all", "all_", is_flag=True, help=f"Show every launch, not only {LIMIT} of them.")
@click.option("--wide", is_flag=True, help="Show names in full on lines as long as they need, as in a pipe.")
def command(
    model: Path,
    inputs: Path | None,
    calls: int,
    imports: tuple[str, ...],
    libraries: tuple[Path, ...],
    trusted: bool,
    out: Path,
    all_: bool,
    wide: bool,
) -> None:
    """Show where the time of MODEL.pt2 goes: every launch, the slowest first, and the time between launches.

    MODEL.pt2 is an exported program, a compiled or an instrumented package. Each launch comes with its model line, the
    bytes that it moves, its floating-point operations, and how close it is to what this machine can do. Times are
    medians of the calls.
    """
    chosen = ProfileOptions(model, inputs, calls, None, out, imports, libraries, trusted)
    with StepLines(LastDurations("profile", str(model.resolve()))) as progress:
        found = profile(chosen, progress)
    print_lines(["", *profile_lines(found, None if all_ else LIMIT, UNLIMITED if wide else width())])
