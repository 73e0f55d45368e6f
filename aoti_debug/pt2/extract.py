"""Takes the files of one model out of an archive that a stranger may have written."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

from aoti_debug import wording
from aoti_debug.errors import ArtifactError
from aoti_debug.pt2.archive import AOTINDUCTOR, Artifact
from aoti_debug.pt2.archive_safety import DAMAGED, TRUST, shown

AS_COMPILED = "pass the package as torch wrote it, or the exported program that it was compiled from"
_ROOM = 1 << 28  # bytes that unpacking leaves on the disk


def unpack(package: Artifact, model: str, directory: Path) -> None:
    """Writes the model's files into an empty directory.

    Raises:
        ArtifactError: the archive holds folders or more than the disk takes, or is damaged. Names that lead outside of
            it, links and members that blow up were refused by `artifact.inspect`.
    """
    prefix = f"{package.root}/{AOTINDUCTOR}{model}/"
    try:
        with zipfile.ZipFile(package.path) as archive:
            wanted = [info for info in archive.infolist() if info.filename.startswith(prefix) and not info.is_dir()]
            for info in wanted:
                _check(package.path, info, prefix)
            _check_room(package.path, sum(info.file_size for info in wanted), directory)
            for info in wanted:
                with archive.open(info) as data, (directory / info.filename.removeprefix(prefix)).open("xb") as out:
                    shutil.copyfileobj(data, out, 1 << 20)
    except DAMAGED as error:
        raise ArtifactError(f"{package.path} is damaged: {error}", hint="copy or compile it again") from error


def only(package: Artifact, directory: Path, suffix: str) -> Path:
    """The one file of a model, among those that were unpacked, whose name ends so.

    Raises:
        ArtifactError: there is none, or there are several.
    """
    found = sorted(directory.glob(f"*{suffix}"))
    if len(found) != 1:
        raise ArtifactError(
            f"{package.path} holds {len(found)} files *{suffix} of the model instead of one", hint=AS_COMPILED
        )
    return found[0]


def text(path: Path) -> str:
    """What an unpacked source holds: somebody else wrote it, maybe not in UTF-8."""
    return path.read_text(encoding="utf-8", errors="replace")


def _check(path: Path, info: zipfile.ZipInfo, prefix: str) -> None:
    name = info.filename.removeprefix(prefix)
    if "/" in name or name in ("", ".", ".."):
        raise ArtifactError(f"{path} holds a folder in the model's folder: {shown(info.filename)}", hint=TRUST)


def _check_room(path: Path, size: int, directory: Path) -> None:
    free = shutil.disk_usage(directory).free
    if size + _ROOM > free:
        raise ArtifactError(
            f"{path} holds {wording.byte_size_in('MiB', size)}, and {directory} has room for "
            f"{wording.byte_size_in('MiB', free)}",
            hint="free some room, or set TMPDIR to another disk",
        )
