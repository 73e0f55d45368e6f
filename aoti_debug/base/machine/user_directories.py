"""Directories of this user: for files of one's own, those that nobody else can put files into, and scratch directories.

What lies in a private directory may be loaded and executed. The places are those of the XDG Base Directory
Specification; in the temporary directory other users may make directories, too.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from aoti_debug.base.errors import UsageError

_NAME = "aoti_debug"
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_PREFIX = "aoti_debug_scratch-"
_NEWEST_LEFTOVER = 60.0  # seconds; a younger one may be about to be locked


def cache() -> str:
    """The directory for what can be made again: the cache."""
    return os.path.join(_base("XDG_CACHE_HOME", "~/.cache"), _NAME)


def state() -> str:
    """The directory for what has to last from start to start: hashes of what this user made."""
    return os.path.join(_base("XDG_STATE_HOME", "~/.local/state"), _NAME)


def _base(variable: str, default: str) -> str:
    named = os.environ.get(variable, "")
    return named if named.strip() else os.path.expanduser(default)


def make_private(path: str | os.PathLike[str]) -> bool:
    """Makes a directory for this user alone where there is none, and closes one that others may read.

    Returns:
        False if it cannot be made or written, or is not private: a link, a file, the directory of another user, or one
        that group or others may write to.
    """
    with contextlib.suppress(OSError):  # it may be there all the same
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.mkdir(path, 0o700)
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


def make_private_temporary(name: str) -> Path:
    """Makes or finds NAME in the temporary directory, or NAME-XXXXXXXX where that is not this user's own.

    Raises:
        OSError: it cannot be made.
    """
    folder = Path(tempfile.gettempdir())
    candidates = (folder / name, *sorted(folder.glob(f"{name}-*")))
    found = next((path for path in candidates if _make_closed(path)), None)
    return found or Path(tempfile.mkdtemp(prefix=f"{name}-", dir=folder))


def _make_closed(path: Path) -> bool:
    """Makes a directory for this user alone; False for one that was ever open to others, or that cannot be made."""
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        pass
    except OSError:
        return False
    return is_private(path) and stat.S_IMODE(path.lstat().st_mode) & 0o077 == 0 and os.access(path, os.W_OK)


@contextlib.contextmanager
def scratch_directory() -> Iterator[Path]:
    """Yields a new directory of this user alone in the temporary directory; deleted at the end.

    It is locked meanwhile. Unlocked ones are left over from processes that were killed, and are deleted first.

    Raises:
        UsageError: it cannot be made.
    """
    _delete_leftovers()
    with contextlib.ExitStack() as stack:
        try:
            path = Path(tempfile.mkdtemp(prefix=_PREFIX))
            stack.callback(shutil.rmtree, path, ignore_errors=True)
            descriptor = stack.enter_context(_opened(path))
        except OSError as error:
            raise UsageError(
                f"cannot make a temporary directory: {error.strerror}", hint="export TMPDIR=DIR names another place"
            ) from error
        with contextlib.suppress(OSError):  # a file system without locks: nobody can lock it
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield path


def _delete_leftovers() -> None:
    found: list[Path] = []
    with contextlib.suppress(OSError):
        found += Path(tempfile.gettempdir()).glob(f"{_PREFIX}*")
    for path in found:
        with contextlib.suppress(OSError):
            if is_private(path) and path.lstat().st_mtime < time.time() - _NEWEST_LEFTOVER:
                with _opened(path) as descriptor:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails as long as a process holds it
                    shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    """Opens a directory. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
