"""Reports of a run of ranks: whether the command line means one, and its pages."""

from __future__ import annotations

from pathlib import Path

from aoti_debug.base.machine.files import stamped_directories
from aoti_debug.runs.ranks.ranks_analysis import RanksAnalysis
from aoti_debug.runs.rundir import ranks_directory, run_directory
from aoti_debug.triage.results import triage_directory
from aoti_debug.views.report import ranks_page, report


def ranks_reported(what: str | None) -> Path | None:
    """The directory of the run of ranks that `report WHAT` means; without a name it must be newer than any triage."""
    path = run_directory.find_ranks(what)
    if path is None or what is not None:
        return path
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
    for rank in analysis.run.recorded:
        if rank.diagnosed is not None:
            report.write(report.of_run(rank.diagnosed.run))
    return ranks_page.write(analysis, output)
