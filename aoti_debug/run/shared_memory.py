"""Reclaims shared memory of runs whose process has died without cleaning up."""

from __future__ import annotations

import fcntl
import os
import re
from pathlib import Path

from aoti_debug.diagnosis.rescue import rescue
from aoti_debug.errors import RunDirError
from aoti_debug.rundir import breadcrumbs, flight_recorder

SHARED = Path("/dev/shm")
_NAME = re.compile(r"aoti_debug-(\d+)-\d+(?:-(.+))?\Z")
_CREATOR = re.compile(r"^\d{8}-\d{6}-(\d+)(?:-\d+)?\Z")
_PAGE = 4096  # the last page of the file is the run directory's path (runtime_shims/shared_file.h)


def reclaim(shared: Path = SHARED) -> None:
    """Saves the shared memory of runs whose process has died into their run directories, and frees it.

    Memory that a living process uses, that a living tool still watches, or that belongs to another user is skipped.
    """
    for path in shared.glob("aoti_debug-*"):
        match = _NAME.match(path.name)
        if match is None or _is_alive(int(match[1])) or not _is_ours(path):
            continue
        run = _run_directory_of(path)
        if run is not None and match[2] and _is_link_to(run / match[2], path):
            if not _is_creator_alive(run):
                _save(run, match[2])
        else:
            path.unlink(missing_ok=True)


def _save(run: Path, name: str) -> None:
    """Saves one file of shared memory and frees it; if the disk is full, it stays in shared memory."""
    if name == breadcrumbs.NAME:
        try:
            breadcrumbs.preserve(run)
        except OSError:
            return
    elif name == flight_recorder.NAME:
        try:
            rescue(run)
        except RunDirError:  # the inputs of a run that cannot be opened are of no use
            (run / name).resolve().unlink(missing_ok=True)


def _is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def _is_creator_alive(run: Path) -> bool:
    """True if the process that created the run directory is alive: it records how its child ended."""
    creators = (_CREATOR.search(folder.name) for folder in (run, run.parent))
    return any(match is not None and _is_alive(int(match[1])) for match in creators)


def _is_ours(path: Path) -> bool:
    """True if it belongs to this user and no process has it locked (one of another container may)."""
    try:
        if path.stat().st_uid != os.getuid():
            return False
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _run_directory_of(path: Path) -> Path | None:
    try:
        with path.open("rb") as file:
            file.seek(-min(_PAGE, path.stat().st_size), os.SEEK_END)
            name = file.read().rstrip(b"\0")
    except OSError:
        return None
    return Path(os.fsdecode(name)) if name.startswith(b"/") and b"\0" not in name else None


def _is_link_to(link: Path, target: Path) -> bool:
    return link.is_symlink() and os.readlink(link) == str(target)
