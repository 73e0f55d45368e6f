"""Decides if the code in a `.pt2`, or in the record of a run, may be executed (docs/security.md).

It may if this user made it here, or says that it is to be trusted.
"""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Sequence
from pathlib import Path

from aoti_debug.base import wording
from aoti_debug.base.errors import ArtifactError, UsageError
from aoti_debug.base.machine import trusted_hashes
from aoti_debug.package.manifest import Manifest
from aoti_debug.package.pt2 import package_places
from aoti_debug.package.pt2.archive import DAMAGED, Artifact, ArtifactKind, printable

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
    reason = "" if trusted else trusted_hashes.foreign_reason(package.path)
    if reason:
        raise UsageError(f"{package.path} {reason}; {_WOULD_RUN[package.kind]}", hint=TRUST_HINT)


def remember(package: Artifact) -> None:
    """Remembers that this user made an instrumented package here, so that it may be executed.

    Raises:
        ArtifactError: it is damaged.
    """
    _remember(package, _content_hash(package))


def remember_run(manifest: Manifest, imports: Sequence[str] = (), libraries: Sequence[str] = ()) -> None:
    """Remembers the manifest of a package that may run, and what a run of it imports and loads beside its own."""
    trusted_hashes.remember(_MANIFEST, manifest.sha256)
    if not _is_covered(manifest, imports, libraries):
        trusted_hashes.remember(_RUN, manifest.sha256, *imports, "", *libraries)


def is_made_here(manifest: Manifest, imports: Sequence[str], libraries: Sequence[str]) -> bool:
    """True if what the repetition or a repro of a run executes was made on this account: kernels, operators, imports.

    Args:
        manifest, imports, libraries: as the run recorded them.
    """
    digest = manifest.sha256
    return trusted_hashes.knows(_MANIFEST, digest) and (
        _is_covered(manifest, imports, libraries) or trusted_hashes.knows(_RUN, digest, *imports, "", *libraries)
    )


def would_load(manifest: Manifest, imports: Sequence[str] = (), libraries: Sequence[str] = ()) -> str:
    """Says what runs beside the kernels: ", after the import of faulty_ops"; "" if nothing does."""
    modules = dict.fromkeys((*manifest.imports, *imports))
    files = dict.fromkeys((*manifest.libraries, *libraries))
    text = f", after the import of {wording.comma_separated(map(printable, modules))}" if modules else ""
    return text + (f", after {wording.comma_separated(map(printable, files))} has been loaded" if files else "")


def _require_built_here(package: Artifact, *, trusted: bool) -> None:
    identity = _identity(package.path)
    if trusted_hashes.knows("package file", *identity):
        return
    content = _content_hash(package)
    if not trusted and not trusted_hashes.knows("package", content):
        raise UsageError(
            f"{package.path} was not built on this account; the machine code of its library would run"
            f"{would_load(package.manifest())}",
            hint=TRUST_HINT,
        )
    _remember(package, content)


def _remember(package: Artifact, content: str) -> None:
    trusted_hashes.remember("package", content)
    trusted_hashes.remember("package file", *_identity(package.path))
    manifest = package.manifest()
    remember_run(manifest)
    package_places.remember(manifest.sha256, package.path)


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
        raise ArtifactError(
            f"{printable(member)} in {package.path} is damaged: {error}", hint="copy or build it again"
        ) from error
    return digest.hexdigest()


def _identity(path: Path) -> tuple[str, ...]:
    """What identifies a file as long as its content does not change, so that it need not be read again."""
    found = path.stat()
    return tuple(map(str, (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)))
