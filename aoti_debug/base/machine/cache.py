"""The persistent cache: precompiled headers, objects, and the caches of Inductor and Triton.

Entries are directories named by the hash of everything that they depend on. They are created atomically. Of concurrent
builds that need the same entry the first makes it, and the others wait; where files cannot be locked, the second of two
equal entries is deleted.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from aoti_debug.base.errors import ToolchainError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine import user_directories
from aoti_debug.base.machine.exhaustion import bytes_of


def make() -> str:
    """Creates and returns it; where no private one can be made, a folder in the temporary directory.

    Libraries and objects in it are executed, so that nobody else may write there. A path with a space is not
    used: Inductor cannot compile there.

    Raises:
        OSError: there is no place for it.
    """
    root = user_directories.cache()
    if " " not in root and user_directories.make_private(root):
        return root
    return str(user_directories.make_private_temporary(f"aoti_debug-{os.getuid()}"))


Fill = Callable[[Path], object]  # fills an empty directory; what it returns is ignored

UNUSED_AFTER = 14 * 86400.0  # seconds; older entries are deleted when a new one is made
ABANDONED_AFTER = 86400.0  # seconds; older scratch directories belong to builds that were killed elsewhere
KEPT_ENTRIES = 12  # of one kind; a precompiled header takes 150 MB
KEPT_LOGS = 20
LIMIT = 2 << 30  # bytes
IN_USE = 600.0  # seconds; what was used since may be in use
SHRUNK_EVERY = 60.0  # seconds
_NEEDED = frozenset({"locks", "scratch", "durations", "made_here"})  # small, or of processes that run


def directory() -> Path:
    """Creates and returns the root of the cache.

    Raises:
        ToolchainError: there is no place for it.
    """
    try:
        return Path(make())
    except OSError as error:
        raise ToolchainError(
            f"the cache has no place: neither {user_directories.cache()} nor {tempfile.gettempdir()} can be used: "
            f"{error.strerror}",
            hint="export XDG_CACHE_HOME=DIR names another directory, which only you may write to",
        ) from error


def key(*parts: str) -> str:
    """The name of an entry that depends on `parts` only."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part.encode()).to_bytes(8, "little"))
        digest.update(part.encode())
    return digest.hexdigest()[:32]


def entry(kind: str, name: str, fill: Fill, kept: int = KEPT_ENTRIES) -> Path:
    """Returns the directory of an entry; a missing one is made by `fill` in an empty directory, which is then renamed.

    An exception of `fill` is passed on and leaves no entry. Of one kind, `kept` entries are kept at most; of all kinds
    together, what takes less than `LIMIT`, which is seen to once a minute.
    """
    found = find(kind, name)
    if found is not None:
        return found
    folder = directory() / kind
    path = folder / name
    folder.mkdir(parents=True, exist_ok=True)
    with _lock(f"{kind}-{name}"):
        if path.is_dir():
            return path
        _delete_old(folder, UNUSED_AFTER, kept - 1)
        with scratch() as work:
            fill(work)
            try:
                work.rename(path)
            except OSError:
                if not path.is_dir():
                    raise
    _shrink_if_not_lately()
    return path


def _shrink_if_not_lately() -> None:
    """Shrinks the cache, unless that was done a moment ago: a build makes many entries, and all would be visited."""
    mark = directory() / "shrunk"
    with contextlib.suppress(FileNotFoundError):
        if 0 <= time.time() - mark.stat().st_mtime < SHRUNK_EVERY:
            return
    with contextlib.suppress(OSError):
        mark.touch()
    shrink(directory())


@contextlib.contextmanager
def _lock(name: str) -> Iterator[None]:
    """Waits until no other build makes an entry; does not wait on a file system without locks."""
    folder = directory() / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    try:  # a signal may come as it is opened
        with path.open("w") as file:
            with contextlib.suppress(OSError):
                fcntl.flock(file, fcntl.LOCK_EX)
            yield
    finally:
        path.unlink(missing_ok=True)


