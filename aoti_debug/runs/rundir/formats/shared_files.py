"""The memory in /dev/shm that a run directory links to, as runtime_shims/machine/shared_file.h makes it.

A received run directory may contain such a link to any file. It counts only if it leads to a regular file directly in
/dev/shm that has the name of this tool's memory, belongs to this user, and contains the path of this run directory.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

from aoti_debug.base.frozen import dataclass

DIRECTORY = Path("/dev/shm")
FLIGHT_RECORDER = "flight.bin"  # the link to the memory of the flight recorder
_NAME = re.compile(r"aoti_debug-(\d+)-\d+(?:-(.+))?\Z")
_PAGE = 4096  # the last page of the file is the run directory's path


@dataclass(frozen=True)
class SharedFile:
    """A file of this user in /dev/shm, by its name memory of this tool.

    Attributes:
        pid: the process that made it.
        name: of the link in the run directory, "crumbs.bin"; "" if it never had one.
    """

    path: Path
    pid: int
    name: str

    def run_directory(self) -> Path | None:
        """The run directory whose path it contains; None if it contains none."""
        try:
            with os.fdopen(_open(self.path), "rb") as file:
                file.seek(-min(_PAGE, os.fstat(file.fileno()).st_size), os.SEEK_END)
                name = file.read().rstrip(b"\0")
        except OSError:
            return None
        return Path(os.fsdecode(name)) if name.startswith(b"/") and b"\0" not in name else None


def all_files() -> list[SharedFile]:
    """Every such file."""
    return [file for path in DIRECTORY.glob("aoti_debug-*") if (file := _shared_file(path)) is not None]


def linked(run: Path, name: str) -> Path | None:
    """The file that the link `name` of a run directory leads to; None if there is none, or it is not the run's own."""
    try:
        path = Path(os.readlink(run / name))
    except OSError:
        return None
    file = _shared_file(path) if path.parent == DIRECTORY else None
    if file is None or file.name != name:
        return None
    directory = file.run_directory()
    return path if directory is not None and _is_same_directory(directory, run) else None


def remove(run: Path, name: str) -> None:
    """Frees the memory that the link `name` of a run directory leads to, and removes the link."""
    path = linked(run, name)
    if path is not None:
        path.unlink(missing_ok=True)
        (run / name).unlink(missing_ok=True)


def _shared_file(path: Path) -> SharedFile | None:
    """The file of a path; None if it is no regular file of this user, or has another name."""
    match = _NAME.match(path.name)
    if match is None:
        return None
    try:
        found = path.lstat()
    except OSError:
        return None
    is_ours = stat.S_ISREG(found.st_mode) and found.st_uid == os.getuid()
    return SharedFile(path, int(match[1]), match[2] or "") if is_ours else None


def _open(path: Path) -> int:
    return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)


def _is_same_directory(first: Path, second: Path) -> bool:
    try:
        return first.samefile(second)
    except OSError:
        return False
