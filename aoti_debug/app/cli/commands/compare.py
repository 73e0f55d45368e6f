"""`aoti-debug compare`: every launch of a model against what its program says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from aoti_debug.app.cli import options
from aoti_debug.app.cli.lines import open_page, print_json, print_lines
from aoti_debug.app.cli.live_output import StepLines
from aoti_debug.app.cli.options import modules_and_lines
from aoti_debug.base import wording
from aoti_debug.base.errors import AotiDebugError
from aoti_debug.base.machine.files.results_home import ResultKind
from aoti_debug.base.machine.steps import LastDurations, Steps
from aoti_debug.base.machine.user_code import UserCode
from aoti_debug.compare.by_module import fused_document, module_lines, module_notes, modules_document, modules_of
from aoti_debug.compare.compare import CompareOptions, compare
from aoti_debug.compare.comparison import Comparison
from aoti_debug.compare.modules import PartedBy
from aoti_debug.compare.outcome import exit_code, report_lines
from aoti_debug.compare.stored_comparison import document, keep_in_run
from aoti_debug.package.recording_settings import SiteFilter
from aoti_debug.views.report import report


@click.command("compare")
@click.argument("model", metavar="MODEL.pt2", type=click.Path(path_type=Path))
@options.inputs("the example inputs of the program")
@options.random_inputs()
@click.option(
    "--exported",
    metavar="PROGRAM.pt2",
    type=options.FilePath(),
    help="The exported program that a compiled package came from: it is what the launches are compared with.",
)
@options.calls
@options.filters("Compare only launches of kernels that match (* ? []); !PATTERN excludes.")
@modules_and_lines("Compare only launches")
@click.option(
    "--metric",
    metavar="FILE.py:FUNCTION",
    default="",
    help="Also print what this function of two tensors, actual and expected, returns.",
)
@options.by("What the table has a row for, and the JSON lists.", PartedBy.LAUNCH)
@options.depth
@options.inductor_configs
@options.user_code
@options.out(ResultKind.COMPARES, "the comparison")
@click.option("--report", "with_report", is_flag=True, help="Also write an HTML page of the run and its comparison.")
@options.opens("Write the page, as --report does, and open it in the browser.")
@options.wide
@options.json_output("compare")
@click.pass_context
def command(
    context: click.Context,
    *,
    model: Path,
    inputs: Path | None,
    random_inputs: int | None,
    exported: Path | None,
    calls: int,
    filters: tuple[str, ...],
    modules: tuple[str, ...],
    lines: tuple[str, ...],
    metric: str,
    by: str,
    depth: int | None,
    configs: tuple[str, ...],
    user_code: UserCode,
    out: Path,
    with_report: bool,
    opens: bool,
    columns: int,
    as_json: bool,
) -> None:
    """Compare every launch of MODEL.pt2 with what its program says.

    MODEL.pt2 is an exported program, a package that `aoti-debug build` made, a run directory, or a package that torch
    has compiled; without --exported, that is compared with the sources of its kernels. The model is run at level 1, and
    the graph that its kernels come from is evaluated, launch by launch, from the inputs that each launch was
    recorded with: in eager's dtypes, in the arithmetic of kernels and in float64. A launch is wrong if it differs by
    more than rounding explains. Exit code 1: a launch, a state or an output of the model is wrong or not what eager
    has, eager refuses the inputs, or the run did not end well; 8: clean as far as compared.
    """
    chosen = CompareOptions(
        model=model,
        inputs=inputs,
        random_inputs=random_inputs,
        exported=exported,
        calls=calls,
        filters=SiteFilter(filters, modules, lines),
        metric=metric,
        out=out,
        inductor_configs=options.parse_configs(configs),
        user_code=user_code,
    )
    with StepLines(LastDurations("compare", str(model.resolve()))) as progress:
        comparison = compare(chosen, progress)
        if by == PartedBy.MODULE and not comparison.unfinished:
            comparison = _timed(comparison, user_code, Steps(progress))
    page = _report(comparison) if with_report or opens else None
    modules_found = modules_of(comparison, depth) if by == PartedBy.MODULE else ()
    if as_json:
        fused = fused_document(comparison, modules_found, depth)
        print_json(document(comparison) | {"modules": modules_document(modules_found), "fused": fused})
    else:
        notes = module_notes(comparison, modules_found, depth)
        table = module_lines(modules_found, notes, columns) if modules_found else ()
        named = [] if page is None else [f"  report   {page}"]
        print_lines(["", *report_lines(comparison, columns, table), *named], columns=columns)
    if opens and page is not None:
        open_page(page)
    context.exit(exit_code(comparison))


def _timed(comparison: Comparison, user_code: UserCode, steps: Steps) -> Comparison:
    """The comparison with the times of its launches, which its run keeps; without them where they cannot be taken."""
    from aoti_debug.views.profile.profile import launch_times  # a table of launches starts without it

    with steps.step("run for times") as note:
        try:
            times = launch_times(comparison.run, Path(comparison.directory) / "times", user_code)
        except AotiDebugError as error:
            note.text = f"no times: {wording.first_line(str(error))}"
            return comparison
        note.text = f"{wording.duration(times.call)} a call"
    found = replace(comparison, times=times)
    keep_in_run(found, steps)
    return found


def _report(comparison: Comparison) -> Path:
    """Writes the page; returns its path."""
    return report.write(report.of_comparison(comparison), Path(comparison.directory) / report.REPORT)
