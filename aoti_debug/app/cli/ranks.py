"""Runs of ranks on the command line: the words that mean one, the rank that stands for it, and its pages."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from aoti_debug.base.machine.files import stamped_directories
from aoti_debug.runs.rundir import ranks_directory, run_directory

if TYPE_CHECKING:
    from aoti_debug.runs.ranks.ranks_analysis import RanksAnalysis


def ranks_named(what: str | None, run: str | None) -> Path | None:
    """The directory of the run of ranks that `show WHAT --run RUN` means as a whole; None for anything else."""
    if what is None:
        return run_directory.find_ranks(run)
    return run_directory.find_ranks(what) if run is None and not run_directory.is_launch_id(what) else None


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


def ranks_reported(what: str | None) -> Path | None:
    """The directory of the run of ranks that `report WHAT` means; without a name it must be newer than any triage."""
    path = run_directory.find_ranks(what)
    if path is None or what is not None:
        return path
    from aoti_debug.triage.results import triage_directory  # `show` starts without what triages have

    triage = stamped_directories.find(None, Path(triage_directory.BASE), triage_directory.NAME)
    is_newer = triage is None or _written(triage / triage_directory.NAME) < _written(path / ranks_directory.NAME)
    return path if is_newer else None


def _written(path: Path) -> float:
    return path.stat().st_mtime


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
