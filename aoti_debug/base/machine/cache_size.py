"""The size of the cache: what of it can be deleted, and the bound that it is kept below."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.files.free_space import bytes_of

LIMIT = 2 << 30  # bytes
IN_USE = 600.0  # seconds; what was used since may be in use
_NEEDED = frozenset({"locks", "scratch", "durations", "made_here"})  # small, or of processes that run


@dataclass(frozen=True)
class CachedEntry:
    """A file or directory of the cache that can be made again.

    Attributes:
        bytes: on the disk.
        used: when it was used last, in seconds since 1970.
    """

    path: Path
    bytes: int
    used: float


def entries(root: Path) -> list[CachedEntry]:
    """The entries that can be deleted, the least recently used first."""
    found = []
    for path in _deletable(root):
        with contextlib.suppress(FileNotFoundError):  # another process has deleted it
            found.append(CachedEntry(path, bytes_of(path), path.lstat().st_mtime))
    return sorted(found, key=lambda entry: entry.used)


def _deletable(root: Path) -> Iterator[Path]:
    """The entries of every kind; of files that lie beside the kinds, none."""
    for kind in root.iterdir():
        if kind.name not in _NEEDED and kind.is_dir() and not kind.is_symlink():
            with contextlib.suppress(FileNotFoundError):
                yield from kind.iterdir()


def shrink(root: Path, limit: int = LIMIT) -> int:
    """Deletes the least recently used entries until the others take less than a limit; returns the bytes deleted.

    What may be in use stays, so that the cache may be larger for a while.
    """
    known, deleted = entries(root), 0
    excess = sum(entry.bytes for entry in known) - limit
    newest = time.time() - IN_USE
    for entry in known:
        if deleted >= excess or entry.used > newest:
            break
        delete(entry)
        deleted += entry.bytes
    return deleted


def delete(entry: CachedEntry) -> None:
    """Deletes an entry; one that another process deletes, too, is no error."""
    if entry.path.is_dir() and not entry.path.is_symlink():
        shutil.rmtree(entry.path, ignore_errors=True)
    else:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(entry.path)
