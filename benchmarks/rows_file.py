"""The rows of a benchmark in a file that grows: a JSON object a line, so that work that was cut off goes on.

A row is known by its name, and by the version of torch and the device that it was measured on. The rows that count are
those of one torch and one device; a file with others is refused, unless a benchmark keeps them apart. A row that names
neither is an older one, and counts.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

Row = dict[str, Any]
TORCH, DEVICE = "torch", "device"


def lines(file: Path) -> list[Row]:
    """The rows of a file, in its order; a line that was cut off does not count."""
    found = []
    for line in file.read_text().splitlines() if file.exists() else ():
        with contextlib.suppress(json.JSONDecodeError):
            found.append(json.loads(line))
    return found


def append(file: Path, row: Mapping[str, Any]) -> None:
    """Appends a row; one that was cut off before it stays a line of its own."""
    with file.open("a+b") as rows:
        is_cut = rows.seek(0, os.SEEK_END) > 0 and (rows.seek(-1, os.SEEK_END), rows.read())[1] != b"\n"
        rows.write((b"\n" if is_cut else b"") + json.dumps(row).encode() + b"\n")


class RowsFile:
    """The rows of one torch and one device. Any thread may add one.

    Args:
        file: None to keep no rows.
        device: of the rows that are added; None to read those of a file of any torch and device.
        key: the member that holds the name of a row.

    Raises:
        SystemExit: the file holds rows of another torch or device, or of several.
    """

    def __init__(self, file: Path | None, device: str | None, key: str = "case") -> None:
        self._file, self._key, self._lock = file, key, threading.Lock()
        self._place = None if device is None else (metadata.version("torch"), device)
        found = [] if file is None else lines(file)
        places = {*_places(found), *([] if self._place is None else [self._place])}
        if len(places) > 1:
            named = "; ".join(f"torch {version}, {device}" for version, device in sorted(places))
            of = "these are rows of" if self._place is None else "with this one there would be rows of"
            print(f"{file}: {of} {named}: each needs a file of its own (--results)", file=sys.stderr)
            raise SystemExit(2)
        self.rows: dict[str, Row] = {row[key]: row for row in found}  # the last of each

    def add(self, name: str, row: Mapping[str, Any]) -> Row:
        """Keeps a row, with its name and what it was measured on."""
        assert self._place is not None, "of a file that is only read nothing is measured"
        whole = {self._key: name, TORCH: self._place[0], DEVICE: self._place[1], **row}
        with self._lock:
            self.rows[name] = whole
            if self._file is not None:
                append(self._file, whole)
        return whole


def _places(rows: Iterable[Row]) -> set[tuple[str, str]]:
    return {(row[TORCH], row[DEVICE]) for row in rows if TORCH in row and DEVICE in row}
