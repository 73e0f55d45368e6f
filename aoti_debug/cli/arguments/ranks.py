"""A run of ranks on the command line: the words that mean one, the rank that stands for it, and what is printed."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from aoti_debug.cli.arguments.filters import unmatched_expectation_warning
from aoti_debug.cli.terminal.lines import print_lines
from aoti_debug.errors import UsageError
from aoti_debug.machine.files import stamped_directories
from aoti_debug.ranks import agreement, ranks_run
from aoti_debug.ranks.agreement import Expectation
from aoti_debug.ranks.document import document
from aoti_debug.ranks.ranks_analysis import RanksAnalysis, analyse, representative
from aoti_debug.ranks.text import ranks_lines
from aoti_debug.report import ranks_page, report
from aoti_debug.rundir import ranks_directory, run_directory
from aoti_debug.triage.results import triage_directory


def ranks_named(what: str | None, run: str | None) -> Path | None:
    """The directory of the run of ranks that `show WHAT --run RUN` means as a whole; None for anything else."""
    if what is None:
        return ranks_run.find(run)
    return ranks_run.find(what) if run is None and not run_directory.is_launch_id(what) else None


def ranks_reported(what: str | None) -> Path | None:
    """The directory of the run of ranks that `report WHAT` means; without a name it must be newer than any triage."""
    path = ranks_run.find(what)
    if path is None or what is not None:
        return path
    triage = stamped_directories.find(None, Path(triage_directory.BASE), triage_directory.NAME)
    is_newer = triage is None or _written(triage / triage_directory.NAME) < _written(path / ranks_directory.NAME)
    return path if is_newer else None


def _written(path: Path) -> float:
    return path.stat().st_mtime


def one_rank(run: str | None) -> str | None:
    """The rank that stands for a run of ranks, as a path; any other name as it is.

    Raises:
        RunDirError: a record of a rank cannot be read.
    """
    path = ranks_run.find(run)
    return run if path is None else str(representative(ranks_run.open_ranks(path)).path)


def require_no_option_of_one_rank(path: Path, options: Mapping[str, Any]) -> None:
    """Checks that the command line of a run of ranks has no option that only one rank can answer.

    Args:
        options: the values of those options by name; a false one was not given.

    Raises:
        UsageError: one was given.
        RunDirError: the run cannot be read.
    """
    for option, value in options.items():
        if value:
            rank = ranks_run.open_ranks(path).recorded[0].path
            raise UsageError(f"{option} needs one rank", hint=shlex.join(["aoti-debug", "show", str(rank)]))


def write_ranks_pages(analysis: RanksAnalysis, output: Path | None = None) -> Path:
    """Writes the page of a run of ranks, and those of its ranks that it links to.

    Args:
        output: None for the page's place in the directory of the run.
    """
    for rank in analysis.run.recorded:
        if rank.diagnosed is not None:
            report.write(report.of_run(rank.diagnosed.run))
    return ranks_page.write(analysis, output)


def print_ranks(path: Path, expected: Expectation, as_json: bool, columns: int) -> None:
    """Prints a run of ranks in lines or as JSON, after a warning of the patterns that match nothing.

    Raises:
        RunDirError: a record of a run cannot be read.
    """
    run = ranks_run.open_ranks(path)
    print_lines(unmatched_expectation_warning(agreement.unmatched(run.recorded, expected)), err=True)
    analysis = analyse(run, expected)
    if as_json:
        click.echo(json.dumps(document(analysis), indent=1, allow_nan=False))
    else:
        print_lines(ranks_lines(analysis, columns))
