"""Directories named by time and process id, with a link `latest` to the newest: runs and triages.

BASE/
  latest -> 20261120-231501-4711
  20261120-231501-4711/  MARKER …
  20261120-231501-4711-2/        the same second and process

The marker is a file that identifies such a directory: "run.json".
"""

from __future__ import annotations

import errno
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from itertools import count
from pathlib import Path

from aoti_debug.base.errors import UsageError
from aoti_debug.base.machine.files import atomic_write, results_home

LATEST = "latest"
_NOTED: ContextVar[list[Path] | None] = ContextVar("noted", default=None)
_CLOCK_ERROR = 5.0  # seconds
_STAMP = re.compile(r"\d{8}-\d{6}-\d+(-\d+)?", re.ASCII)


def create(base: Path) -> Path:
    """Makes a new, empty directory in `base`, which is made if missing; returns its absolute path.

    Raises:
        NotADirectoryError: `base` is a file.
        OSError: it cannot be made.
    """
    make_base(base)
    stamp = f"{datetime.now():%Y%m%d-%H%M%S}-{os.getpid()}"
    for attempt in count(1):
        path = base.resolve() / (stamp if attempt == 1 else f"{stamp}-{attempt}")
        try:
            path.mkdir()
        except FileExistsError:
            continue
        break
    noted = _NOTED.get()
    if noted is not None:
        noted.append(path)
    return path


@contextmanager
def noting() -> Iterator[list[Path]]:
    """The directories that `create` makes meanwhile, in a list that grows with them."""
    noted: list[Path] = []
    token = _NOTED.set(noted)
    try:
        yield noted
    finally:
        _NOTED.reset(token)


def make_base(base: Path) -> None:
    """Makes the directory that others are made in, if it is missing.

    The home of the results is made with its marker, if it is the folder of a kind in it.

    Raises:
        NotADirectoryError: it is a file.
        OSError: it cannot be made.
    """
    results_home.prepare(base)
    try:
        base.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(base)) from error


def make(base: Path, hint: str = "--out DIR names another one") -> Path:
    """Makes a new directory, named by date and process, in a place that the user has chosen.

    Args:
        hint: how another place is chosen.

    Raises:
        UsageError: it cannot be made.
    """
    try:
        return create(base)
    except OSError as error:
        raise UsageError(f"cannot make a directory in {base}: {error.strerror}", hint=hint) from error


@contextmanager
def new_folder(base: Path, *kept: str) -> Iterator[Path]:
    """A new directory in a place that the user has chosen, with the link `latest`; removed if it is not worth keeping.

    Args:
        kept: the names of what makes it worth keeping; without any, whatever it holds.

    Raises:
        UsageError: it cannot be made.
    """
    is_new_base = not base.exists()
    folder = make(base)
    try:
        yield folder
    finally:
        if any((folder / name).exists() for name in kept) if kept else any(folder.iterdir()):
            link_latest(folder)
        else:
            remove(folder, base if is_new_base else None)


def remove(path: Path, base: Path | None) -> None:
    """Removes a directory that is not needed after a failure.

    Args:
        base: its parent, to be removed if it is empty then but for a link to the directory, with a home that held
            nothing else; None to keep it.

    Raises:
        OSError: it cannot be removed.
    """
    import shutil  # loads libraries for compression; only a failure needs it

    shutil.rmtree(path)
    if base is not None:
        link = base / LATEST
        if link.is_symlink() and not link.exists():
            link.unlink()
        remove_empty(base)


def remove_empty(base: Path) -> None:
    """Removes a directory that `make_base` has made if nothing is in it, with a home that held nothing else.

    Raises:
        OSError: it cannot be removed.
    """
    if not any(base.iterdir()):
        base.rmdir()
        results_home.remove_empty(base.parent)


def link_latest(path: Path) -> None:
    """Atomically points the link `latest` beside a directory to it.

    Raises:
        OSError: the link cannot be made.
    """
    atomic_write.write_link(path.parent / LATEST, path.name)


def relink_latest(base: Path, marker: str) -> None:
    """Points the link `latest` to the newest directory that has the marker, if its own one is gone; or removes it.

    Raises:
        OSError: the link cannot be made.
    """
    link = base / LATEST
    if not link.is_symlink() or link.exists():
        return
    remaining = names(base, marker)
    if remaining:
        link_latest(base / remaining[-1])
    else:
        link.unlink()


def has_latest(base: Path) -> bool:
    """True if a directory has a `latest`, wherever that leads."""
    try:
        return os.path.lexists(base / LATEST)
    except ValueError:  # a null character
        return False


def linked(base: Path) -> Path | None:
    """The directory beside the link `latest` that it leads to; None if it is no link, or leads elsewhere."""
    try:
        name = os.readlink(base / LATEST)
    except (OSError, ValueError):  # ValueError: a null character
        return None
    target = base / name
    return target if is_name(name) and not target.is_symlink() else None


def _newest(base: Path, marker: str) -> Path | None:
    """The directory that `latest` leads to, if that is a link to a directory beside it.

    Without a `latest`, the newest by name: its process was killed before it made the link.
    """
    if has_latest(base):
        return linked(base)
    try:
        known = names(base, marker)
    except OSError:  # too long for a file
        return None
    return base / known[-1] if known else None


def is_stamp(name: str) -> bool:
    """True if a name has the form of those that `create` gives: date, time and process."""
    return _STAMP.fullmatch(name) is not None


def is_name(text: str) -> bool:
    """True if a text is the name of a file, not a path to another directory."""
    return "/" not in text and text not in ("", ".", "..")


def names(base: Path, marker: str) -> tuple[str, ...]:
    """The names of the directories in `base` that have the marker, oldest first."""
    if not base.is_dir():
        return ()
    return tuple(sorted(path.name for path in base.iterdir() if not path.is_symlink() and has(path, marker)))


def find(name: str | Path | None, base: Path, marker: str) -> Path | None:
    """Finds a directory with the marker by name or path; None if there is none.

    Args:
        name: a path, the name of a directory in `base`, or a directory that has a `latest`; None for `latest`, a link
            that counts only if it leads to a directory beside it; where there is none, the newest directory.
    """
    path = Path(name or LATEST)
    is_latest = str(path) == LATEST
    candidates: tuple[Path | None, ...]
    if is_latest:
        candidates = (_newest(Path(), marker), _newest(base, marker))
    else:
        candidates = (path, base / path, _newest(path, marker))
    return next((path.resolve() for path in candidates if path is not None and has(path, marker)), None)


def has(path: Path, marker: str) -> bool:
    """True if a directory has the marker; False for any other path, also one that is too long for a file."""
    try:
        return (path / marker).is_file()
    except (OSError, ValueError):  # ValueError: a null character
        return False


def is_running_since(pid: int, started: float) -> bool:
    """True if a process of this number runs that began at a time, in seconds since 1970, or before; no zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        uptime = float(Path("/proc/uptime").read_text().split()[0])
    except OSError:
        return False
    if fields[0] in ("Z", "X"):
        return False
    age = uptime - int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return age >= time.time() - started - _CLOCK_ERROR
