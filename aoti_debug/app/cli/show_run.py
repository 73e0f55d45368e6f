"""The output of `aoti-debug show`: the launches of a run that the command line names, or a run of ranks."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from aoti_debug.app.cli.lines import print_json, print_lines, width_of_code
from aoti_debug.app.cli.options import CallOptions, CodeOptions
from aoti_debug.app.cli.ranks import one_rank
from aoti_debug.base import terminal_cells, wording
from aoti_debug.base.abi import Phase
from aoti_debug.base.errors import RunDirError, UsageError
from aoti_debug.base.frozen import dataclass
from aoti_debug.package import recording_settings
from aoti_debug.package.recording_settings import SiteFilter
from aoti_debug.runs.diagnosis.diagnosed_run import DiagnosedRun, open_diagnosed
from aoti_debug.runs.rundir import breadcrumbs, recorded_runs, run_directory
from aoti_debug.runs.rundir.argument_statistics import Measurer
from aoti_debug.runs.rundir.launch import Launch
from aoti_debug.runs.rundir.run_directory import RunDir, name_hint
from aoti_debug.runs.rundir.run_json import ExitKind
from aoti_debug.runs.show.overview import BUDGET, excerpt, header, overview, table

if TYPE_CHECKING:
    from aoti_debug.app.cli.show_code import RunCode  # a plain `show` starts without it
    from aoti_debug.runs.ranks.ranks_analysis import Expectation

LIMIT = 400  # rows of a table
MAX_IN_FULL = 3  # launches of one kernel that are shown in full


@dataclass(frozen=True)
class ShowOptions:
    """The options of `aoti-debug show`.

    Attributes:
        what: a run, a kernel, a launch or a pattern; None for the run as a whole.
        run: a run directory, or its name; None for the newest one.
        phases: to show of each argument; None: inputs before, outputs after, in-out arguments both.
        launches: the modules and lines that launches are of.
        calls: how launches are printed in DebugMode's format; None if they are not.
        code: the forms of the code of kernels.
        is_whole: show every launch; of a launch, every FX node and every stack.
        columns: of a line.
        agree, sharded: of several ranks: patterns of what should be equal, and of what should not.
        races: show the races of host threads instead of launches.
    """

    what: str | None
    run: str | None
    phases: Sequence[Phase] | None
    launches: SiteFilter
    calls: CallOptions | None
    code: CodeOptions
    is_whole: bool
    columns: int
    as_json: bool
    agree: tuple[str, ...] = ()
    sharded: tuple[str, ...] = ()
    races: bool = False

    @property
    def limit(self) -> int | None:
        """The most launches of a table; None for all."""
        return None if self.is_whole else LIMIT


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

    @property
    def shown(self) -> Sequence[Launch]:
        """The launches that are named; all of the run if none is."""
        return self.run.launches if self.launches is None else self.launches


def show_run(asked: ShowOptions) -> None:
    """Prints a run, or launches of it.

    Raises:
        UsageError: nothing is named that the options fit.
        RunDirError: the run cannot be read.
    """
    is_plain = asked.calls is None and not (asked.code or asked.races or asked.launches or asked.as_json)
    if asked.run is None and is_plain and _print_triage(asked):
        return
    selected = select(asked.what, asked.run)
    _keep_crumbs(selected.run)
    if asked.races and (asked.calls is not None or asked.code or asked.launches or selected.launches is not None):
        from aoti_debug.runs.diagnosis import suggested_commands  # only an error needs it

        hint = f"{suggested_commands.show(selected.run)} --races"
        raise UsageError("--races is of a whole run: it chooses no launches", hint=hint)
    if asked.calls is not None:
        from aoti_debug.app.cli.show_code import lines_of_calls  # a plain `show` starts without it

        selection = narrowed(selected, asked.launches) if asked.calls.eager is None else selected
        lines = lines_of_calls(selection.run, selection.shown, asked.calls, asked.launches, asked.limit)
        print_lines(lines, columns=width_of_code(asked.columns))
        return
    selection = narrowed(selected, asked.launches)
    if asked.code and not (selection.in_full and selection.launches):
        from aoti_debug.runs.diagnosis import suggested_commands  # only an error needs it

        example = selection.shown[0].id if selection.shown else "NUMBER"
        raise UsageError(
            "--source, --ptx and --sass need a launch",
            hint=f"{suggested_commands.show(selection.run, example)} --source, or a kernel",
        )
    if asked.as_json:
        _print_document(selection, asked)
    elif asked.races:
        _print_races(selection.run, asked.columns)
    elif selection.launches is None:
        _print_overview(selection.diagnosed, asked)
    else:
        _print_launches(selection, asked)


def _print_triage(asked: ShowOptions) -> bool:
    """Prints all of the finding of the triage that is named, or is the newest; True if it has no run to show.

    Raises:
        RunDirError: the triage cannot be read, and has no run.
    """
    found = recorded_runs.find(asked.what)
    if found is None or not found.is_of_triage:
        return False
    from aoti_debug.runs.show.finding import all_finding_lines, with_relative_paths  # a run does without
    from aoti_debug.triage.results import triage_directory

    try:
        finding = with_relative_paths(triage_directory.open_triage(found.directory).finding)
    except RunDirError as error:
        if found.run is None:
            raise
        print_lines([f"the finding of this triage cannot be shown: {error}", ""], columns=asked.columns)
        return False
    print_lines([*all_finding_lines(finding, asked.columns), ""], columns=asked.columns)
    return found.run is None


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
    from aoti_debug.repro.recorded_launch import launches_named, unknown_name  # the table of a run does without it

    named = launches_named(opened, what)
    if named is None:
        raise unknown_name(opened, what, "neither a run, nor a kernel, nor a launch", recorded_runs.names())
    return Selection(diagnosed, named.launches, in_full=named.is_one)


def narrowed(selection: Selection, chosen: SiteFilter) -> Selection:
    """The selection without the launches that do not pass a filter.

    Raises:
        UsageError: no launch passes it, or the run holds no module paths or model lines.
    """
    if not chosen:
        return selection
    run = selection.run
    recording_settings.check_patterns(chosen)
    recording_settings.require_names(run.manifest, chosen, f"run {run.path.name}")
    sites = chosen.site_ids(run.manifest.sites)
    launches = tuple(launch for launch in selection.shown if launch.site.id in sites)
    if not launches:
        criterion, pattern = chosen.patterns()[0]
        known = recording_settings.known_names([run.manifest.sites[id_] for id_ in run.launches.site_ids], criterion)
        raise UsageError(f"no launch of run {run.path.name} passes {chosen.options}", hint=name_hint(pattern, known))
    return replace(selection, launches=launches, in_full=selection.launches is not None and selection.in_full)


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


def _print_overview(diagnosed: DiagnosedRun, asked: ShowOptions) -> None:
    run, verdict = diagnosed.run, diagnosed.verdict
    around = verdict.suspects[0] if verdict is not None and verdict.suspects else None
    part = excerpt(run.launches, asked.limit, around)
    print_lines(overview(run, verdict, part, asked.columns), columns=asked.columns)


def _print_launches(selection: Selection, asked: ShowOptions) -> None:
    run, launches, columns = selection.run, selection.shown, asked.columns
    if selection.in_full and len(launches) <= MAX_IN_FULL:
        in_full = launches
    else:
        part = excerpt(launches, asked.limit, None)
        lines = table(run, selection.diagnosed.verdict, part, columns)
        print_lines([*header(run, columns), "", *lines, ""], columns=columns)
        in_full = launches[:1] if selection.in_full else ()
    from aoti_debug.runs.show.detail import detail  # the table of a run does without it

    for launch in in_full:
        print_lines(detail(run, launch, columns, asked.phases, unfolded=asked.is_whole), columns=columns)
        code_columns = width_of_code(columns)
        code_lines = _code(run, asked.code).lines(launch, columns, code_columns) if asked.code else ()
        print_lines([*code_lines, ""], columns=code_columns)


def _print_races(run: RunDir, columns: int) -> None:
    """Prints the races of host threads: launches that were passed the same bytes, one writing, in no order."""
    from aoti_debug.compare.bisect.threads_text import race_lines, unsearched  # the table of a run does without it
    from aoti_debug.compare.diff import thread_races

    races = thread_races.find(run)
    threads = len({call.thread for call in run.timeline.calls})
    calls = wording.pluralize(len(run.timeline.calls), "call")
    looked = len(run.launches) - unsearched(run)
    begun = f"{wording.pluralize(looked, 'launch')} in {calls} of {wording.pluralize(threads, 'thread')}"
    none = [] if races else [f"no race of threads was seen: {begun}"]
    lines = [*none, *race_lines(races, run)]
    print_lines([part for line in lines for part in terminal_cells.fitted(line, columns)], columns=columns)


def _print_document(selection: Selection, asked: ShowOptions) -> None:
    from aoti_debug.runs.show.document import document  # what is shown as text does without it

    run, launches = selection.run, selection.shown
    measurer = Measurer(run, BUDGET if selection.launches is None else None)
    whole = document(run, selection.diagnosed.verdict, launches, measurer)
    if asked.races:
        from aoti_debug.compare.bisect.threads_text import races_document
        from aoti_debug.compare.diff import thread_races

        whole |= races_document(thread_races.find(run), run)
    if asked.code:
        run_code = _code(run, asked.code)
        for launch, described in zip(launches, whole["launches"], strict=True):
            described["code"] = run_code.document(launch)
    print_json(whole)


def _code(run: RunDir, options: CodeOptions) -> RunCode:
    from aoti_debug.app.cli.show_code import RunCode

    return RunCode(run, options)


def require_no_option(options: Sequence[str], path: Path) -> None:
    """Checks that none of the options is given that only one rank can answer.

    Args:
        options: those that are given.

    Raises:
        UsageError: there is one.
        RunDirError: the run cannot be read.
    """
    from aoti_debug.runs.ranks import ranks_run  # a `show` of one process does without

    if options:
        from aoti_debug.runs.diagnosis import suggested_commands  # only an error needs it

        rank = suggested_commands.word_of(ranks_run.open_ranks(path).recorded[0].path)
        raise UsageError(f"{options[0]} needs one rank", hint=shlex.join(["aoti-debug", "show", rank]))


def show_ranks(path: Path, asked: ShowOptions) -> None:
    """Prints a run of ranks in lines or as JSON, after a warning of the patterns that match nothing.

    Raises:
        RunDirError: a record of a run cannot be read.
    """
    from aoti_debug.runs.ranks import ranks_analysis, ranks_run  # a `show` of one process does without
    from aoti_debug.runs.ranks.ranks_analysis import analyse
    from aoti_debug.runs.ranks.text import document, ranks_lines

    run, expected = ranks_run.open_ranks(path), ranks_analysis.Expectation(asked.agree, asked.sharded)
    print_lines(_unmatched_warning(ranks_analysis.unmatched(run.recorded, expected)), err=True)
    analysis = analyse(run, expected)
    if asked.as_json:
        print_json(document(analysis))
    else:
        print_lines(ranks_lines(analysis, asked.columns), columns=asked.columns)


def _unmatched_warning(unmatched: Expectation) -> list[str]:
    """The warning in lines: patterns of --agree and --sharded that match nothing; none without."""
    lines = [f"warning: no argument of a launch matches --agree {pattern}" for pattern in unmatched.agree]
    return lines + [f"warning: no weight matches --sharded {pattern}" for pattern in unmatched.sharded]
