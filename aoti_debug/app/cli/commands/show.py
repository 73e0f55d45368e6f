"""`aoti-debug show`: shows what a run recorded."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from aoti_debug.app.cli import options
from aoti_debug.app.cli.options import CallOptions, CodeOptions, modules_and_lines
from aoti_debug.app.cli.ranks import newest_ranks, ranks_named
from aoti_debug.app.cli.show_run import LIMIT, ShowOptions, require_no_option, show_ranks, show_run
from aoti_debug.base.abi import Phase
from aoti_debug.base.errors import UsageError
from aoti_debug.package.recording_settings import SiteFilter
from aoti_debug.runs.rundir import run_directory

PHASES = {"before": (Phase.BEFORE,), "after": (Phase.AFTER,), "both": (Phase.BEFORE, Phase.AFTER)}
_OF_RANKS = ("what", "run", "trusted", "columns", "as_json", "agree", "sharded")  # options that a run of ranks takes
_OF_CALLS = ("operators", "where", "hashes", "eager")  # options that --calls takes


@click.command("show")
@click.argument(
    "what", metavar="[RUN|KERNEL|NUMBER]", required=False, shell_complete=options.completing("runs_and_launches")
)
@options.run
@click.option(
    "--phase",
    type=click.Choice(list(PHASES)),
    help="Values to show of each argument.  [default: inputs before, outputs after, in-out both]",
)
@modules_and_lines("Show only launches")
@click.option("--calls", is_flag=True, help="Print the launches in DebugMode's format, by module.")
@click.option(
    "--operator",
    "operators",
    metavar="PATTERN",
    multiple=True,
    help="With --calls: only calls of operators that match, and kernels that hold one: 'aten::mm'. Repeatable.",
)
@click.option(
    "--where",
    metavar="CONDITION",
    help="With --calls: only calls with a tensor that meets this: 'nan', 'absmax > 1e4', 'dtype == f16'.",
)
@click.option("--hashes", is_flag=True, help="With --calls: with the hash of every recorded tensor.")
@click.option(
    "--eager",
    metavar="PROGRAM.pt2",
    type=options.FilePath(),
    help="With --calls: call this exported program in eager with the inputs of the run, and word its calls.",
)
@options.trust
@click.option(
    "--races",
    is_flag=True,
    help="Show launches of different threads that were passed the same memory, one of them writing, in no order.",
)
@click.option("--source", is_flag=True, help="Show the source of the kernel, too, with the model lines beside it.")
@click.option("--ptx", is_flag=True, help="Show the PTX of a Triton kernel, where Triton's cache still has it.")
@click.option("--sass", is_flag=True, help="Show the machine code of a Triton kernel, disassembled.")
@click.option(
    "--all",
    "all_",
    is_flag=True,
    help=f"Show every launch, not only {LIMIT} of them; of a launch, every FX node and every stack.",
)
@options.wide
@options.json_output("show", " Of several ranks: --json-schema ranks.")
@click.option(
    "--agree",
    metavar="PATTERN",
    multiple=True,
    help="Of several ranks: arguments that should be equal on all: 'buf7', 'KERNEL:buf7'. Repeatable.",
)
@click.option(
    "--sharded",
    metavar="PATTERN",
    multiple=True,
    help="Of several ranks: weights that each has its own part of: '*.experts.*'. Repeatable.",
)
@click.pass_context
def command(
    context: click.Context,
    *,
    what: str | None,
    run: str | None,
    phase: str | None,
    modules: tuple[str, ...],
    lines: tuple[str, ...],
    calls: bool,
    operators: tuple[str, ...],
    where: str | None,
    hashes: bool,
    eager: Path | None,
    trusted: bool,
    races: bool,
    source: bool,
    ptx: bool,
    sass: bool,
    all_: bool,
    columns: int,
    as_json: bool,
    agree: tuple[str, ...],
    sharded: tuple[str, ...],
) -> None:
    """Show the launches of a run: the latest one, or RUN. Of a triage, all of its finding comes first.

    Of a run of several ranks (torchrun), shows all ranks: the first that failed, those that wait, and tensors that
    should agree; RUN/rank2 is the run of one. A KERNEL or NUMBER is of the rank that failed first, or else of the
    first.

    Given a KERNEL, or the beginning of its name, or the NUMBER of a launch (0.3, or 3 for short), shows those in full:
    arguments, values, files, grid, model lines. A pattern of kernel names, or a line of the model (model.py:23),
    selects rows of the table. A run that was killed is shown up to its last record.
    """
    asked = ShowOptions(
        what=what,
        run=run,
        phases=None if phase is None else PHASES[phase],
        launches=SiteFilter(modules=modules, lines=lines),
        calls=CallOptions(operators, where or "", hashes, eager, trusted) if calls else None,
        code=CodeOptions(source, ptx, sass, trusted),
        is_whole=all_,
        columns=columns,
        as_json=as_json,
        agree=agree,
        sharded=sharded,
        races=races,
    )
    given = options.given(context)
    for name in (what, run):
        run_directory.refuse_archive(str(name or ""))
    ranks = ranks_named(what, run)
    if ranks is not None:
        require_no_option([option for name, option in given.items() if name not in _OF_RANKS], ranks)
        show_ranks(ranks, asked)
        return
    if agree or sharded:
        name = newest_ranks()
        hint = "there is none here" if name is None else f"aoti-debug show {shlex.quote(name)}"
        raise UsageError("--agree and --sharded need a run of several ranks", hint=hint)
    of_calls = [option for name, option in given.items() if name in _OF_CALLS]
    if of_calls and not calls:
        raise UsageError(f"{of_calls[0]} needs --calls", hint=options.again_with("--calls"))
    show_run(asked)
