"""`aoti-debug minify`: the smallest part of a program that still shows its fault, as a script that needs only torch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from aoti_debug.cli import options
from aoti_debug.cli.lines import print_lines
from aoti_debug.cli.step_lines import StepLines
from aoti_debug.errors import EXIT_CLEAN, EXIT_FINDING
from aoti_debug.machine.last_durations import LastDurations
from aoti_debug.minify.confirm import confirmed
from aoti_debug.minify.minify import minify
from aoti_debug.minify.options import BASE, MOST_SCRIPTS, MinifyOptions
from aoti_debug.minify.text import minified_lines


@click.command("minify")
@click.argument("program", metavar="PROGRAM.pt2", type=options.FilePath())
@options.inputs("the example inputs of the program")
@options.calls
@options.memory_checks
@options.hang_timeout("The model, or a part of it, hangs if it makes no progress for this long.")
@click.option(
    "--most-scripts",
    metavar="N",
    type=click.IntRange(min=1),
    default=MOST_SCRIPTS,
    show_default=True,
    help="End after so many scripts, with the smallest part so far.",
)
@options.inductor_configs
@options.imports
@options.libraries
@options.trust
@options.out(BASE, "the minimisation")
@click.pass_context
def command(
    context: click.Context,
    program: Path,
    inputs: Path | None,
    calls: int,
    guards: bool,
    stall: float,
    most_scripts: int,
    configs: tuple[str, ...],
    imports: tuple[str, ...],
    libraries: tuple[Path, ...],
    trusted: bool,
    out: Path,
) -> None:
    """Find the smallest part of PROGRAM.pt2 that still shows its fault, and write it as a script.

    PROGRAM.pt2 is an exported program. It is triaged; then parts of it are compiled and run, each by a script in a
    process of its own: first the operators that the guilty launch computes, with the tensors that it read, then ever
    fewer of them. If no such part shows the fault, parts of the whole program are tried. The result needs torch and
    the modules of --import, and nothing of aoti-debug; it prints one line and ends with exit code 1 if it shows the
    fault. If the search is interrupted, the same command goes on. Exit code 1: there is a finding.
    """
    chosen = MinifyOptions(
        program=program,
        inputs=inputs,
        inductor_configs=options.parse_configs(configs),
        calls=calls,
        stall=stall,
        guards=guards,
        most_scripts=most_scripts,
        out=out,
        imports=imports,
        libraries=libraries,
        trusted=trusted,
    )
    with StepLines(LastDurations("minify", str(program.resolve()))) as progress:
        found = confirmed(minify(chosen, progress), chosen, progress)
    if found.smallest is not None:
        shown = str(found.smallest.script).removeprefix(f"{Path.cwd()}/")
        found = replace(found, smallest=replace(found.smallest, script=Path(shown)))
    print_lines(["", *minified_lines(found)])
    context.exit(EXIT_CLEAN if found.is_clean else EXIT_FINDING)
