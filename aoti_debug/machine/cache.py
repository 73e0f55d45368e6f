"""The persistent cache: precompiled headers, runtime objects, Inductor's and Triton's own caches.

Entries are directories named by the hash of everything that they depend on. They appear whole or not at all, so two
builds at once share them without locks; the second of two equal entries is thrown away.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import platformdirs

Fill = Callable[[Path], object]  # fills an empty directory; what it returns is ignored

UNUSED_AFTER = 14 * 86400.0  # seconds; older entries go when a new one is made
ABANDONED_AFTER = 86400.0  # seconds; older scratch directories were left by a build that was killed
KEPT_ENTRIES = 12  # of one kind; a precompiled header takes 150 MB
KEPT_LOGS = 20


def directory() -> Path:
    """The cache's root, created; a folder under the temporary directory where the user has no writable one.

    Inductor compiles nothing below a directory with a space in its name.
    """
    root = Path(platformdirs.user_cache_dir("aoti_debug"))
    if " " in str(root):
        return _fallback()
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError:
        return _fallback()
    return root if os.access(root, os.W_OK) else _fallback()


def key(*parts: str) -> str:
    """A name for what depends on `parts` and nothing else."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part.encode()).to_bytes(8, "little"))
        digest.update(part.encode())
    return digest.hexdigest()[:32]


def entry(kind: str, name: str, fill: Fill) -> Path:
    """The directory of an entry; where it is missing, `fill` makes it in an empty directory that is then moved there.

    What `fill` raises is raised here, and leaves nothing behind.
    """
    folder = directory() / kind
    path = folder / name
    if path.is_dir():
        with contextlib.suppress(OSError):  # a cache that may only be read still serves
            os.utime(path)
        return path
    folder.mkdir(parents=True, exist_ok=True)
    _forget(folder, UNUSED_AFTER, KEPT_ENTRIES - 1)
    with scratch() as work:
        fill(work)
        try:
            work.rename(path)
        except OSError:
            if not path.is_dir():
                raise
    return path


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A new directory, on the file system of the entries; gone at the end whatever happens."""
    folder = directory() / "scratch"
    folder.mkdir(parents=True, exist_ok=True)
    _forget(folder, ABANDONED_AFTER, 1 << 20)
    path = Path(tempfile.mkdtemp(prefix=f"{os.getpid()}-", dir=folder))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def keep_log(name: str, text: str) -> Path:
    """Keeps the text of a failure where it outlives the build; the oldest logs go."""
    folder = directory() / "logs"
    folder.mkdir(parents=True, exist_ok=True)
    for old in sorted(folder.glob("*.log"), key=lambda path: path.name)[: -KEPT_LOGS + 1]:
        old.unlink(missing_ok=True)
    path = folder / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}-{name}.log"
    path.write_text(text)
    return path


def _forget(folder: Path, age: float, count: int) -> None:
    """Deletes what was not used for `age` seconds, and of the rest all but the `count` last used."""
    used: list[tuple[float, Path]] = []
    for path in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):  # another build was faster
            used.append((path.stat().st_mtime, path))
    used.sort(reverse=True)
    limit = time.time() - age
    for position, (when, path) in enumerate(used):
        if when < limit or position >= count:
            shutil.rmtree(path, ignore_errors=True)


def _fallback() -> Path:
    root = Path(tempfile.gettempdir()) / f"aoti_debug-{os.getuid()}"
    root.mkdir(mode=0o700, exist_ok=True)
    return root
