"""Runs of ranks on the command line: the words that mean one, the rank that stands for it, and its pages."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from aoti_debug.runs.rundir import recorded_runs, run_directory

if TYPE_CHECKING:
    from aoti_debug.runs.ranks.ranks_analysis import RanksAnalysis


def ranks_named(what: str | None, run: str | None) -> Path | None:
    """The directory of the run of ranks that `show WHAT --run RUN` means as a whole; None for anything else."""
    if what is None:
        return run_directory.find_ranks(run)
    return run_directory.find_ranks(what) if run is None and not run_directory.is_launch_id(what) else None


def newest_ranks() -> str | None:
    """The name of the newest run of ranks; None if there is none."""
    names = reversed(recorded_runs.names())
    return next((name for name in names if run_directory.find_ranks(name) is not None), None)


def one_rank(run: str | None) -> str | None:
    """The rank that stands for a run of ranks, as a path; any other name as it is.

    Raises:
        RunDirError: a record of a rank cannot be read.
    """
    path = run_directory.find_ranks(run)
    if path is None:
        return run
    from aoti_debug.runs.ranks.ranks_analysis import representative  # most runs are of one process
    from aoti_debug.runs.ranks.ranks_run import open_ranks

    return str(representative(open_ranks(path)).path)


def write_ranks_pages(analysis: RanksAnalysis, output: Path | None = None) -> Path:
    """Writes the page of a run of ranks, and those of its ranks that it links to.

    Args:
        output: None for the page's place in the directory of the run.
    """
    from aoti_debug.views.report import report

    for rank in analysis.run.recorded:
        if rank.diagnosed is not None:
            report.write(report.of_run(rank.diagnosed.run))
    return report.write_ranks_page(analysis, output)
