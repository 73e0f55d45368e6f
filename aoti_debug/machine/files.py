"""Atomic writes: a file appears under its name whole or not at all, and nothing is left behind where writing fails.

What is written lies under a temporary name in the same directory until it is renamed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

_KEPT_OF_NAME = 50  # characters, at most 4 bytes each: a file's name has at most 255 bytes


def write(path: Path, content: str | bytes) -> None:
    """Writes a file, text as UTF-8, in the place of an older one.

    Raises:
        OSError: it cannot be written; an older file is as it was.
    """
    data = content.encode() if isinstance(content, str) else content
    with replacing(path) as temporary:
        temporary.write_bytes(data)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """An empty temporary file to be filled; it takes the place of `path` at the end, unless something is raised.

    Raises:
        OSError: it cannot be made or renamed.
    """
    with temporary_beside(path) as temporary:
        yield temporary
        temporary.replace(path)


@contextlib.contextmanager
def creating(path: Path) -> Iterator[Path]:
    """An empty temporary file to be filled; it becomes `path` at the end, unless something is raised.

    Raises:
        FileExistsError: `path` exists by then.
        OSError: it cannot be made or renamed.
    """
    with temporary_beside(path) as temporary:
        yield temporary
        _rename_to_new(temporary, path)


@contextlib.contextmanager
def temporary_beside(path: Path) -> Iterator[Path]:
    """An empty file in the directory of `path`, deleted at the end if it was not renamed.

    Raises:
        OSError: it cannot be made.
    """
    temporary = _temporary_name(path)
    temporary.touch(exist_ok=False)
    try:
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


def write_link(path: Path, target: str) -> None:
    """Makes a symbolic link, in the place of an older one.

    Raises:
        OSError: it cannot be made; an older link is as it was.
    """
    temporary = _temporary_name(path)
    temporary.symlink_to(target)
    try:
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _temporary_name(path: Path) -> Path:
    return path.parent / f".{path.name[:_KEPT_OF_NAME]}.{os.getpid()}-{secrets.token_hex(4)}.part"


def _rename_to_new(temporary: Path, path: Path) -> None:
    """A link, unlike a renaming, replaces nothing. Where the file system has no links, a check has to do."""
    try:
        os.link(temporary, path)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK):
            raise
        if path.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path)) from error
        temporary.rename(path)
