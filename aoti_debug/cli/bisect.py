"""`aoti-debug bisect`: which launches make one of two packages of a program wrong."""

from __future__ import annotations

from pathlib import Path

import click

from aoti_debug.bisect.options import BASE, BisectOptions
from aoti_debug.bisect.packages import bisect_packages
from aoti_debug.bisect.text import bisection_lines
from aoti_debug.cli import options
from aoti_debug.cli.lines import print_lines
from aoti_debug.cli.step_lines import StepLines
from aoti_debug.errors import EXIT_CLEAN, EXIT_FINDING
from aoti_debug.machine.last_durations import LastDurations


@click.command("bisect")
@click.argument("good", metavar="GOOD.pt2", type=click.Path(path_type=Path))
@click.argument("bad", metavar="BAD.pt2", type=click.Path(path_type=Path))
@click.option(
    "--inputs",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Inputs for both models (.pt or .safetensors).  [default: the embedded ones]",
)
@options.calls
@options.imports
@options.libraries
@options.trust
@click.option(
    "--out",
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(BASE),
    show_default=True,
    help="Where the directory of the bisection is made.",
)
@click.pass_context
def command(
    context: click.Context,
    good: Path,
    bad: Path,
    inputs: Path | None,
    calls: int,
    imports: tuple[str, ...],
    libraries: tuple[Path, ...],
    trusted: bool,
    out: Path,
) -> None:
    """Find the launches that make BAD.pt2 wrong, where GOOD.pt2, of the same program, is right.

    Both are exported programs, compiled or instrumented packages; they are built and run as needed. Launches are paired
    as by `aoti-debug diff`. In one run, each launch of the bad package reads what the good one has written: those that
    write something else are suspects, all of them at once. Culprits are those whose difference rounding does not
    explain; a run with their results replaced shows whether the outputs heal. Exit code 1: there are culprits.
    """
    chosen = BisectOptions(good, bad, inputs, calls, out, imports, libraries, trusted)
    with StepLines(LastDurations("bisect", f"{good.resolve()} {bad.resolve()}")) as progress:
        found = bisect_packages(chosen, progress)
    print_lines(["", *bisection_lines(found)])
    context.exit(EXIT_CLEAN if found.is_clean else EXIT_FINDING)
