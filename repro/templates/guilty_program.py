"""The block and thread of a CUDA kernel that a sanitizer or the interpreter has named, kept for the debugger."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from .accesses import Access
from .cpp_build import build_directory

_FILE = "guilty_program.json"

Triple = tuple[int, int, int]


def remember(folder: Path, accesses: Iterable[Access]) -> None:
    """Keeps the block of the first access that has one, and its thread; nothing where the folder cannot be written."""
    for access in accesses:
        if access.program is not None:
            thread = re.search(r"thread \((\d+),(\d+),(\d+)\)", access.thread)
            found = {"block": access.program, "thread": [int(n) for n in thread.groups()] if thread else None}
            with suppress(OSError):
                (build_directory(folder) / _FILE).write_text(json.dumps(found))
            return


def remembered(folder: Path) -> tuple[Triple | None, Triple | None]:
    """The block and the thread that were kept; None where they are not known."""
    try:
        found = json.loads((folder / "build" / _FILE).read_text())
        return _triple(found["block"]), _triple(found["thread"])
    except (OSError, ValueError, KeyError, TypeError):
        return None, None


def _triple(numbers: object) -> Triple | None:
    if not isinstance(numbers, list) or len(numbers) != 3:
        return None
    x, y, z = (int(number) for number in numbers)
    return x, y, z
