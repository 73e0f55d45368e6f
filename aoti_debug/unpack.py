"""Takes the files of one model out of an archive that a stranger may have written."""

from __future__ import annotations

import shutil
import stat
import zipfile
from pathlib import Path

from aoti_debug.artifact import AOTINDUCTOR, Artifact
from aoti_debug.errors import ArtifactError

_LARGEST_RATIO = 200  # unpacked bytes a stored byte; torch stores weights as they are
_SMALL = 1 << 24  # bytes; what is smaller may be as dense as it likes
_ROOM = 1 << 28  # bytes that unpacking leaves on the disk
_TRUST = "do not use this file: no torch writes such an archive"


def unpack(package: Artifact, model: str, directory: Path) -> None:
    """Writes the model's files into an empty directory.

    Raises:
        ArtifactError: the archive holds a link, folders, a member that blows up, more than the disk takes, or is
            damaged. Names that lead outside of it were refused by `artifact.inspect`.
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
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError) as error:
        raise ArtifactError(f"{package.path} is damaged: {error}", hint="copy or compile it again") from error
    except FileExistsError as error:
        raise ArtifactError(f"{package.path} names {Path(error.filename).name} twice", hint=_TRUST) from error


def _check(path: Path, info: zipfile.ZipInfo, prefix: str) -> None:
    name = info.filename.removeprefix(prefix)
    if stat.S_ISLNK(info.external_attr >> 16):
        raise ArtifactError(f"{path} holds a link, {info.filename}; nothing was unpacked", hint=_TRUST)
    if "/" in name or name in ("", ".", ".."):
        raise ArtifactError(f"{path} holds a folder in the model's folder: {info.filename}", hint=_TRUST)
    if info.file_size > _SMALL and info.file_size > _LARGEST_RATIO * max(info.compress_size, 1):
        raise ArtifactError(
            f"{path}: {info.filename} would grow from {info.compress_size} to {info.file_size} bytes; nothing was "
            "unpacked",
            hint=_TRUST,
        )


def _check_room(path: Path, size: int, directory: Path) -> None:
    free = shutil.disk_usage(directory).free
    if size + _ROOM > free:
        raise ArtifactError(
            f"{path} holds {size >> 20} MiB, and {directory} has room for {free >> 20} MiB",
            hint="free some room, or set TMPDIR to another disk",
        )
