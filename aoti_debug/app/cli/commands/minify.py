"""`aoti-debug minify`: the smallest part of a program that still shows its fault, as a script that needs only torch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from aoti_debug.app.cli import options
from aoti_debug.app.cli.lines import print_json, print_lines
from aoti_debug.app.cli.live_output import StepLines
from aoti_debug.base import wording
from aoti_debug.base.errors import EXIT_FINDING, EXIT_UNCONFIRMED
from aoti_debug.base.machine.files.results_home import ResultKind
from aoti_debug.base.machine.steps import LastDurations
from aoti_debug.base.machine.user_code import UserCode
from aoti_debug.triage.minify.minified import Minified, document, minified_lines
from aoti_debug.triage.minify.minify import minify
from aoti_debug.triage.minify.start_parts import MAX_SCRIPTS, MinifyOptions


@click.command("minify")
@click.argument("program", metavar="PROGRAM.pt2", type=options.FilePath())
@options.inputs("the example inputs of the program")
@options.calls
@options.guards
@options.hang_timeout("The model, or a part of it, hangs if it makes no progress for this long.")
@options.count("--most-scripts", "End after so many scripts, with the smallest part so far.", default=MAX_SCRIPTS)
@options.inductor_configs
@options.user_code
@options.out(ResultKind.MINIFIED, "the minimisation")
@options.json_output("minify")
@click.pass_context
def command(
    context: click.Context,
    *,
    program: Path,
    inputs: Path | None,
    calls: int,
    guards: bool,
    stall: float,
    most_scripts: int,
    configs: tuple[str, ...],
    user_code: UserCode,
    out: Path,
    as_json: bool,
) -> None:
    """Find the smallest part of PROGRAM.pt2 that still shows its fault, and write it as a script.

    PROGRAM.pt2 is an exported program. It is triaged; then parts of it are compiled and run, each by a script in a
    process of its own: first the operators that the guilty launch computes, with the tensors that it read, then ever
    fewer of them. If no such part shows the fault, parts of the whole program are tried. The result needs torch and
    the modules of --import, and nothing of aoti-debug; it prints one line and ends with exit code 1 if it shows the
    fault. A triage of that part has to confirm the finding; if it does not, the next larger part is tried, four in
    all. If the search is interrupted, the same command resumes it. Exit code 1: there is a finding, and a script that
    is confirmed; 7: there is a finding, and no such script; 8: nothing is wrong, and not all was compared.
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
        user_code=user_code,
    )
    with StepLines(LastDurations("minify", str(program.resolve()))) as progress:
        found = minify(chosen, progress)
    if as_json:
        print_json(document(found))
    else:
        print_lines(["", *minified_lines(_with_short_path(found))])
    if found.is_clean:
        context.exit(found.finding.kind.exit_code)
    context.exit(EXIT_FINDING if found.is_confirmed else EXIT_UNCONFIRMED)


def _with_short_path(found: Minified) -> Minified:
    """The result with the path of the script from here, if it lies below."""
    if found.smallest is None:
        return found
    shown = wording.short_path(found.smallest.script)
    return replace(found, smallest=replace(found.smallest, script=Path(shown)))
