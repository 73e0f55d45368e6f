"""`aoti-debug profile`: where the time of a model goes, launch by launch."""

from __future__ import annotations

from pathlib import Path

import click

from aoti_debug.app.cli import options
from aoti_debug.app.cli.lines import open_page, print_json, print_lines
from aoti_debug.app.cli.live_output import StepLines
from aoti_debug.base import wording
from aoti_debug.base.errors import EXIT_CLEAN, EXIT_FINDING, UsageError
from aoti_debug.base.machine.files import atomic_write
from aoti_debug.base.machine.files.results_home import ResultKind
from aoti_debug.base.machine.steps import LastDurations
from aoti_debug.base.machine.user_code import UserCode
from aoti_debug.compare.modules import PartedBy
from aoti_debug.views.profile.model_profile import document
from aoti_debug.views.profile.profile import CALLS, WARM_UP, ProfileOptions, profile
from aoti_debug.views.profile.text import profile_lines, profile_lines_by_module
from aoti_debug.views.profile.trace import slices, trace_text

LIMIT = 40  # rows


@click.command("profile")
@click.argument("model", metavar="MODEL.pt2", type=options.FilePath())
@options.inputs("the embedded ones")
@options.count(
    "--calls",
    f"How many calls are measured, after {WARM_UP} to warm up and, on a GPU, up to 20 without its profiler.",
    default=CALLS,
)
@click.option(
    "--cuda-graph",
    is_flag=True,
    help="On a GPU: capture a call in a CUDA graph, and measure N replays of it instead of calls.",
)
@click.option(
    "--against",
    metavar="OLD.pt2",
    type=options.FilePath(),
    help="Also measure this older model of the same program, in turn with MODEL.pt2: which launches are slower?",
)
@click.option(
    "--trace",
    metavar="FILE",
    type=options.FilePath(dir_okay=False),
    help="Also write a trace of all calls that Perfetto (ui.perfetto.dev) and chrome://tracing open.",
)
@click.option("--plot", is_flag=True, help="Also write an HTML page with a flame of modules, model lines and launches.")
@options.page_output("With --plot: the file to write.  [default: report/profile.html in the run]")
@options.opens("Write the page, as --plot does, and open it in the browser.")
@options.by("What the table has a row for.", PartedBy.LAUNCH)
@options.depth
@options.user_code
@options.out(ResultKind.PROFILES, "the profile")
@click.option("--all", "all_", is_flag=True, help=f"Show every launch, not only {LIMIT} of them.")
@options.json_output("profile")
@options.wide
@click.pass_context
def command(
    context: click.Context,
    *,
    model: Path,
    inputs: Path | None,
    calls: int,
    cuda_graph: bool,
    against: Path | None,
    trace: Path | None,
    plot: bool,
    output: Path | None,
    opens: bool,
    by: str,
    depth: int | None,
    user_code: UserCode,
    out: Path,
    all_: bool,
    as_json: bool,
    columns: int,
) -> None:
    """Show where the time of MODEL.pt2 goes: every launch, the slowest first, and the time between launches.

    MODEL.pt2 is an exported program, a compiled or an instrumented package. Each launch comes with its model line, the
    bytes that it moves, its floating-point operations, and how close it is to what this machine can do. Times are
    medians of the calls. Exit code 1: with --against, something is slower.
    """
    plot = plot or opens
    if output is not None and not plot:
        raise UsageError("-o needs --plot", hint=options.again_with("--plot"))
    chosen = ProfileOptions(model, against, out, cuda_graph, inputs=inputs, calls=calls, user_code=user_code)
    with StepLines(LastDurations("profile", str(model.resolve()))) as progress:
        found = profile(chosen, progress)
    if as_json:
        print_json(document(found, depth))
    elif by == PartedBy.MODULE:
        print_lines(["", *profile_lines_by_module(found, depth, columns)], columns=columns)
    else:
        print_lines(["", *profile_lines(found, None if all_ else LIMIT, columns)], columns=columns)
    if trace is not None:
        _write(trace, trace_text(slices(found.run, found.warm_up, found.on_device), model.name))
        print_lines([f"trace: {trace}, {wording.byte_size(trace.stat().st_size)}"], err=as_json)
    if plot:
        from aoti_debug.views.profile import page  # a table starts without the templates

        written = page.write(found, output)
        print_lines([f"page: {written}"], err=as_json)
        if opens:
            open_page(written)
    is_slower = found.changes is not None and bool(found.changes.slower)
    context.exit(EXIT_FINDING if is_slower else EXIT_CLEAN)


def _write(path: Path, text: str) -> None:
    """Writes a file.

    Raises:
        UsageError: it cannot be written.
    """
    try:
        atomic_write.write(path, text)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}", hint="--trace FILE names another file") from error
