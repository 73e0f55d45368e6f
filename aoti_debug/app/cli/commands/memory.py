"""`aoti-debug memory`: the peak of a model's memory, and which buffers make it."""

from __future__ import annotations

from pathlib import Path

import click

from aoti_debug.app.cli import options
from aoti_debug.app.cli.lines import open_page, print_json, print_lines
from aoti_debug.app.cli.live_output import StepLines
from aoti_debug.base.errors import EXIT_CLEAN, EXIT_FINDING, UsageError
from aoti_debug.base.machine.files.results_home import ResultKind
from aoti_debug.base.machine.files.stamped_directories import LATEST
from aoti_debug.base.machine.steps import LastDurations
from aoti_debug.base.machine.user_code import UserCode
from aoti_debug.views.memory.memory import MemoryOptions, document, memory
from aoti_debug.views.memory.storage_timeline import kept_memory
from aoti_debug.views.memory.text import MAX_STORAGES, memory_lines


@click.command("memory")
@click.argument(
    "what",
    metavar="[MODEL.pt2|RUN]",
    type=options.FilePath(),
    default=Path(LATEST),
    shell_complete=options.completing("runs_and_files"),
)
@options.inputs("those embedded in it", whose=" for the model")
@options.calls
@options.user_code
@options.out(ResultKind.MEMORY, "the run")
@click.option("--all", "show_all", is_flag=True, help=f"List every buffer, not only {MAX_STORAGES} of each table.")
@click.option("--plot", is_flag=True, help="Also write an HTML page with a picture: bytes over launches, by buffer.")
@options.page_output("With --plot: the file to write.  [default: report/memory.html in the run]")
@options.opens("Write the page, as --plot does, and open it in the browser.")
@options.wide
@options.json_output("memory")
@click.pass_context
def command(
    context: click.Context,
    *,
    what: Path,
    inputs: Path | None,
    calls: int,
    user_code: UserCode,
    out: Path,
    show_all: bool,
    plot: bool,
    output: Path | None,
    opens: bool,
    columns: int,
    as_json: bool,
) -> None:
    """Show the peak of a model's memory, its launch and model line, and which buffers are alive then.

    MODEL.pt2 is an exported program, a compiled or an instrumented package; it is built and run at level 3. Of a RUN
    (without a name the newest), nothing is run. The peak counts what a call allocates: buffers and outputs, not inputs
    and weights. Exit code 1: what is allocated grows from call to call, and a launch was seen to keep it.
    """
    plot = plot or opens
    if output is not None and not plot:
        raise UsageError("-o needs --plot", hint=options.again_with("--plot"))
    chosen = MemoryOptions(what, out, inputs=inputs, calls=calls, user_code=user_code)
    with StepLines(LastDurations("memory", str(what.resolve()))) as progress:
        found = memory(chosen, progress)
    written: Path | None = None
    if plot:
        from aoti_debug.views.memory import page  # a table starts without the templates

        written = page.write(found, output)
    lines = [] if written is None else [f"page: {written}"]
    if as_json:
        print_json(document(found))
    else:
        print_lines(["", *memory_lines(found, None if show_all else MAX_STORAGES, columns), *lines], columns=columns)
    if opens and written is not None:
        open_page(written)
    is_kept = any(kept.is_measured for kept in kept_memory(found.memory, found.measured))
    context.exit(EXIT_FINDING if is_kept else EXIT_CLEAN)
