"""Reclaims shared memory of runs whose process has died without cleaning up."""

from __future__ import annotations

import fcntl
import re
from pathlib import Path

from aoti_debug.base.errors import RunDirError
from aoti_debug.runs.diagnosis.rescue import rescue
from aoti_debug.runs.rundir import breadcrumbs
from aoti_debug.runs.rundir.formats import shared_files

_CREATOR = re.compile(r"^\d{8}-\d{6}-(\d+)(?:-\d+)?\Z")


def reclaim() -> None:
    """Saves the shared memory of runs whose process has died into their run directories, and frees it.

    Memory that a living process uses, that a living tool still watches, or that belongs to another user is skipped.
    """
    for file in shared_files.all_files():
        if _is_alive(file.pid) or _is_locked(file.path):
            continue
        run = file.run_directory()
        if run is not None and shared_files.linked(run, file.name) == file.path:
            if not _is_creator_alive(run):
                _save(run, file.name)
        else:
            file.path.unlink(missing_ok=True)


def _save(run: Path, name: str) -> None:
    """Saves one file of shared memory and frees it; if the disk is full, it stays in shared memory."""
    if name == breadcrumbs.NAME:
        try:
            breadcrumbs.preserve(run)
        except OSError:
            return
    elif name == shared_files.FLIGHT_RECORDER:
        try:
            rescue(run)
        except RunDirError:  # the inputs of a run that cannot be opened are of no use
            shared_files.remove(run, name)


def _is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def _is_creator_alive(run: Path) -> bool:
    """True if the process that created the run directory is alive: it records how its child ended."""
    creators = (_CREATOR.search(folder.name) for folder in (run, run.parent))
    return any(match is not None and _is_alive(int(match[1])) for match in creators)


def _is_locked(path: Path) -> bool:
    """True if a process has it locked (one of another container may), or it cannot be opened."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    return False
