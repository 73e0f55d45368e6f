"""Unpacks the files of one model of an untrusted archive."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

from aoti_debug.base.errors import ArtifactError
from aoti_debug.base.machine.files import free_space
from aoti_debug.package.pt2.archive import AOTINDUCTOR, DAMAGED, UNTRUSTED_HINT, Artifact, printable

UNCHANGED_PACKAGE_HINT = "pass the package as torch wrote it, or the exported program that it was compiled from"
_SPACE_HINT = "free some space, or set XDG_CACHE_HOME to a folder on another disk"


def unpack(package: Artifact, model: str, directory: Path) -> None:
    """Writes the model's files into an empty directory.

    Raises:
        ArtifactError: the model's folder holds folders, or is damaged. Names that lead outside of the archive, links
            and decompression bombs were refused by `archive.inspect`.
        TargetError: there is not enough space.
    """
    prefix = f"{package.root}/{AOTINDUCTOR}{model}/"
    try:
        with zipfile.ZipFile(package.path) as archive:
            infos = [info for info in archive.infolist() if info.filename.startswith(prefix) and not info.is_dir()]
            for info in infos:
                _check_name(package.path, info, prefix)
            unpacked = sum(info.file_size for info in infos)
            free_space.require_disk([(directory, unpacked)], f"unpacking {package.path}", hint=_SPACE_HINT)
            for info in infos:
                with archive.open(info) as data, (directory / info.filename.removeprefix(prefix)).open("xb") as out:
                    shutil.copyfileobj(data, out, 1 << 20)
    except DAMAGED as error:
        raise ArtifactError(f"{package.path} is damaged: {error}", hint="copy or compile it again") from error


def single_file(package: Artifact, directory: Path, suffix: str) -> Path:
    """Returns the one unpacked file of a model whose name ends in `suffix`.

    Raises:
        ArtifactError: there is none, or there are several.
    """
    matches = sorted(directory.glob(f"*{suffix}"))
    if len(matches) != 1:
        raise ArtifactError(
            f"{package.path} holds {len(matches)} files *{suffix} of the model instead of one",
            hint=UNCHANGED_PACKAGE_HINT,
        )
    return matches[0]


def read_text(path: Path) -> str:
    """Reads an unpacked source, which is untrusted and may not be UTF-8."""
    return path.read_text(encoding="utf-8", errors="replace")


def _check_name(path: Path, info: zipfile.ZipInfo, prefix: str) -> None:
    name = info.filename.removeprefix(prefix)
    if "/" in name or name in ("", ".", ".."):
        raise ArtifactError(
            f"{path} holds a folder in the model's folder: {printable(info.filename)}", hint=UNTRUSTED_HINT
        )
