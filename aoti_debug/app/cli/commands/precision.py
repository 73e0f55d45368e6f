"""`aoti-debug precision`: which parts of a model may be rounded to a narrower dtype."""

from __future__ import annotations

from pathlib import Path

import click

from aoti_debug.app.cli import options
from aoti_debug.app.cli.lines import print_json, print_lines, show_page
from aoti_debug.app.cli.live_output import StepLines
from aoti_debug.base.dtypes import FLOAT_FORMATS
from aoti_debug.base.machine.files.results_home import ResultKind
from aoti_debug.base.machine.steps import LastDurations
from aoti_debug.base.machine.user_code import UserCode
from aoti_debug.compare.modules import PartedBy
from aoti_debug.compare.what_if.precision import TOLERANCE, PrecisionOptions, precision
from aoti_debug.compare.what_if.precision_text import precision_document, precision_lines
from aoti_debug.views.report import answer_page


@click.command("precision")
@click.argument("model", metavar="MODEL.pt2", type=click.Path(path_type=Path))
@click.option(
    "--to", type=click.Choice(list(FLOAT_FORMATS)), default="bfloat16", show_default=True, help="The dtype to round to."
)
@options.by("What is rounded alone.", PartedBy.MODULE)
@options.depth
@click.option(
    "--tolerance",
    metavar="X",
    type=float,
    default=TOLERANCE,
    show_default=True,
    help="The largest relative error of an output that the proposal may make.",
)
@click.option(
    "--build",
    "builds",
    is_flag=True,
    help="Also build an exported program with casts in the modules that may be rounded, and see if its outputs agree.",
)
@options.inputs("the embedded ones")
@options.random_inputs()
@options.calls
@options.inductor_configs
@options.user_code
@options.out(ResultKind.REPLAYS, "the runs")
@options.report_page
@options.wide
@options.json_output("precision")
@click.pass_context
def command(
    context: click.Context,
    *,
    model: Path,
    to: str,
    by: str,
    depth: int | None,
    tolerance: float,
    builds: bool,
    inputs: Path | None,
    random_inputs: int | None,
    calls: int,
    configs: tuple[str, ...],
    user_code: UserCode,
    out: Path,
    with_report: bool,
    opens: bool,
    columns: int,
    as_json: bool,
) -> None:
    """Round modules of MODEL.pt2 to bfloat16, float16 or float8: find those that have to stay as they are.

    MODEL.pt2 is an exported program, a package, or a run directory. The real package is run once for each module: what
    its launches read, weights too, and what they write is rounded to the numbers of the dtype. The table says how much
    the outputs change, the most sensitive module first, and which numbers the dtype has no room for. Then as many
    modules as the tolerance allows are rounded at once. Inside of a kernel nothing is rounded. Exit code 1: modules
    have to stay; 8: none has to, but kernels may compute several operators, and --build was not given.
    """
    chosen = PrecisionOptions(
        model=model,
        to=to,
        by=PartedBy(by),
        depth=depth,
        tolerance=tolerance,
        builds=builds,
        inputs=inputs,
        random_inputs=random_inputs,
        calls=calls,
        inductor_configs=options.parse_configs(configs),
        user_code=user_code,
        out=out,
    )
    with StepLines(LastDurations("precision", str(model.resolve()))) as progress:
        found = precision(chosen, progress)
    answer_page.keep(answer_page.of_precision(found, model.name), found.directory)
    if as_json:
        print_json(precision_document(found))
    else:
        print_lines(["", *precision_lines(found, columns)], columns=columns)
    if with_report or opens:
        show_page(answer_page.write(found.directory), opens=opens, err=as_json)
    context.exit(found.exit_code)
