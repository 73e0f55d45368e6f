"""Directories that nobody but this user can put files into: what lies there may be loaded and executed."""

from __future__ import annotations

import os
import stat

_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def make(path: str | os.PathLike[str]) -> bool:
    """Makes a directory for this user alone where there is none, and closes one that others may read.

    Returns:
        False if it cannot be made or written, or is not private: a link, a file, the directory of another user, or one
        that group or others may write to.
    """
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.mkdir(path, 0o700)
    except FileExistsError:
        pass
    except OSError:
        return False
    if not is_private(path):
        return False
    try:
        os.chmod(path, 0o700)
    except OSError:  # a read-only file system
        return False
    return os.access(path, os.W_OK)


def is_private(path: str | os.PathLike[str]) -> bool:
    """True for a directory, not a link to one, that belongs to this user and that no other user may write to."""
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return (
        stat.S_ISDIR(found.st_mode)
        and found.st_uid == os.geteuid()
        and not stat.S_IMODE(found.st_mode) & _WRITABLE_BY_OTHERS
    )
