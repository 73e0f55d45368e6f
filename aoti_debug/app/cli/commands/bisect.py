"""`aoti-debug bisect`: which launches, or which settings, make a program wrong."""

from __future__ import annotations

from pathlib import Path

import click

from aoti_debug.app.cli import options
from aoti_debug.app.cli.lines import print_json, print_lines
from aoti_debug.app.cli.live_output import StepLines
from aoti_debug.base.errors import EXIT_CLEAN, EXIT_FINDING, EXIT_INCOMPLETE, UsageError
from aoti_debug.base.machine.files.results_home import ResultKind
from aoti_debug.base.machine.steps import LastDurations
from aoti_debug.base.machine.user_code import UserCode
from aoti_debug.compare.bisect.bisect import BisectOptions, bisect_packages, bisect_settings
from aoti_debug.compare.bisect.build_trials import TIME_LIMIT, SettingsOptions
from aoti_debug.compare.bisect.text import bisection_document, bisection_lines, settings_document, settings_lines


@click.command("bisect")
@click.argument("good", metavar="GOOD.pt2", type=click.Path(path_type=Path))
@click.argument("bad", metavar="[BAD.pt2]", required=False, type=click.Path(path_type=Path))
@click.option(
    "--settings",
    is_flag=True,
    help="Of one exported program: find the Inductor setting, pass, lowering or decomposition that makes it wrong.",
)
@options.seconds("--time-limit", "With --settings: end after this time; the same command goes on.", default=TIME_LIMIT)
@options.inductor_configs
@options.inputs("the embedded ones", whose=" for both models")
@options.calls
@options.user_code
@options.out(ResultKind.BISECTS, "the bisection")
@options.json_output("bisect", " With --settings it is another one: bisect-settings.")
@click.pass_context
def command(
    context: click.Context,
    *,
    good: Path,
    bad: Path | None,
    settings: bool,
    time_limit: float,
    configs: tuple[str, ...],
    inputs: Path | None,
    calls: int,
    user_code: UserCode,
    out: Path,
    as_json: bool,
) -> None:
    """Find the launches that make BAD.pt2 wrong, where GOOD.pt2, of the same program, is right.

    Or, with --settings, what makes one exported program wrong.

    Both are exported programs, compiled or instrumented packages; they are built and run as needed. Launches are paired
    as by `aoti-debug diff`. In one run, each launch of the bad package reads what the good one has written: those that
    write something else are suspects, all of them at once. Culprits are those whose difference rounding does not
    explain; a run with their results replaced shows whether the outputs match again. Exit code 1: there are culprits.

    With --settings, the program is built with changes, and compared as by `aoti-debug compare`, until some fix it:
    what --inductor-config asks for is left out, usual suspects are changed, lowerings, decompositions and passes are
    left out. Of those that fix it together, the smallest set is searched. If it is interrupted, or --time-limit is over
    (exit code 8), the same command resumes it. The exit code is 8, too, if nothing is wrong and not all was compared.
    """
    if settings:
        if bad is not None:
            raise UsageError("--settings takes one exported program", hint="leave out the second package")
        asked = SettingsOptions(
            program=good,
            inductor_configs=options.parse_configs(configs),
            inputs=inputs,
            calls=calls,
            out=out,
            user_code=user_code,
            time_limit=time_limit,
        )
        with StepLines(LastDurations("bisect", f"{good.resolve()} settings")) as progress:
            cause = bisect_settings(asked, progress)
        if as_json:
            print_json(settings_document(cause))
        else:
            print_lines(["", *settings_lines(cause)])
        baseline = cause.trials[0]
        if baseline.is_right:
            context.exit(EXIT_INCOMPLETE if baseline.not_compared else EXIT_CLEAN)
        context.exit(EXIT_FINDING if cause.ended_after is None else EXIT_INCOMPLETE)
    if bad is None:
        raise UsageError(
            "a second package is missing", hint=f"name the wrong one, too, or: {options.again_with('--settings')}"
        )
    if configs:
        raise UsageError("--inductor-config is for --settings", hint="build each package with its settings first")
    chosen = BisectOptions(good=good, bad=bad, inputs=inputs, calls=calls, out=out, user_code=user_code)
    with StepLines(LastDurations("bisect", f"{good.resolve()} {bad.resolve()}")) as progress:
        found = bisect_packages(chosen, progress)
    if as_json:
        print_json(bisection_document(found))
    else:
        print_lines(["", *bisection_lines(found)])
    context.exit(EXIT_CLEAN if found.is_clean else EXIT_FINDING)
