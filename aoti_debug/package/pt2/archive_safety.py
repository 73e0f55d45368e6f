"""Checks the members of an untrusted `.pt2` archive by its directory, before any of them is read."""

from __future__ import annotations

import stat
import zipfile
import zlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from aoti_debug.base.errors import ArtifactError

DAMAGED = (zipfile.BadZipFile, zlib.error, EOFError)  # raised by reading a member whose bytes are damaged
UNTRUSTED_HINT = "do not use this file: no torch writes such an archive"
_MAX_RATIO = 200  # unpacked bytes per stored byte; torch stores weights uncompressed
_RATIO_CHECKED_FROM = 1 << 24  # bytes; smaller members may have any compression ratio
_MAX_MEMBERS = 1_000_000
_MAX_NAME_BYTES = 255  # of a file
_PRINTED_CHARACTERS = 60  # of a name
_COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_ENCRYPTED, _PATCHED, _STRONGLY_ENCRYPTED = 1, 1 << 5, 1 << 6  # bits of a member's flags


def check(path: Path, members: Sequence[zipfile.ZipInfo]) -> None:
    """Refuses an archive that torch cannot have written.

    Args:
        path: of the archive, for the message.

    Raises:
        ArtifactError: a name leads outside of the archive, occurs twice or is too long for a file; a member is a link,
            a decompression bomb, alone or with the others, encrypted, or compressed in a way that torch does not use.
    """
    if len(members) > _MAX_MEMBERS:
        raise ArtifactError(f"{path} holds {len(members)} members; nothing was unpacked", hint=UNTRUSTED_HINT)
    for info in members:
        _check_name(path, info.orig_filename)
        reason = _unsafe_reason(info)
        if reason:
            raise ArtifactError(f"{path} {reason}; nothing was unpacked", hint=UNTRUSTED_HINT)
    unpacked, stored = sum(info.file_size for info in members), sum(info.compress_size for info in members)
    if _grows_too_much(unpacked, stored):
        raise ArtifactError(
            f"{path} would grow from {stored} to {unpacked} bytes; nothing was unpacked", hint=UNTRUSTED_HINT
        )
    for name, count in Counter(info.filename for info in members).items():
        if count > 1:
            raise ArtifactError(f"{path} names {printable(name)} twice; nothing was unpacked", hint=UNTRUSTED_HINT)


def printable(name: str) -> str:
    """A name out of an untrusted file, escaped and shortened for a message."""
    text = name if name.isprintable() else repr(name)
    return text if len(text) <= _PRINTED_CHARACTERS else f"…{text[-_PRINTED_CHARACTERS:]}"


def _unsafe_reason(info: zipfile.ZipInfo) -> str:
    """Says why torch cannot have written a member; "" if it can."""
    name = printable(info.filename)
    if stat.S_ISLNK(info.external_attr >> 16):
        return f"holds a link, {name}"
    if any(len(part.encode()) > _MAX_NAME_BYTES for part in PurePosixPath(info.filename).parts):
        return f"holds a name of {len(info.filename)} characters, {name}"
    if info.flag_bits & (_ENCRYPTED | _STRONGLY_ENCRYPTED):
        return f"has a password on {name}"
    if info.flag_bits & _PATCHED:
        return f"holds {name} as a patch"
    if info.compress_type not in _COMPRESSIONS:
        return f"compresses {name} in a way that torch does not ({info.compress_type})"
    if _grows_too_much(info.file_size, info.compress_size):
        return f"holds {name}, which would grow from {info.compress_size} to {info.file_size} bytes"
    return ""


def _grows_too_much(unpacked: int, stored: int) -> bool:
    return unpacked > _RATIO_CHECKED_FROM and unpacked > _MAX_RATIO * stored


def _check_name(path: Path, name: str) -> None:
    unsafe = (
        name.startswith("/") or "\0" in name or "\\" in name or name[1:2] == ":" or ".." in PurePosixPath(name).parts
    )
    if unsafe:
        raise ArtifactError(
            f"{path} names a member {printable(name)}, which lies outside the archive; nothing was unpacked",
            hint=UNTRUSTED_HINT,
        )
