"""The package that was run: where the run's link leads, or a file of the same build near the run.

A run that was copied from another place has a link that leads nowhere. One that another program made, which loaded the
package itself, has none.
"""

from __future__ import annotations

import hashlib
import os
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from aoti_debug.base import wording
from aoti_debug.base.errors import ArtifactError
from aoti_debug.base.frozen import dataclass
from aoti_debug.package.manifest import MEMBER, Manifest
from aoti_debug.package.pt2 import archive, trust
from aoti_debug.package.pt2.archive import ArtifactKind
from aoti_debug.runs.rundir.run_json import LoadedFrom

_FOLDERS = 4  # above the run, where its package may lie
_UNPACKED = 5  # above a library: those of an unpacked package, and the one that it lies in


@dataclass(frozen=True)
class FoundPackage:
    """The result of a search.

    Attributes:
        package: None if it was not found.
        problem: why it was not, as a clause; "" if it was.
    """

    package: Path | None
    problem: str = ""


def find(link: Path, manifest: Manifest, loaded_from: LoadedFrom | None = None) -> FoundPackage:
    """Finds the package of a run.

    Where the link leads is taken as it is. Otherwise a package must have the same manifest: at the path that the link
    names, seen from a folder above the run; where another program seems to have loaded it from; where it was built on
    this account; or the only one in the run, the three folders above it, the current one and those above the library.

    Args:
        link: in the directory of the run.
        manifest: of the run.
        loaded_from: what another program has shown of its place.
    """
    if link.exists():
        return FoundPackage(link.resolve())
    run = link.parent.resolve()
    target = Path(os.readlink(link)) if link.is_symlink() else None
    named = () if target is None else _named(run, target.parts)
    built = trust.find_place(manifest.sha256)
    loaded = loaded_from or LoadedFrom("")
    shown = [path for path in map(Path, loaded.packages) if _is_same(path, manifest.sha256)]
    candidates = (*named, *_if_one(shown), *(() if built is None or shown else (built,)))
    package = next((path for path in candidates if _is_same(path, manifest.sha256)), None)
    if package is not None:
        return FoundPackage(package.resolve())
    unpacked = Path(loaded.library).parents[:_UNPACKED] if loaded.library else ()
    folders = tuple(dict.fromkeys((run, *run.parents[:3], Path.cwd(), *unpacked)))
    found = [*shown, *(path for path in _packages(folders) if _is_same(path, manifest.sha256))]
    if one := _if_one(found):
        return FoundPackage(one[0])
    why = f"{target} does not exist" if target is not None else "the program that loaded it did not show where it lies"
    if loaded.packages and not shown:
        why = f"it is none of those that the program which loaded it had open or names: {', '.join(loaded.packages)}"
    if found:
        names = wording.comma_separated(str(path) for path in found)
        return FoundPackage(None, f"{why}, and these have its manifest, but not all the same content: {names}")
    return FoundPackage(
        None, f"{why}, and no .pt2 file in {wording.comma_separated(map(str, folders))} has its manifest"
    )


def is_another(package: Path, manifest: Manifest) -> bool:
    """True for an instrumented package whose wrapper is another one than that of a run.

    Args:
        manifest: of the run.

    Raises:
        ArtifactError: it is damaged.
    """
    found = archive.inspect(package)
    return found.kind is ArtifactKind.INSTRUMENTED and found.manifest().source_sha256 != manifest.source_sha256


def _named(run: Path, parts: tuple[str, ...]) -> Iterator[Path]:
    """The files that the end of a path names, seen from the folders above a run."""
    for folder in run.parents[:_FOLDERS]:
        for first in range(1, len(parts)):
            path = folder.joinpath(*parts[first:])
            if path.is_file():
                yield path


def _packages(folders: Iterable[Path]) -> list[Path]:
    paths = (path for folder in folders for path in sorted(folder.glob("*.pt2")))
    return list(dict.fromkeys(path.resolve() for path in paths if path.is_file()))


def _is_same(path: Path, manifest_sha256: str) -> bool:
    """True for an instrumented package with that manifest."""
    try:
        package = archive.inspect(path)
        return (
            package.kind is ArtifactKind.INSTRUMENTED
            and hashlib.sha256(package.read(MEMBER)).hexdigest() == manifest_sha256
        )
    except (ArtifactError, OSError):  # what cannot be read is not the package
        return False


def _if_one(found: Sequence[Path]) -> Sequence[Path]:
    """Packages, if all have the same content."""
    return found if len({_content(path) for path in found}) == 1 else ()


def _content(path: Path) -> frozenset[tuple[str, int, int]]:
    """The names, checksums and sizes of the members of a package."""
    with zipfile.ZipFile(path) as file:
        return frozenset((info.filename, info.CRC, info.file_size) for info in file.infolist())
