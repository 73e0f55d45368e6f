"""Checks, before work begins, that a disk and the memory have room for it; what a directory takes."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from aoti_debug.base import wording
from aoti_debug.base.errors import TargetError
from aoti_debug.base.frozen import dataclass

RESERVED = 256 << 20  # bytes that are left for others
_MEMORY = Path("/proc/meminfo")
_NO_LIMIT = 1 << 60  # version 1 of control groups writes a number near 2^63


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
    free = [number for number in (_free_memory(), free_in_groups()) if number is not None]
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


@dataclass(frozen=True)
class _Version:
    """A version of control groups: the names of its files, and of what the system gives back when memory is scarce."""

    folder: str
    controller: str
    limit: str
    usage: str
    reclaimable: tuple[str, ...]


_VERSIONS = (
    _Version("", "", "memory.max", "memory.current", ("active_file", "inactive_file", "slab_reclaimable")),
    _Version(
        "memory",
        "memory",
        "memory.limit_in_bytes",
        "memory.usage_in_bytes",
        ("total_active_file", "total_inactive_file"),
    ),
)


def free_in_groups(groups: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")) -> int | None:
    """The bytes that this process may still use; None if no control group limits them, or Linux does not say.

    Files that the system keeps in memory count as free.

    Args:
        groups: a line for each hierarchy, "NUMBER:CONTROLLERS:PATH".
        root: where the hierarchies are mounted.
    """
    found: list[int] = []
    with contextlib.suppress(OSError, UnicodeDecodeError):
        for line in groups.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            for version in _VERSIONS:
                if version.controller in controllers.split(","):
                    found += _free_in(version, root / version.folder, path)
    return min(found, default=None)


def _free_in(version: _Version, mounted: Path, path: str) -> Iterator[int]:
    """The bytes that a group, and each above it, leaves. In a container, its path may be one of the machine outside."""
    group = mounted / path.lstrip("/")
    for folder in (group, *group.parents):
        if not folder.is_relative_to(mounted):
            return
        with contextlib.suppress(OSError, ValueError, KeyError):
            limit = int((folder / version.limit).read_text())  # ValueError: "max"
            if limit < _NO_LIMIT:
                used = int((folder / version.usage).read_text())
                lines = (line.split() for line in (folder / "memory.stat").read_text().splitlines())
                counts = {line[0]: int(line[1]) for line in lines}
                yield max(limit - used + sum(counts.get(name, 0) for name in version.reclaimable), 0)
