"""Whether the members of a `.pt2` archive are such as torch writes, by the archive's directory: before any is read."""

from __future__ import annotations

import stat
import zipfile
import zlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from aoti_debug.errors import ArtifactError

DAMAGED = (zipfile.BadZipFile, zlib.error, EOFError)  # what reading a member raises where its bytes are not sound
TRUST = "do not use this file: no torch writes such an archive"
_LARGEST_RATIO = 200  # unpacked bytes a stored byte; torch stores weights as they are
_SMALL = 1 << 24  # bytes; what is smaller may be as dense as it likes
_LONGEST = 255  # bytes of a file's name
_SHOWN = 60  # characters of a name
_PACKED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_ENCRYPTED, _PATCHED, _STRONGLY_ENCRYPTED = 1, 1 << 5, 1 << 6  # bits of a member's flags


def check(path: Path, members: Sequence[zipfile.ZipInfo]) -> None:
    """
    Args:
        path: of the archive, for the message.

    Raises:
        ArtifactError: a name leads outside of the archive, is there twice or no file can have it; a member is a link,
            blows up, has a password or is packed in another way than torch's.
    """
    for info in members:
        _check_name(path, info.orig_filename)
        what = _wrong(info)
        if what:
            raise ArtifactError(f"{path} {what}; nothing was unpacked", hint=TRUST)
    name, count = Counter(info.filename for info in members).most_common(1)[0] if members else ("", 0)
    if count > 1:
        raise ArtifactError(f"{path} names {shown(name)} twice; nothing was unpacked", hint=TRUST)


def shown(name: str) -> str:
    """A name that somebody made up, fit to be read."""
    text = name if name.isprintable() else repr(name)
    return text if len(text) <= _SHOWN else f"…{text[-_SHOWN:]}"


def _wrong(info: zipfile.ZipInfo) -> str:
    """What no torch writes; "" where it may be torch's."""
    name = shown(info.filename)
    if stat.S_ISLNK(info.external_attr >> 16):
        return f"holds a link, {name}"
    if any(len(part.encode()) > _LONGEST for part in PurePosixPath(info.filename).parts):
        return f"holds a name of {len(info.filename)} characters, {name}"
    if info.flag_bits & (_ENCRYPTED | _STRONGLY_ENCRYPTED):
        return f"has a password on {name}"
    if info.flag_bits & _PATCHED:
        return f"holds {name} as a patch"
    if info.compress_type not in _PACKED:
        return f"packs {name} in a way that torch does not ({info.compress_type})"
    if info.file_size > _SMALL and info.file_size > _LARGEST_RATIO * max(info.compress_size, 1):
        return f"holds {name}, which would grow from {info.compress_size} to {info.file_size} bytes"
    return ""


def _check_name(path: Path, name: str) -> None:
    unsafe = (
        name.startswith(("/", "\\"))
        or "\0" in name
        or "\\" in name
        or (len(name) > 1 and name[1] == ":")
        or ".." in PurePosixPath(name).parts
    )
    if unsafe:
        raise ArtifactError(
            f"{path} names a member {shown(name)}, which lies outside the archive; nothing was unpacked", hint=TRUST
        )
