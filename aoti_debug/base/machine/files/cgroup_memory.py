"""The memory that the control groups of this process leave it, as of a container: /proc/meminfo is the machine's."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from aoti_debug.base.frozen import dataclass

_NO_LIMIT = 1 << 60  # version 1 writes a number near 2^63


@dataclass(frozen=True)
class _Version:
    """The names of a version's files, and of what the system gives back when memory is scarce."""

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


def free_bytes(groups: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")) -> int | None:
    """The bytes that this process may still use; None if no group limits them, or Linux does not say.

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
