"""`aoti-debug equal`: the smallest set of changes with which a package is equal to eager, bit for bit."""

from __future__ import annotations

from pathlib import Path

import click

from aoti_debug.app.cli import options
from aoti_debug.app.cli.lines import print_json, print_lines, show_page
from aoti_debug.app.cli.live_output import StepLines
from aoti_debug.base.machine.files.results_home import ResultKind
from aoti_debug.base.machine.steps import LastDurations
from aoti_debug.base.machine.user_code import UserCode
from aoti_debug.compare.bisect.equal import MAX_BUILDS, TIME_LIMIT, EqualOptions, find_equal
from aoti_debug.compare.bisect.equal_result import equal_document, equal_lines, exit_code
from aoti_debug.runs.run.timed_pairs import PAIRS
from aoti_debug.views.report import answer_page


@click.command("equal")
@click.argument("program", metavar="MODEL.pt2", type=click.Path(path_type=Path))
@options.inductor_configs
@click.option(
    "--inputs",
    metavar="FILE",
    type=options.FilePath(),
    multiple=True,
    help="Inputs (.pt or .safetensors) to be equal on; repeat it for several sets.  [default: the embedded ones]",
)
@options.calls
@options.count(
    "--max-builds", "How many builds to make at most; the same command goes on with further ones.", default=MAX_BUILDS
)
@options.seconds(
    "--time-limit", "Begin no further build after this time; the same command goes on.", default=TIME_LIMIT
)
@options.count(
    "--pairs", "How often to time calls of each two packages in turn; 0 for no times.", default=PAIRS, least=0
)
@options.user_code
@options.out(ResultKind.BISECTS, "the search")
@options.report_page
@options.json_output("equal")
@click.pass_context
def command(
    context: click.Context,
    *,
    program: Path,
    configs: tuple[str, ...],
    inputs: tuple[Path, ...],
    calls: int,
    max_builds: int,
    time_limit: float,
    pairs: int,
    user_code: UserCode,
    out: Path,
    with_report: bool,
    opens: bool,
    as_json: bool,
) -> None:
    """Find the smallest set of changes with which the package of MODEL.pt2 is equal to eager, bit for bit.

    The exported program is built with changes: settings that make kernels round as eager does, decompositions and
    lowerings of the launches that are not equal left out, passes left out. Each build is run, and every launch compared
    with eager from the same inputs, and what the model returns and keeps with the exported program in eager.

    The answer is a set of which no change can be left out, each with the launches that it heals and the time that a
    call takes with it, in pairs; or the launches that stay unequal with all changes together. If it is interrupted, or
    its builds or its time are used up, the same command goes on.

    Exit code 0: equal already; 1: not equal; 7: what it is compared with is not repeatable or not comparable, or the
    search did not come to its end.
    """
    asked = EqualOptions(
        program=program,
        inductor_configs=options.parse_configs(configs),
        inputs=inputs[0] if inputs else None,
        further_inputs=inputs[1:],
        calls=calls,
        max_builds=max_builds,
        time_limit=time_limit,
        pairs=pairs,
        out=out,
        user_code=user_code,
    )
    with StepLines(LastDurations("equal", str(program.resolve()))) as progress:
        found = find_equal(asked, progress)
    directory = Path(found.directory)
    answer_page.keep(answer_page.of_equal(found, program.name), directory)
    if as_json:
        print_json(equal_document(found))
    else:
        print_lines(["", *equal_lines(found)])
    if with_report or opens:
        show_page(answer_page.write(directory), opens=opens, err=as_json)
    context.exit(exit_code(found))
