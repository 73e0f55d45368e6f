"""The block and thread of a CUDA kernel that a sanitizer or the interpreter has named, kept for the debugger."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
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


def stopped_in(folder: Path, grid: Sequence[int], programs: Sequence[Triple]) -> tuple[Triple | None, Triple | None]:
    """The block and the thread that a debugger stops in: the first of `programs`, otherwise those that were kept.

    Raises:
        ValueError: the program is not in the grid.
    """
    size = (*grid, 1, 1, 1)[:3]
    if not programs:
        block, thread = remembered(folder)
        return (block, thread) if block is not None and _is_in(block, size) else (None, None)
    if not _is_in(programs[0], size):
        named = ",".join(map(str, programs[0]))
        raise ValueError(f"--program {named} is not in the grid of {'x'.join(map(str, size))}, counted from 0")
    return programs[0], None


def remembered(folder: Path) -> tuple[Triple | None, Triple | None]:
    """The block and the thread that were kept; None where they are not known."""
    try:
        found = json.loads((build_directory(folder) / _FILE).read_text())
        return _triple(found["block"]), _triple(found["thread"])
    except (OSError, ValueError, KeyError, TypeError):
        return None, None


def _is_in(block: Triple, grid: Sequence[int]) -> bool:
    return all(0 <= index < size for index, size in zip(block, grid, strict=True))


def _triple(numbers: object) -> Triple | None:
    if not isinstance(numbers, list) or len(numbers) != 3:
        return None
    x, y, z = (int(number) for number in numbers)
    return x, y, z
