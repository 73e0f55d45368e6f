"""Which words of a command line mean a run of ranks, and which rank stands for it."""

from __future__ import annotations

from pathlib import Path

from aoti_debug.ranks import ranks_run
from aoti_debug.ranks.analysis import representative
from aoti_debug.rundir import run_directory


def ranks_named(what: str | None, run: str | None) -> Path | None:
    """The directory of the run of ranks that `show WHAT --run RUN` means as a whole; None for anything else."""
    if what is None:
        return ranks_run.find(run)
    return ranks_run.find(what) if run is None and not run_directory.is_launch_id(what) else None


def one_rank(run: str | None) -> str | None:
    """The rank that stands for a run of ranks, as a path; any other name as it is.

    Raises:
        RunDirError: a record of a rank cannot be read.
    """
    path = ranks_run.find(run)
    return run if path is None else str(representative(ranks_run.open_ranks(path)).path)
