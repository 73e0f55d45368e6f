"""`aoti-debug show`: shows what a run recorded."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from aoti_debug.app.cli import options
from aoti_debug.app.cli.lines import print_lines, width
from aoti_debug.app.cli.options import modules_and_lines
from aoti_debug.app.cli.ranks import one_rank, ranks_named
from aoti_debug.base.abi import Phase
from aoti_debug.base.errors import UsageError
from aoti_debug.base.lazy.dataclass import dataclass
from aoti_debug.package.recording import site_filter
from aoti_debug.package.recording.site_filter import SiteFilter
from aoti_debug.runs.diagnosis.diagnosed_run import DiagnosedRun
from aoti_debug.runs.diagnosis.open_diagnosed import open_diagnosed
from aoti_debug.runs.rundir import breadcrumbs, run_directory
from aoti_debug.runs.rundir.run_directory import RunDir, name_hint
from aoti_debug.runs.rundir.run_json import ExitKind
from aoti_debug.runs.rundir.timeline import Launch
from aoti_debug.runs.show.argument_statistics import Measurer
from aoti_debug.runs.show.overview import BUDGET, excerpt, header, overview, table
from aoti_debug.runs.show.terminal_cells import UNLIMITED
from aoti_debug.views.call_text.options import CallOptions
from aoti_debug.views.kernel_code.options import CodeOptions

if TYPE_CHECKING:
    from aoti_debug.app.cli.commands.show_code import RunCode  # a plain `show` starts without it

LIMIT = 400  # rows of a table
MAX_IN_FULL = 3  # launches of one kernel that are shown in full
PHASES = {"before": (Phase.BEFORE,), "after": (Phase.AFTER,), "both": (Phase.BEFORE, Phase.AFTER)}


@dataclass(frozen=True)
class Selection:
    """The run, and the launches of it, that the command line asks for.

    Attributes:
        launches: those that it names; None for the run as a whole.
        in_full: True if it names them (a launch, a kernel); False for a pattern.
    """

    diagnosed: DiagnosedRun
    launches: tuple[Launch, ...] | None
    in_full: bool = True

    @property
    def run(self) -> RunDir:
        """The run without its diagnosis."""
        return self.diagnosed.run


@click.command("show")
@click.argument("what", metavar="[RUN|KERNEL|NUMBER]", required=False)
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
@options.json_output("docs/show.schema.json", " Of several ranks: docs/ranks.schema.json.")
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
def command(
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
    source: bool,
    ptx: bool,
    sass: bool,
    all_: bool,
    wide: bool,
    as_json: bool,
    agree: tuple[str, ...],
    sharded: tuple[str, ...],
) -> None:
    """Show the launches of a run: the latest one, or RUN.

    Of a run of several ranks (torchrun), shows all ranks: the first that failed, those that wait, and tensors that
    should agree; RUN/rank2 is the run of one. A KERNEL or NUMBER is of the rank that failed first, or else of the
    first.

    Given a KERNEL or the NUMBER of a launch (0.3, or 3 for short), shows those in full: arguments, values, files, grid,
    model lines. A pattern of kernel names selects rows of the table. A run that was killed is shown up to its last
    record.
    """
    chosen = SiteFilter(modules=modules, lines=lines)
    all_ranks = ranks_named(what, run)
    if all_ranks is not None:
        of_one_rank = {
            "--phase": phase,
            "--module": modules,
            "--line": lines,
            "--calls": calls,
            "--operator": operators,
            "--where": where,
            "--hashes": hashes,
            "--eager": eager,
            "--source": source,
            "--ptx": ptx,
            "--sass": sass,
            "--all": all_,
        }
        from aoti_debug.app.cli.commands import show_ranks  # a `show` of one process starts without it

        show_ranks.require_no_option_of_one_rank(all_ranks, of_one_rank)
        show_ranks.print_ranks(all_ranks, agree, sharded, as_json, UNLIMITED if wide else width())
        return
    if agree or sharded:
        raise UsageError("--agree and --sharded need a run of several ranks", hint="aoti-debug show RUN")
    selected = select(what, run)
    _keep_crumbs(selected.run)
    if calls:
        wanted = CallOptions(operators, where or "", hashes, eager, trusted)
        _print_calls(selected, chosen, wanted, None if all_ else LIMIT)
        return
    for option, is_given in (("--operator", operators), ("--where", where), ("--hashes", hashes), ("--eager", eager)):
        if is_given:
            raise UsageError(f"{option} needs --calls", hint="aoti-debug show --calls")
    selection = narrowed(selected, chosen)
    code = CodeOptions(source, ptx, sass, trusted)
    if code and not (selection.in_full and selection.launches):
        raise UsageError("--source, --ptx and --sass need a launch", hint="aoti-debug show KERNEL, or NUMBER, --source")
    columns = UNLIMITED if wide else width()
    if as_json:
        _print_document(selection, code)
    elif selection.launches is None:
        _print_overview(selection.diagnosed, None if all_ else LIMIT, columns)
    else:
        _print_launches(selection, None if phase is None else PHASES[phase], code, all_, columns)


def select(what: str | None, run: str | None) -> Selection:
    """Opens the run and selects the launches that the command line names.

    Raises:
        UsageError: `what` is neither a run, nor a kernel, nor a launch; the hint lists similar names.
        RunDirError: there is no such run or launch, or the run is damaged.
    """
    if run is None and what is not None and names_a_run(what):
        return Selection(open_diagnosed(what), None)
    diagnosed = open_diagnosed(one_rank(run))
    opened = diagnosed.run
    if what is None:
        return Selection(diagnosed, None)
    if run_directory.is_launch_id(what):
        return Selection(diagnosed, (opened.launch(what),))
    launches = opened.launches_of(what)
    if launches:
        return Selection(diagnosed, launches, in_full=all(launch.kernel == what for launch in launches))
    known = (*opened.kernels(), *dict.fromkeys(site.kernel for site in opened.manifest.sites))
    if what in known:
        raise UsageError(f"{what} was not launched in run {opened.path.name}", hint=name_hint(what, opened.kernels()))
    raise UsageError(
        f"{what!r} is neither a run, nor a kernel, nor a launch of run {opened.path.name}",
        hint=name_hint(what, dict.fromkeys((*known, *run_directory.runs(opened.path.parent)))),
    )


def narrowed(selection: Selection, chosen: SiteFilter) -> Selection:
    """The selection without the launches that do not pass a filter.

    Raises:
        UsageError: no launch passes it, or the run holds no module paths or model lines.
    """
    if not chosen:
        return selection
    run, before = selection.run, selection.launches
    site_filter.check_patterns(chosen)
    site_filter.require_names(run.manifest, chosen, f"run {run.path.name}")
    sites = chosen.site_ids(run.manifest.sites)
    launches = tuple(launch for launch in (run.launches if before is None else before) if launch.site.id in sites)
    if not launches:
        criterion, pattern = chosen.patterns()[0]
        known = site_filter.known_names({launch.site.id: launch.site for launch in run.launches}.values(), criterion)
        raise UsageError(f"no launch of run {run.path.name} passes {chosen.options}", hint=name_hint(pattern, known))
    return replace(selection, launches=launches, in_full=before is not None and selection.in_full)


def _print_calls(selection: Selection, chosen: SiteFilter, wanted: CallOptions, limit: int | None) -> None:
    from aoti_debug.app.cli.commands.show_calls import lines_of_calls  # a plain `show` starts without it

    run = selection.run
    if wanted.eager is None:
        selection = narrowed(selection, chosen)
    launches = run.launches if selection.launches is None else selection.launches
    print_lines(lines_of_calls(run, launches, chosen, wanted, limit))


def _keep_crumbs(run: RunDir) -> None:
    """Copies the breadcrumbs of a process that died without a parent from shared memory into the run directory."""
    if run.state is not ExitKind.RUNNING and os.access(run.path, os.W_OK):
        breadcrumbs.preserve(run.path)


def names_a_run(what: str) -> bool:
    """True if the word is a run or a directory, not a kernel or a launch."""
    if run_directory.is_run(what):
        return True
    with contextlib.suppress(OSError, ValueError):  # too long for a file, or with a null character
        return Path(what).is_dir()
    return False


def _print_overview(diagnosed: DiagnosedRun, limit: int | None, columns: int) -> None:
    run, verdict = diagnosed.run, diagnosed.verdict
    around = verdict.suspects[0] if verdict is not None and verdict.suspects else None
    print_lines(overview(run, verdict, excerpt(run.launches, limit, around), columns))


def _print_launches(
    selection: Selection, phases: Sequence[Phase] | None, code: CodeOptions, all_: bool, columns: int
) -> None:
    run, launches = selection.run, selection.launches or ()
    limit = None if all_ else LIMIT
    if selection.in_full and len(launches) <= MAX_IN_FULL:
        shown = launches
    else:
        part = excerpt(launches, limit, None)
        print_lines([*header(run, columns), "", *table(run, selection.diagnosed.verdict, part, columns), ""])
        shown = launches[:1] if selection.in_full else ()
    from aoti_debug.runs.show.detail import detail  # the table of a run does without it

    for launch in shown:
        code_lines = _code(run, code).lines(launch, columns) if code else ()
        print_lines([*detail(run, launch, columns, phases, all_), *code_lines, ""])


def _code(run: RunDir, options: CodeOptions) -> RunCode:
    from aoti_debug.app.cli.commands.show_code import RunCode

    return RunCode(run, options)


def _print_document(selection: Selection, code: CodeOptions) -> None:
    run = selection.run
    one_by_one = selection.launches is not None
    launches = run.launches if selection.launches is None else selection.launches
    from aoti_debug.runs.show.document import document  # what is shown as text does without it

    measurer = Measurer(run, None if one_by_one else BUDGET)
    whole = document(run, selection.diagnosed.verdict, launches, measurer)
    if code:
        run_code = _code(run, code)
        for launch, described in zip(launches, whole["launches"], strict=True):
            described["code"] = run_code.document(launch)
    click.echo(json.dumps(whole, indent=1, allow_nan=False))
