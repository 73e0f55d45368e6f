"""Opens files of a directory that may come from an untrusted source: only regular files, and only inside of it.

A symbolic link, on the way or at its end, is never followed; a FIFO or a device is never waited for. Errors are
OSErrors whose `strerror` is a sentence: "it is a symbolic link".
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import BinaryIO

LARGEST_JSON = 128 << 20  # bytes; ten times the manifest of a model with 20 000 launch sites

_DIRECTORY = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class NotAFileError(OSError):
    """Something else where a regular file should be.

    Attributes:
        kind: "a FIFO".
    """

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(errno.EACCES, f"it is {kind}", name)
        self.kind = kind


def open_file(directory: Path, name: str) -> BinaryIO:
    """Opens a file for reading.

    Args:
        directory: the way to it may have links: the user has named it.
        name: the path below it: "tensors/0/x.safetensors".

    Raises:
        FileNotFoundError: there is no such file.
        NotAFileError: it is no regular file, or there is a link on the way.
        OSError: it is outside of the directory, or cannot be read.
    """
    *folders, file_name = _parts(name)
    opened = os.open(directory, _DIRECTORY)
    try:
        for folder in folders:
            opened, outer = _open_at(opened, folder, _DIRECTORY | os.O_NOFOLLOW), opened
            os.close(outer)
        descriptor = _open_at(opened, file_name, _FILE)
    finally:
        os.close(opened)
    try:
        _check_regular(os.fstat(descriptor).st_mode, name)
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def open_named(path: Path) -> BinaryIO:
    """Opens a file that the user has named, for reading; links to it are followed.

    Raises:
        FileNotFoundError: there is no such file.
        NotAFileError: it is no regular file.
        OSError: it cannot be read.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ENXIO:
            _check_regular(path.stat().st_mode, str(path))
        raise
    try:
        _check_regular(os.fstat(descriptor).st_mode, str(path))
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def check(directory: Path, name: str) -> None:
    """Checks that a path below a directory leads to nothing but a regular file in it.

    Raises:
        FileNotFoundError: there is no such file.
        OSError: `open_file` would not open it.
    """
    open_file(directory, name).close()


def read_bytes(directory: Path, name: str, largest: int = LARGEST_JSON) -> bytes:
    """The content of a file.

    Raises:
        FileNotFoundError: there is no such file.
        OSError: it cannot be opened (see `open_file`), or is larger than `largest` bytes.
    """
    with open_file(directory, name) as file:
        if os.fstat(file.fileno()).st_size > largest:
            raise OSError(errno.EFBIG, f"it is larger than {largest} bytes", name)
        return file.read(largest)


def read_end(path: Path, largest: int = LARGEST_JSON) -> str:
    """The end of a text file, `largest` bytes of it at most; "" if there is no regular one."""
    try:
        with open_file(path.parent, path.name) as file:
            file.seek(max(os.fstat(file.fileno()).st_size - largest, 0))
            return file.read(largest).decode("utf-8", errors="replace").replace("\r\n", "\n")
    except (FileNotFoundError, NotAFileError):
        return ""


def complete_lines(text: str) -> list[str]:
    """Splits a text into lines; a last line without a line break is truncated, and is dropped."""
    return [line.rstrip("\n") for line in text.splitlines(keepends=True) if line.endswith("\n")]


def is_file(directory: Path, name: str) -> bool:
    """True if `open_file` would open it."""
    try:
        check(directory, name)
    except OSError:
        return False
    return True


def size(directory: Path, name: str) -> int:
    """The bytes of a file; 0 if there is no regular one."""
    try:
        with open_file(directory, name) as file:
            return os.fstat(file.fileno()).st_size
    except OSError:
        return 0


def files_below(directory: Path) -> Iterator[Path]:
    """The regular files below a directory, sorted; links are neither listed nor followed."""
    for folder, folders, names in os.walk(directory, followlinks=False):
        folders.sort()
        for name in sorted(names):
            path = Path(folder) / name
            with contextlib.suppress(OSError):  # it was deleted meanwhile
                if stat.S_ISREG(path.lstat().st_mode):
                    yield path


def _parts(name: str) -> list[str]:
    """The parts of a path below a directory.

    Raises:
        OSError: it leads out of the directory, or cannot be the name of a file.
    """
    parts = list(PurePosixPath(name).parts)
    if not parts or name.startswith("/") or ".." in parts:
        raise OSError(errno.EACCES, "it lies outside of the directory", name)
    try:
        if b"\0" in os.fsencode(name):
            raise ValueError
    except ValueError:
        raise OSError(errno.EINVAL, "it cannot be the name of a file") from None
    return parts


def _open_at(directory: int, name: str, flags: int) -> int:
    try:
        return os.open(name, flags, dir_fd=directory)
    except FileNotFoundError:
        raise
    except OSError as error:
        mode = stat.S_IFREG
        with contextlib.suppress(OSError):
            mode = os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode
        if stat.S_ISLNK(mode) or error.errno == errno.ENXIO:
            _check_regular(mode, name)
        raise


def _check_regular(mode: int, name: str) -> None:
    if not stat.S_ISREG(mode):
        raise NotAFileError(_KINDS.get(stat.S_IFMT(mode), "no regular file"), name)


_KINDS = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
