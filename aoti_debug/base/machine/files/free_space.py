"""Checks, before work begins, that a disk and the memory have room for it; what a directory takes."""

from __future__ import annotations

import os
import shutil
import stat
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from aoti_debug.base import wording
from aoti_debug.base.errors import TargetError
from aoti_debug.base.machine.files import cgroup_memory

RESERVED = 256 << 20  # bytes that are left for others
_MEMORY = Path("/proc/meminfo")


def require_disk(needs: Iterable[tuple[Path, int]], what: str, *, hint: str, reserved: int = RESERVED) -> None:
    """Checks that each disk has room for the bytes that are needed in its folders together.

    Args:
        needs: folders, and bytes in each.
        what: the subject of the error: "building m.pt2".
        reserved: bytes that are to be left.

    Raises:
        TargetError: a disk has not; the message has both numbers.
        OSError: a folder does not exist.
    """
    needed: dict[int, int] = defaultdict(int)
    folders: dict[int, Path] = {}
    for folder, size in needs:
        disk = os.stat(folder).st_dev
        needed[disk] += size
        folders.setdefault(disk, folder)
    for disk, folder in folders.items():
        free = shutil.disk_usage(folder).free
        if needed[disk] + reserved > free:
            _refuse(what, needed[disk], f"on the disk of {folder}", free, hint)


def require_memory(size: int, what: str, *, hint: str) -> None:
    """Checks that the host has room for these bytes, in memory or swap, and its control groups allow as many.

    Where Linux does not say, nothing is checked.

    Raises:
        TargetError: it has not; the message has both numbers.
    """
    free = [number for number in (_free_memory(), cgroup_memory.free_bytes()) if number is not None]
    if free and size > min(free):
        _refuse(what, size, "of memory", min(free), hint)


def _free_memory() -> int | None:
    try:
        lines = dict(line.split(":") for line in _MEMORY.read_text().splitlines())
        return sum(int(lines[name].split()[0]) << 10 for name in ("MemAvailable", "SwapFree"))
    except (OSError, ValueError, KeyError):
        return None


def _refuse(what: str, needed: int, where: str, free: int, hint: str) -> None:
    sizes = [wording.byte_size(size) for size in (needed, free)]
    raise TargetError(f"{what} needs {sizes[0]} {where}, and {sizes[1]} are free", hint=hint)


def bytes_of(path: Path) -> int:
    """The bytes on the disk of a file, or of a directory with all below it; links are not followed, and count once."""
    seen: set[tuple[int, int]] = set()
    total = 0
    waiting = [path]
    while waiting:
        current = waiting.pop()
        try:
            found = current.lstat()
            if stat.S_ISDIR(found.st_mode):
                waiting += current.iterdir()
        except FileNotFoundError:
            continue  # deleted meanwhile
        if (found.st_dev, found.st_ino) not in seen:
            seen.add((found.st_dev, found.st_ino))
            total += found.st_blocks * 512
    return total
