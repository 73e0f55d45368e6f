"""Unpacks the files of one model of an untrusted archive.

A library that maps its weights has them appended to it: they may be most of the archive, and stay there.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import IO

from aoti_debug.base.errors import ArtifactError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine import exhaustion
from aoti_debug.base.native import elf
from aoti_debug.package.pt2.archive import AOTINDUCTOR, DAMAGED, UNTRUSTED_HINT, Artifact, member_begin, printable

UNCHANGED_PACKAGE_HINT = "pass the package as torch wrote it, or the exported program that it was compiled from"
_CHUNK = 1 << 20  # bytes
_SPACE_HINT = "free some space, or set XDG_CACHE_HOME to a folder on another disk"


@dataclass(frozen=True)
class FilePart:
    """The bytes [begin, end) of a file.

    Attributes:
        crc_before, crc: CRC-32 of the bytes that precede them in their member of an archive, and of all up to their
            end; the second is None where it is not known.
    """

    path: Path
    begin: int
    end: int
    crc_before: int = 0
    crc: int | None = None

    @property
    def size(self) -> int:
        """In bytes."""
        return self.end - self.begin

    def last(self, size: int) -> FilePart:
        """The last bytes of it; the others are read."""
        begin = self.end - size
        with open(os.devnull, "wb") as nothing:
            crc_before = copy_part(replace(self, end=begin, crc=None), nothing)
        return replace(self, begin=begin, crc_before=crc_before)


def copy_part(part: FilePart, out: IO[bytes]) -> int:
    """Copies a part of a file to the end of another; returns the CRC-32 up to its end.

    Raises:
        EOFError, zipfile.BadZipFile: the file ends before, or is damaged.
    """
    crc, left = part.crc_before, part.size
    with part.path.open("rb") as data:
        data.seek(part.begin)
        while left > 0:
            chunk = data.read(min(left, _CHUNK))
            if not chunk:
                raise EOFError("it is cut off")
            crc = zlib.crc32(chunk, crc)
            out.write(chunk)
            left -= len(chunk)
    if part.crc not in (None, crc):
        raise zipfile.BadZipFile("Bad CRC-32 of what is appended to a library")
    return crc


def unpack(package: Artifact, model: str, directory: Path, *, left_out: str = "") -> Mapping[str, FilePart]:
    """Writes the model's files into an empty directory, libraries without what is appended to them.

    Args:
        left_out: the end of names of files that are not needed.

    Returns:
        What is appended to a library, by its name; a member that is compressed is unpacked whole.

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
            infos = [info for info in infos if not left_out or not info.filename.endswith(left_out)]
            unpacked = sum(info.file_size for info in infos) - sum(part.size for part in _appended(archive, infos))
            exhaustion.require_disk([(directory, unpacked)], f"unpacking {package.path}", hint=_SPACE_HINT)
            appended: dict[str, FilePart] = {}
            for info in infos:
                name = info.filename.removeprefix(prefix)
                with (directory / name).open("xb") as out:
                    part = copy_member(archive, info, out)
                if part is not None:
                    appended[name] = part
            return appended
    except DAMAGED as error:
        raise ArtifactError(f"{package.path} is damaged: {error}", hint="copy or compile it again") from error


def bytes_appended(package: Artifact, model: str) -> int:
    """The bytes of a model that `unpack` leaves in the archive.

    Raises:
        ArtifactError: the archive is damaged.
    """
    prefix = f"{package.root}/{AOTINDUCTOR}{model}/"
    try:
        with zipfile.ZipFile(package.path) as archive:
            infos = [info for info in archive.infolist() if info.filename.startswith(prefix)]
            return sum(part.size for part in _appended(archive, infos))
    except DAMAGED as error:
        raise ArtifactError(f"{package.path} is damaged: {error}", hint="copy or compile it again") from error


def append(package: Artifact, part: FilePart, library: Path) -> None:
    """Appends to an unpacked library what follows it in the package.

    Raises:
        ArtifactError: the package is damaged.
    """
    try:
        with library.open("ab") as out:
            copy_part(part, out)
    except DAMAGED as error:
        raise ArtifactError(f"{package.path} is damaged: {error}", hint="copy or compile it again") from error


def copy_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, out: IO[bytes]) -> FilePart | None:
    """Copies a member, a library without what is appended to it; returns that, or None for nothing.

    Raises:
        OSError, EOFError, zipfile.BadZipFile, zlib.error: it cannot be read.
    """
    appended = next(_appended(archive, [info]), None)
    if appended is None:
        with archive.open(info) as data:
            shutil.copyfileobj(data, out, _CHUNK)
        return None
    begin = appended.end - info.file_size
    return replace(appended, crc_before=copy_part(FilePart(appended.path, begin, appended.begin), out))


def _appended(archive: zipfile.ZipFile, infos: Iterable[zipfile.ZipInfo]) -> Iterator[FilePart]:
    """Yields what is appended to those members that are libraries, and are not compressed."""
    path = Path(str(archive.filename))
    with path.open("rb") as file:
        for info in infos:
            if not info.filename.endswith(".so") or info.compress_type != zipfile.ZIP_STORED:
                continue
            begin = member_begin(file, info)
            if begin is None or info.compress_size != info.file_size:
                continue
            with contextlib.suppress(ValueError):  # no library
                part = FilePart(path, begin + elf.length(file, begin), begin + info.file_size, crc=info.CRC)
                if part.size > 0:
                    yield part


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
