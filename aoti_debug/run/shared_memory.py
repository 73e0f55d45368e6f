"""Shared memory that processes left behind when they died and nobody was there to look after them."""

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
_MAKER = re.compile(r"^\d{8}-\d{6}-(\d+)(?:-\d+)?\Z")
_PAGE = 4096  # the last page of the file is the run directory's path (runtime_shims/shared_file.h)


def clear(shared: Path = SHARED) -> None:
    """Saves what runs whose process has died left in shared memory into their directories, and frees it. Memory that
    a living process holds or looks after, or that is another user's, is left alone."""
    for path in shared.glob("aoti_debug-*"):
        match = _NAME.match(path.name)
        if match is None or _lives(int(match[1])) or not _is_ours(path):
            continue
        run = _run_of(path)
        if run is not None and match[2] and _leads_to(run / match[2], path):
            if not _has_keeper(run):
                _settle(run, match[2])
        else:
            path.unlink(missing_ok=True)


def _settle(run: Path, name: str) -> None:
    """What cannot be saved for want of room stays where it is."""
    if name == breadcrumbs.NAME:
        try:
            breadcrumbs.preserve(run)
        except OSError:
            return
    elif name == flight_recorder.NAME:
        try:
            rescue(run)
        except RunDirError:  # a run that cannot be opened has no use for its inputs
            (run / name).resolve().unlink(missing_ok=True)


def _lives(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def _has_keeper(run: Path) -> bool:
    """Whether the process that made the run's directory lives: it knows better how its child ended."""
    made_by = (_MAKER.search(folder.name) for folder in (run, run.parent))
    return any(match is not None and _lives(int(match[1])) for match in made_by)


def _is_ours(path: Path) -> bool:
    """Whether it is this user's, and no process has it locked: one of another container may."""
    try:
        if path.stat().st_uid != os.getuid():
            return False
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _run_of(path: Path) -> Path | None:
    try:
        with path.open("rb") as file:
            file.seek(-min(_PAGE, path.stat().st_size), os.SEEK_END)
            name = file.read().rstrip(b"\0")
    except OSError:
        return None
    return Path(os.fsdecode(name)) if name.startswith(b"/") and b"\0" not in name else None


def _leads_to(link: Path, target: Path) -> bool:
    return link.is_symlink() and os.readlink(link) == str(target)
