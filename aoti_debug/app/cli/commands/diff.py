"""`aoti-debug diff`: two runs against each other."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from aoti_debug.app.cli import options
from aoti_debug.app.cli.lines import open_page, print_json, print_lines, width
from aoti_debug.app.cli.live_output import StepLines
from aoti_debug.base.errors import EXIT_CLEAN, EXIT_FINDING, EXIT_INCOMPLETE, UsageError
from aoti_debug.base.machine.files import stamped_directories
from aoti_debug.base.machine.files.results_home import ResultKind
from aoti_debug.base.machine.steps import LastDurations
from aoti_debug.base.machine.user_code import UserCode
from aoti_debug.base.terminal_cells import UNLIMITED
from aoti_debug.compare.diff import budget
from aoti_debug.compare.diff.diff import DiffOptions, diff
from aoti_debug.compare.diff.difference import Diff, modules_of
from aoti_debug.compare.diff.document import document, modules_document
from aoti_debug.compare.diff.text import MAX_LISTED, diff_lines, module_lines
from aoti_debug.compare.modules import PartedBy
from aoti_debug.package import recording_settings


@click.command("diff")
@click.argument("a", metavar="A", type=click.Path(path_type=Path), shell_complete=options.completing("runs_and_files"))
@click.argument("b", metavar="B", type=click.Path(path_type=Path), shell_complete=options.completing("runs_and_files"))
@options.inputs("those of the run beside a model, or embedded ones", whose=" for both models")
@click.option(
    "--calls",
    metavar="N",
    type=click.IntRange(min=1),
    help="How many times to call the models.  [default: as often as in the run beside a model, or once]",
)
@click.option(
    "--level",
    metavar="LEVEL",
    type=options.LevelType(recording_settings.WITH_HASHES),
    default=1,
    show_default=True,
    help="Of the runs of models: 1 saves tensors; 2 records hashes and statistics, hash only hashes: where they part, "
    "not by how much.",
)
@click.option(
    "--gate",
    metavar="BUDGET.toml",
    type=options.FilePath(),
    help="What may differ (docs/diff.md); exit code 1 only if more does.",
)
@click.option(
    "--no-reference",
    "skips_reference",
    is_flag=True,
    help="Do not compute in float64, with the programs in the packages, whether rounding explains what differs.",
)
@options.user_code
@options.out(ResultKind.DIFFS, "the runs, or of the page,")
@options.by("What is listed, and what the JSON has.", PartedBy.LAUNCH)
@options.depth
@click.option("--all", "show_all", is_flag=True, help="List everything that differs.")
@click.option("--report", "with_report", is_flag=True, help="Also write an HTML page of both runs.")
@options.page_output("With --report: the file to write.  [default: report/index.html in the directory of the runs]")
@options.opens("Write the page, as --report does, and open it in the browser.")
@options.json_output("diff")
@click.pass_context
def command(
    context: click.Context,
    *,
    a: Path,
    b: Path,
    inputs: Path | None,
    calls: int | None,
    level: int,
    gate: Path | None,
    skips_reference: bool,
    user_code: UserCode,
    out: Path,
    by: str,
    depth: int | None,
    show_all: bool,
    with_report: bool,
    output: Path | None,
    opens: bool,
    as_json: bool,
) -> None:
    """Compare run B with run A: the first launch that reads the same bytes and writes others.

    A and B are run directories or names of runs; an exported program, a compiled or an instrumented package is built
    and run first. Launches are paired by kernel and position if both runs are of the same generated code, otherwise by
    the values of the program that they write: with other fusion, on another device, with another torch. What later
    launches make of a difference counts as its consequence. If tensors were saved, each launch that differs is also
    computed in float64, on both sides, from what it read: is it only rounding? Exit code 1: the runs differ, or by more
    than the budget.
    """
    with_report = with_report or opens
    if output is not None and not with_report:
        raise UsageError("-o needs --report", hint=options.again_with("--report"))
    allowed = None if gate is None else budget.read(gate)
    chosen = DiffOptions(
        a=a,
        b=b,
        inputs=inputs,
        calls=calls,
        level=level,
        explains=not skips_reference,
        out=out,
        user_code=user_code,
    )
    with StepLines(LastDurations("diff", f"{a.resolve()} {b.resolve()}")) as progress:
        found = diff(chosen, progress)
    excesses = None if allowed is None else allowed.excesses(found)
    page = _report(found, excesses, output, out) if with_report else None
    modules = modules_of(found, depth) if by == PartedBy.MODULE else ()
    if as_json:
        print_json(document(found, excesses) | {"modules": modules_document(modules)})
    else:
        most, columns = (sys.maxsize, UNLIMITED) if show_all else (MAX_LISTED, width())
        table = module_lines(modules, columns) if modules else ()
        print_lines(["", *diff_lines(found, excesses, most=most, table=table), *_page_line(page)])
    if opens and page is not None:
        open_page(page)
    is_clean = found.is_same if excesses is None else not excesses
    context.exit(EXIT_FINDING if not is_clean else EXIT_CLEAN if found.is_compared else EXIT_INCOMPLETE)


def _page_line(page: Path | None) -> list[str]:
    return [] if page is None else [f"  report   {page}"]


def _report(found: Diff, excesses: Sequence[str] | None, output: Path | None, base: Path) -> Path:
    """Writes the page; returns its path."""
    from aoti_debug.views.report import diff_page  # a comparison without a page starts without the templates
    from aoti_debug.views.report.subject import REPORT

    path = output or (found.directory or _new_directory(base)) / REPORT
    return diff_page.write(found, excesses, path)


def _new_directory(base: Path) -> Path:
    """A directory for the page of two runs that were there.

    Raises:
        UsageError: it cannot be made.
    """
    directory = stamped_directories.make(base)
    stamped_directories.link_latest(directory)
    return directory
