"""Decides if the code in a `.pt2`, or in the record of a run, may be executed (docs/security.md).

It may if this user made it here, or says that it is to be trusted. Remembered as well is where instrumented packages
were built: a run whose package another program has loaded does not say it. That is one file for each manifest, which
holds the path. A package may have been built again or be gone since: whoever asks compares its manifest.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pwd
import stat
import zipfile
from collections.abc import Sequence
from pathlib import Path

from aoti_debug.base import wording
from aoti_debug.base.errors import ToolchainError, UsageError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine import cache, user_directories
from aoti_debug.base.machine.files import atomic_write
from aoti_debug.package.manifest import Manifest
from aoti_debug.package.pt2.archive import DAMAGED, Artifact, ArtifactKind, printable, unreadable

_ORIGIN = "user.xdg.origin.url"  # an attribute that browsers, wget and curl set on what they download
_FOLDER = "made_here"
_KEPT = 20_000
_PLACES_FOLDER = "package_places"
_KEPT_PLACES = 1000


def remember_place(manifest_sha256: str, package: Path) -> None:
    """Remembers the place of a package; without a private directory for it, nothing is remembered."""
    state = user_directories.state()
    if not user_directories.make_private(state):
        return
    folder = Path(state) / _PLACES_FOLDER
    with contextlib.suppress(OSError):
        folder.mkdir(mode=0o700, exist_ok=True)
        atomic_write.write(folder / manifest_sha256, str(package.resolve()))
        _forget_oldest(folder, _KEPT_PLACES)


def find_place(manifest_sha256: str) -> Path | None:
    """The place where a package of this manifest was built last; None if that is not known, or nothing is there."""
    try:
        path = Path((Path(user_directories.state()) / _PLACES_FOLDER / manifest_sha256).read_text())
    except (OSError, ValueError):
        return None
    return path if path.is_file() else None


def _forget_oldest(folder: Path, kept: int) -> None:
    """Deletes a quarter of the files of a folder that has more than are kept."""
    names = os.listdir(folder)
    if len(names) > kept:
        for path in sorted((folder / name for name in names), key=lambda path: path.stat().st_mtime)[: kept // 4]:
            path.unlink(missing_ok=True)


def keep_hash(*parts: str) -> None:
    """Remembers something by texts that identify it; without a directory for it, nothing is remembered."""
    with contextlib.suppress(OSError, ToolchainError):
        folder = _directory()
        (folder / _name(parts)).touch(mode=0o600)
        _forget_oldest(folder, _KEPT)


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


TRUST_HINT = "if you trust whoever made it: --trust"
_CHUNK = 1 << 20
_MANIFEST, _RUN = "manifest", "run"


def require(package: Artifact, *, trusted: bool) -> None:
    """Checks that the code in a file may run.

    An instrumented package has to have the content of one that was built here. Of any other `.pt2`, which torch wrote,
    the maker is not known: the file has to be this user's own (`trusted_hashes.foreign_reason`).

    Args:
        trusted: the user trusts it; the content of an instrumented package is remembered.

    Raises:
        UsageError: it may not.
        ArtifactError: the content of an instrumented package is damaged.
    """
    if package.kind is ArtifactKind.INSTRUMENTED:
        _require_built_here(package, trusted=trusted)
        return
    reason = "" if trusted else foreign_reason(package.path)
    if reason:
        raise UsageError(f"{package.path} {reason}; {_WOULD_RUN[package.kind]}", hint=TRUST_HINT)


@dataclass(frozen=True)
class Content:
    """The content of an instrumented package.

    Attributes:
        sha256: of the names and contents of all members.
    """

    sha256: str
    manifest: Manifest


def content_of(package: Artifact) -> Content:
    """Reads an instrumented package as a whole.

    Raises:
        ArtifactError: it is damaged.
    """
    return Content(_content_hash(package), package.manifest())


def remember(package: Artifact) -> None:
    """Remembers that this user made an instrumented package here, so that it may be executed.

    Raises:
        ArtifactError: it is damaged.
    """
    remember_as(package.path, content_of(package))


def remember_as(path: Path, content: Content) -> None:
    """The same of a package with this content, without reading it again."""
    keep_hash("package", content.sha256)
    keep_hash("package file", *_identity(path))
    remember_run(content.manifest)
    remember_place(content.manifest.sha256, path)


def remember_run(manifest: Manifest, imports: Sequence[str] = (), libraries: Sequence[str] = ()) -> None:
    """Remembers the manifest of a package that may run, and what a run of it imports and loads beside its own."""
    keep_hash(_MANIFEST, manifest.sha256)
    if not _is_covered(manifest, imports, libraries):
        keep_hash(_RUN, manifest.sha256, *imports, "", *libraries)


def is_made_here(manifest: Manifest, imports: Sequence[str], libraries: Sequence[str]) -> bool:
    """True if what the repetition or a repro of a run executes was made on this account: kernels, operators, imports.

    Args:
        manifest, imports, libraries: as the run recorded them.
    """
    digest = manifest.sha256
    return knows(_MANIFEST, digest) and (
        _is_covered(manifest, imports, libraries) or knows(_RUN, digest, *imports, "", *libraries)
    )


def would_load(manifest: Manifest, imports: Sequence[str] = (), libraries: Sequence[str] = ()) -> str:
    """Says what runs beside the kernels: ", after the import of faulty_ops"; "" if nothing does."""
    modules = dict.fromkeys((*manifest.imports, *imports))
    files = dict.fromkeys((*manifest.libraries, *libraries))
    text = f", after the import of {wording.comma_separated(map(printable, modules))}" if modules else ""
    return text + (f", after {wording.comma_separated(map(printable, files))} has been loaded" if files else "")


def _require_built_here(package: Artifact, *, trusted: bool) -> None:
    identity = _identity(package.path)
    if knows("package file", *identity):
        return
    content = _content_hash(package)
    if not trusted and not knows("package", content):
        raise UsageError(
            f"{package.path} was not built on this account; the machine code of its library would run"
            f"{would_load(package.manifest())}",
            hint=TRUST_HINT,
        )
    remember_as(package.path, Content(content, package.manifest()))


_WOULD_RUN = {
    ArtifactKind.EXPORTED: "torch would unpickle its objects, and code generated from its graph would run",
    ArtifactKind.PACKAGE: "the machine code of its library would run",
    ArtifactKind.SOURCES: "its C++ would be compiled and run",
}


def _is_covered(manifest: Manifest, imports: Sequence[str], libraries: Sequence[str]) -> bool:
    return set(imports) <= set(manifest.imports) and set(libraries) <= set(manifest.libraries)


def _content_hash(package: Artifact) -> str:
    """The SHA-256 of the names and contents of all members; reading them compares them with their checksums.

    Raises:
        ArtifactError: one is damaged.
    """
    digest = hashlib.sha256()
    member = ""
    try:
        with zipfile.ZipFile(package.path) as archive:
            for member in sorted(package.members):
                content = hashlib.sha256()
                with archive.open(f"{package.root}/{member}") as data:
                    while chunk := data.read(_CHUNK):
                        content.update(chunk)
                name = member.encode("utf-8", "surrogateescape")
                digest.update(len(name).to_bytes(8, "little") + name + content.digest())
    except (*DAMAGED, OSError, KeyError) as error:
        raise unreadable(f"{printable(member)} in {package.path}", error) from error
    return digest.hexdigest()


def _identity(path: Path) -> tuple[str, ...]:
    """What identifies a file as long as its content does not change, so that it need not be read again."""
    found = path.stat()
    return tuple(map(str, (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)))
