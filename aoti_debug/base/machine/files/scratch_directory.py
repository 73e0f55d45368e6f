"""Temporary directories that are deleted even if the process that made them is killed: then by the next one."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from aoti_debug.base.errors import UsageError
from aoti_debug.base.machine.files import private_directory

_PREFIX = "aoti_debug_scratch-"
_NEWEST_LEFTOVER = 60.0  # seconds; a younger one may be about to be locked


@contextlib.contextmanager
def scratch_directory() -> Iterator[Path]:
    """Yields a new directory of this user alone in the temporary directory; deleted at the end.

    It is locked meanwhile. Unlocked ones are left over from processes that were killed, and are deleted first.

    Raises:
        UsageError: it cannot be made.
    """
    _delete_leftovers()
    try:
        path = Path(tempfile.mkdtemp(prefix=_PREFIX))
    except OSError as error:
        raise UsageError(
            f"cannot make a temporary directory: {error.strerror}", hint="export TMPDIR=DIR names another place"
        ) from error
    try:
        with _locked(path):
            yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _delete_leftovers() -> None:
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            if private_directory.is_private(path) and path.lstat().st_mtime < time.time() - _NEWEST_LEFTOVER:
                with _locked(path):
                    shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Holds the lock of a directory.

    Raises:
        OSError: another process holds it.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)