def find(kind: str, name: str) -> Path | None:
    """Returns the directory of an entry; None if there is none."""
    path = directory() / kind / name
    if not path.is_dir():
        return None
    with contextlib.suppress(OSError):  # a read-only cache can still be read
        os.utime(path)
    return path


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """Yields a new directory on the file system of the entries; it is always deleted at the end."""
    folder = directory() / "scratch"
    folder.mkdir(parents=True, exist_ok=True)
    _delete_abandoned(folder)
    path = folder / f"{_scratch_prefix()}{os.urandom(4).hex()}"
    try:  # a signal may come as it is made
        path.mkdir(mode=0o700)
        yield path
    finally:
        _remove(path)


def _scratch_prefix() -> str:
    """The beginning of the names of this process's scratch directories: its id, and where that is one."""
    return f"{os.getpid()}-{_process_ids()}-"


@functools.cache
def _process_ids() -> str:
    """Eight digits that tell processes of this machine, since it was started, from those of others and of containers.

    Several of them may share a cache; a process of another one is not seen.
    """
    try:
        started = Path("/proc/sys/kernel/random/boot_id").read_text()
        return key(started, str(os.stat("/proc/self/ns/pid").st_ino))[:8]
    except OSError:
        return os.urandom(4).hex()


def _delete_abandoned(folder: Path) -> None:
    """Deletes scratch directories of processes that were killed: at once if that can be seen here, else after a day."""
    for path in folder.iterdir():
        process, _, rest = path.name.partition("-")
        if rest.startswith(f"{_process_ids()}-") and not _runs(process):
            shutil.rmtree(path, ignore_errors=True)
    _delete_old(folder, ABANDONED_AFTER, 1 << 20)


def _runs(process: str) -> bool:
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return False
    except (OSError, ValueError):  # it is another user's, or no number
        return True
    return True


def _remove(folder: Path) -> None:
    """Deletes a folder, as far as that is possible; also if a signal comes meanwhile, or one file cannot be deleted."""
    try:
        shutil.rmtree(folder)
    except OSError:
        shutil.rmtree(folder, ignore_errors=True)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def keep_log(name: str, text: str) -> Path:
    """Writes a log that outlives the build and returns its path; deletes the oldest logs."""
    folder = directory() / "logs"
    folder.mkdir(parents=True, exist_ok=True)
    for old in sorted(folder.glob("*.log"), key=lambda path: path.name)[: -KEPT_LOGS + 1]:
        old.unlink(missing_ok=True)
    path = folder / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}-{name}.log"
    path.write_text(text)
    return path


def _delete_old(folder: Path, age: float, count: int) -> None:
    """Deletes entries unused for `age` seconds, and all but the `count` most recently used of the others.

    What may be in use stays, so that there may be more for a while.
    """
    entries: list[tuple[float, Path]] = []
    for path in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):  # another build has deleted it
            entries.append((path.lstat().st_mtime, path))
    entries.sort(reverse=True)
    limit, newest = time.time() - age, time.time() - IN_USE
    for position, (used_at, path) in enumerate(entries):
        if used_at < limit or (position >= count and used_at <= newest):
            _delete(path, used_at)


def _delete(path: Path, used: float) -> bool:
    """Deletes an entry at once as a whole: no process finds a part of it.

    Args:
        used: when it was used last, in seconds since 1970; one that was used since stays.

    Returns:
        False if it is still there, or another process has deleted it.
    """
    folder = path.parents[1] / "scratch"
    try:
        folder.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=_scratch_prefix(), dir=folder, ignore_cleanup_errors=True) as work:
            if path.lstat().st_mtime > used:
                return False
            path.rename(Path(work) / path.name)
    except OSError:
        return False
    return True


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


def cached_entries(root: Path) -> list[CachedEntry]:
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
    known, deleted = cached_entries(root), 0
    excess = sum(entry.bytes for entry in known) - limit
    newest = time.time() - IN_USE
    for entry in known:
        if deleted >= excess or entry.used > newest:
            break
        deleted += delete_entry(entry)
    return deleted


def delete_entry(entry: CachedEntry) -> int:
    """Deletes an entry unless it was used since, and returns the bytes deleted."""
    return entry.bytes if _delete(entry.path, entry.used) else 0
