"""Remembers where instrumented packages were built: a run whose package another program has loaded does not say it.

What is remembered is one file for each manifest, which holds the path. A package may have been built again or be gone
since: whoever asks compares its manifest.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from aoti_debug.base.machine import user_directories
from aoti_debug.base.machine.files import atomic_write

_FOLDER = "package_places"
_KEPT = 1000


def remember(manifest_sha256: str, package: Path) -> None:
    """Remembers the place of a package; without a private directory for it, nothing is remembered."""
    state = user_directories.state()
    if not user_directories.make_private(state):
        return
    folder = Path(state) / _FOLDER
    with contextlib.suppress(OSError):
        folder.mkdir(mode=0o700, exist_ok=True)
        atomic_write.write(folder / manifest_sha256, str(package.resolve()))
        names = os.listdir(folder)
        if len(names) > _KEPT:
            for path in sorted((folder / name for name in names), key=lambda path: path.stat().st_mtime)[: _KEPT // 4]:
                path.unlink(missing_ok=True)


def find(manifest_sha256: str) -> Path | None:
    """The place where a package of this manifest was built last; None if that is not known, or nothing is there."""
    try:
        path = Path((Path(user_directories.state()) / _FOLDER / manifest_sha256).read_text())
    except (OSError, ValueError):
        return None
    return path if path.is_file() else None
