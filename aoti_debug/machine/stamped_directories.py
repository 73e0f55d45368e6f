"""Directories named by time and process, beside a link `latest` to the newest: runs, triages.

BASE/
  latest -> 20261120-231501-4711
  20261120-231501-4711/  MARKER …
  20261120-231501-4711-2/        the same second and process

The marker is the file that says that a directory is one of these: "run.json".
"""

from __future__ import annotations

import os
import shutil
from datetime import datetime
from itertools import count
from pathlib import Path

from aoti_debug.machine import files

LATEST = "latest"


def create(base: Path) -> Path:
    """Makes a new, empty directory in `base`, and `base` where it is missing; returns its absolute path.

    Raises:
        OSError: it cannot be made.
    """
    base.mkdir(parents=True, exist_ok=True)
    stamp = f"{datetime.now():%Y%m%d-%H%M%S}-{os.getpid()}"
    for attempt in count(1):
        path = base.resolve() / (stamp if attempt == 1 else f"{stamp}-{attempt}")
        try:
            path.mkdir()
        except FileExistsError:
            continue
        break
    return path


def remove(path: Path, base: Path | None) -> None:
    """Removes a directory that came to nothing.

    Args:
        base: the directory around it, to be removed if it is empty then; None to leave it.

    Raises:
        OSError: it cannot be removed.
    """
    shutil.rmtree(path)
    if base is not None and not any(base.iterdir()):
        base.rmdir()


def link_latest(path: Path) -> None:
    """Points `latest` beside a directory to it, in one step.

    Raises:
        OSError: the link cannot be made.
    """
    files.write_link(path.parent / LATEST, path.name)


def names(base: Path, marker: str) -> tuple[str, ...]:
    """Names of the directories in `base` that have the marker, oldest first."""
    if not base.is_dir():
        return ()
    return tuple(sorted(path.name for path in base.iterdir() if path.name != LATEST and (path / marker).is_file()))


def find(name: str | Path | None, base: Path, marker: str) -> Path | None:
    """The directory that a name stands for; None where there is none that has the marker.

    Args:
        name: a path, the name of a directory in `base`, a directory in which there is a `latest`, or `latest` itself
            (also for None).
    """
    wanted = Path(name or LATEST)
    candidates = (wanted, base / wanted, wanted / LATEST)
    return next((path.resolve() for path in candidates if (path / marker).is_file()), None)
