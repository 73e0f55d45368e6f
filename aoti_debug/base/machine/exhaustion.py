"""Exhausted disks and memory: checks before work begins, and the errors that say so, with what would help."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import stat
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from aoti_debug.base import wording
from aoti_debug.base.errors import TargetError
from aoti_debug.base.frozen import dataclass

DISK, MEMORY, DEVICE = "disk space", "memory", "device memory"
_FULL = (errno.ENOSPC, errno.EDQUOT)
_HINTS = {
    DISK: "free some space; temporary files are in XDG_CACHE_HOME and TMPDIR, runs and packages where --out says",
    MEMORY: "end other programs, or use a machine with more memory; "
    "weights that stay in the program's file (build --weights by-reference) are mapped, not read into memory",
    DEVICE: "nvidia-smi shows what uses the device; CUDA_VISIBLE_DEVICES names another one",
}
_SYSTEM_HINTS = {
    errno.EACCES: "ls -ld FILE, and of the folders above it, shows who may read and write it",
    errno.EPERM: "ls -ld FILE, and of the folders above it, shows who may read and write it",
    errno.EROFS: "the file system is mounted for reading only: name a place on another one",
    errno.EIO: "the file system reports an error: dmesg may say more; try a copy on another disk",
    errno.EMFILE: "ulimit -n is the number of files that a process may have open: raise it",
}
# Of the texts of torch, the driver, C and C++ libraries and compilers, in lower case.
_DEVICE_WORDS = ("cuda out of memory", "cuda error: out of memory", "cuda driver error: out of memory")
_MEMORY_WORDS = (
    *("can't allocate memory", "cannot allocate memory", "std::bad_alloc", "memoryerror"),
    *("virtual memory exhausted", "out of memory allocating"),
)
_RAISED = re.compile(r"^[\w.]*Error: \[Errno (\d+)\] ([^\n]*)\Z", re.MULTILINE)
_STREAM_WORDS = "iostream error"
_DISK_WORDS = ("no space left on device", "disk quota exceeded")


@dataclass(frozen=True)
class Exhausted:
    """An exhausted resource.

    Attributes:
        what: "disk space", "memory" or "device memory".
        text: the first line of the exception that says so, "No space left on device: /tmp/model.so".
    """

    what: str
    text: str

    @property
    def hint(self) -> str:
        """The advice: a sentence without its end."""
        return hint_for(self.what)


@dataclass(frozen=True)
class Unwritten:
    """A file that cannot be written, nobody knows why.

    Attributes:
        text: "a file cannot be written: basic_ios::clear: iostream error".
    """

    text: str
    hint: str = "the disk may be full: df -h shows the room in XDG_CACHE_HOME and TMPDIR"


def exhausted(error: BaseException) -> Exhausted | None:
    """The resource that an exception, or one that it came from, says is exhausted; None if none does."""
    for link in chain_of(error):
        what = _resource(link)
        if what:
            return Exhausted(what, _text(link))
    return None


def _resource(error: BaseException) -> str:
    if isinstance(error, OSError) and error.errno in _FULL:
        return DISK
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
        return MEMORY
    if not isinstance(error, RuntimeError):
        return ""
    return DEVICE if type(error).__name__ == "OutOfMemoryError" else lacking(str(error))


def lacking(text: str) -> str:
    """The resource that is exhausted, by the words of a library or a compiler; "" if none is."""
    words = text.lower()
    if any(said in words for said in _DISK_WORDS):
        return DISK
    if any(said in words for said in _DEVICE_WORDS):
        return DEVICE
    return MEMORY if any(said in words for said in _MEMORY_WORDS) else ""


def hint_for(what: str) -> str:
    """The advice where "disk space", "memory" or "device memory" is exhausted."""
    return _HINTS[what]


def advice(error: BaseException) -> str:
    """The hint for an exception whose own says nothing: what the system said, or "" if that is no such thing."""
    for link in chain_of(error):
        if what := _resource(link):
            return hint_for(what)
        if isinstance(link, OSError) and link.errno in _SYSTEM_HINTS:
            return _SYSTEM_HINTS[link.errno]
    return ""


def refusal(error: BaseException) -> OSError | None:
    """The error of the system that an exception is, or came from, if `advice` knows it; None for any other."""
    links = (link for link in chain_of(error) if isinstance(link, OSError))
    return next((link for link in links if advice(link)), None)


def unwritten(error: BaseException) -> Unwritten | None:
    """The file that a stream of torch could not write, by its exception, which names no error; None by any other."""
    links = (link for link in chain_of(error) if isinstance(link, RuntimeError) and _STREAM_WORDS in str(link))
    found = next(links, None)
    return None if found is None else Unwritten(f"a file cannot be written: {wording.first_line(str(found))}")


def raised_refusal(output: str) -> OSError | None:
    """The same of a Python process that an exception has ended: its traceback is the end of what it has printed."""
    found = _RAISED.search(output.rstrip())
    if found is None:
        return None
    said, _, file = found[2].partition(": ")
    error = OSError(int(found[1]), said, file.strip("'\"") or None)
    return error if advice(error) else None


def system_text(error: OSError) -> str:
    """The system's words for an error, and the file: "Permission denied: /tmp/model.so"."""
    said = os.strerror(error.errno) if error.errno is not None else wording.first_line(str(error))
    return said + (f": {error.filename}" if error.filename else "")


def _text(error: BaseException) -> str:
    if isinstance(error, OSError) and error.errno is not None:
        return system_text(error)
    return wording.first_line(str(error)) or "out of memory"


def chain_of(error: BaseException | None) -> Iterator[BaseException]:
    """An exception, and those that it was raised from or while handling."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


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
