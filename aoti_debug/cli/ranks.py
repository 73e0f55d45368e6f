"""Words of a command line that mean a run of ranks, and the rank that stands for it."""

from __future__ import annotations

from pathlib import Path

from aoti_debug.machine import stamped_directories
from aoti_debug.ranks import ranks_run
from aoti_debug.ranks.analysis import representative
from aoti_debug.rundir import ranks_directory, run_directory
from aoti_debug.triage import triage_directory


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
