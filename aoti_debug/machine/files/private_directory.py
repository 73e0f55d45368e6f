"""Directories that nobody but this user can put files into: what lies there may be loaded and executed."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def make(path: Path) -> bool:
    """Makes a directory for this user alone where there is none, and closes one that others may read.

    Returns:
        False if it cannot be made or written, or is not private: a link, a file, the directory of another user, or one
        that group or others may write to.
    """
    try:
        path.mkdir(mode=0o700, parents=True)
    except FileExistsError:
        pass
    except OSError:
        return False
    if not is_private(path):
        return False
    try:
        path.chmod(0o700)
    except OSError:  # a read-only file system
        return False
    return os.access(path, os.W_OK)


def is_private(path: Path) -> bool:
    """True for a directory, not a link to one, that belongs to this user and that no other user may write to."""
    try:
        found = path.lstat()
    except OSError:
        return False
    return (
        stat.S_ISDIR(found.st_mode)
        and found.st_uid == os.geteuid()
        and not stat.S_IMODE(found.st_mode) & _WRITABLE_BY_OTHERS
    )


def in_temporary_directory(name: str) -> Path:
    """A private directory in the temporary directory: NAME, or NAME-XXXXXXXX where that is not this user's own.

    Raises:
        OSError: it cannot be made.
    """
    folder = Path(tempfile.gettempdir())
    candidates = (folder / name, *sorted(folder.glob(f"{name}-*")))
    found = next((path for path in candidates if make_closed(path)), None)
    return found or Path(tempfile.mkdtemp(prefix=f"{name}-", dir=folder))


def make_closed(path: Path) -> bool:
    """Like `make`, for a path where other users may make directories: one that was ever open to them is not used."""
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        pass
    except OSError:
        return False
    return is_private(path) and stat.S_IMODE(path.lstat().st_mode) & 0o077 == 0 and os.access(path, os.W_OK)
