"""Builds `.pt2` archives as data: no torch, no compiler."""

from __future__ import annotations

import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

FRAME = {"archive_format": b"pt2", "archive_version": b"0", "byteorder": b"little", ".data/version": b"6"}
PROGRAM = {"models/model.json": b"{}", **FRAME}
MODEL = "data/aotinductor/model/"
PACKAGE = {f"{MODEL}c1.wrapper.so": b"\x7fELF", f"{MODEL}c1.wrapper_metadata.json": b"{}", **FRAME}
SOURCES = {f"{MODEL}c1.wrapper.cpp": b"", **FRAME}


def write(path: Path, members: Mapping[str, bytes], root: str = "model") -> Path:
    """Writes an archive whose members lie in the folder `root`; names that begin with "!" are taken as they are."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name[1:] if name.startswith("!") else f"{root}/{name}", content)
    return path


def write_aligned(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    """Writes an uncompressed member whose bytes begin where torch has those of weights begin."""
    member = zipfile.ZipInfo(name)
    assert archive.fp is not None
    padding = -(archive.fp.tell() + 30 + len(name.encode()) + 4) % 64
    member.extra = b"FB" + padding.to_bytes(2, "little") + bytes(padding)
    archive.writestr(member, content)


def extract(archive: tarfile.TarFile, folder: Path) -> None:
    """Unpacks a recorded archive; Python before 3.11.4 has no filters to name."""
    if hasattr(tarfile, "data_filter"):
        archive.extractall(folder, filter="data")
    else:
        archive.extractall(folder)
