"""Remembers what this user has made on this machine, or has said to trust: by hashes, in a directory of their own.

What is remembered is one empty file for each hash. A received file is never among them, unless its content is that of
one that was made on this account.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pwd
import stat
from pathlib import Path

from aoti_debug.base.errors import ToolchainError
from aoti_debug.base.machine import cache, user_directories

_ORIGIN = "user.xdg.origin.url"  # an attribute that browsers, wget and curl set on what they download
_FOLDER = "made_here"
_KEPT = 20_000


def remember(*parts: str) -> None:
    """Remembers something by texts that identify it; without a directory for it, nothing is remembered."""
    with contextlib.suppress(OSError, ToolchainError):
        folder = _directory()
        (folder / _name(parts)).touch(mode=0o600)
        names = os.listdir(folder)
        if len(names) > _KEPT:
            for path in sorted((folder / name for name in names), key=lambda path: path.stat().st_mtime)[: _KEPT // 4]:
                path.unlink(missing_ok=True)


def knows(*parts: str) -> bool:
    """True if exactly these texts were remembered."""
    try:
        path = _directory() / _name(parts)
        os.utime(path)  # what is used is kept
    except (OSError, ToolchainError):
        return False
    return True


def foreign_reason(path: Path) -> str:
    """Says why a file cannot count as this user's own: "belongs to the user alice"; "" if it can.

    A file counts as one's own if it belongs to this user or to root, nobody else may write to it, and no program has
    marked it as downloaded. The user's primary group may write to it: many systems give each user such a group.
    """
    found = path.stat()
    if found.st_uid not in (os.geteuid(), 0):
        return f"belongs to the user {_user_name(found.st_uid)}"
    if found.st_mode & stat.S_IWOTH or (found.st_mode & stat.S_IWGRP and found.st_gid != os.getegid()):
        return "can be written by other users"
    origin = b""
    with contextlib.suppress(OSError):  # no such attribute, or none on this file system
        origin = os.getxattr(path, _ORIGIN)
    return f"was downloaded from {origin.decode(errors='replace')}" if origin else ""


def _directory() -> Path:
    """The directory of the hashes; without a home directory it is in the cache.

    Raises:
        OSError, ToolchainError: there is no place for it.
    """
    state = Path(user_directories.state())
    folder = (state if user_directories.make_private(state) else cache.directory()) / _FOLDER
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def _name(parts: tuple[str, ...]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
