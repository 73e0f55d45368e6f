"""Atomic writes: a file appears under its name complete or not at all, and a failed write leaves nothing behind.

A file is written under a temporary name in the same directory and then renamed.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from aoti_debug.base.errors import UsageError

_KEPT_OF_NAME = 50  # characters, at most 4 bytes each: a file's name has at most 255 bytes


def write(path: Path, content: str | bytes) -> None:
    """Writes a file, text as UTF-8 with lone surrogates escaped, and replaces an existing one.

    Raises:
        OSError: it cannot be written; an existing file is unchanged.
    """
    encoded = content.encode(errors="backslashreplace") if isinstance(content, str) else content
    with replace_file(path) as temporary:
        temporary.write_bytes(encoded)


def write_page(text: str, output: Path | None, default: Path) -> Path:
    """Writes an HTML page, whole or not at all, over an older one; returns its path.

    Args:
        output: the file; None for `default`, whose folder must not be a link.

    Raises:
        UsageError: the file cannot be written.
    """
    path = output or default
    if output is None and path.parent.is_symlink():
        raise UsageError(f"{path.parent} is a link to another place", hint="name the file with -o")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(path, text)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}", hint="name another file with -o") from error
    return path


@contextlib.contextmanager
def replace_file(path: Path) -> Iterator[Path]:
    """Yields an empty temporary file to fill; it replaces `path` at the end, unless an exception is raised.

    Raises:
        OSError: it cannot be made or renamed.
    """
    with temporary_beside(path) as temporary:
        yield temporary
        temporary.replace(path)


@contextlib.contextmanager
def create_file(path: Path) -> Iterator[Path]:
    """Yields an empty temporary file to fill; it becomes `path` at the end, unless an exception is raised.

    Raises:
        FileExistsError: `path` exists at the end.
        OSError: it cannot be made or renamed.
    """
    with temporary_beside(path) as temporary:
        yield temporary
        _rename_to_new(temporary, path)


@contextlib.contextmanager
def temporary_beside(path: Path) -> Iterator[Path]:
    """Yields an empty temporary file in the directory of `path`, deleted at the end if it was not renamed.

    Raises:
        OSError: it cannot be made.
    """
    temporary = _temporary_name(path)
    try:  # a signal may come as it is made
        temporary.touch(exist_ok=False)
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


def write_link(path: Path, target: str) -> None:
    """Makes a symbolic link and replaces an existing one.

    Raises:
        OSError: it cannot be made; an existing link is unchanged.
    """
    temporary = _temporary_name(path)
    try:
        temporary.symlink_to(target)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def link_or_copy(source: Path, path: Path) -> None:
    """Makes a file appear whole and replaces an existing one: as a link to the same content where that can be.

    Raises:
        OSError: it cannot be written; an existing file is unchanged.
    """
    temporary = _temporary_name(path)
    try:
        try:
            os.link(source, temporary)
        except OSError:
            import shutil  # loads libraries for compression; most files are written, not copied

            shutil.copyfile(source, temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _temporary_name(path: Path) -> Path:
    return path.parent / f".{path.name[:_KEPT_OF_NAME]}.{os.getpid()}-{os.urandom(4).hex()}.part"


def _rename_to_new(temporary: Path, path: Path) -> None:
    """Renames without replacing: by a hard link, or by a check on file systems without hard links."""
    try:
        os.link(temporary, path)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK):
            raise
        if path.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path)) from error
        temporary.rename(path)
