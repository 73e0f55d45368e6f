"""The instructions for the runtime: launches to skip, whose results to replace, or before which to stop.

A file has one a line, with tabs between its fields; runtime_shims/run/substitutions.h describes it.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TypeAlias

from aoti_debug.base import dtypes
from aoti_debug.base.errors import UsageError
from aoti_debug.base.lazy.dataclass import dataclass
from aoti_debug.runs.rundir.formats.stored_tensor import opened_file

_NUMBERS = {dtype.name: number for number, dtype in enumerate(dtypes.DTYPES)}  # c10::ScalarType


@dataclass(frozen=True)
class Skip:
    """A launch is not launched; what it would write keeps what it holds."""

    launch: str


@dataclass(frozen=True)
class Stop:
    """The run stops before a launch."""

    launch: str


@dataclass(frozen=True)
class Wait:
    """The process waits before a launch, until a file is gone; meanwhile FILE.waiting holds its id."""

    launch: str
    file: Path


@dataclass(frozen=True)
class Replace:
    """The result of a launch in an argument is replaced by the elements of a tensor file."""

    launch: str
    argument: str
    file: Path


Instruction: TypeAlias = Skip | Stop | Wait | Replace


def write(path: Path, instructions: Iterable[Instruction]) -> None:
    """Writes a file of instructions.

    Raises:
        OSError: it cannot be written.
        RunDirError: a tensor file is missing or damaged.
        UsageError: a name cannot be written.
    """
    path.write_text("".join(f"{_line(instruction)}\n" for instruction in instructions))


def _line(instruction: Instruction) -> str:
    match instruction:
        case Skip(launch):
            fields = ["skip", launch]
        case Stop(launch):
            fields = ["stop", launch]
        case Wait(launch, file):
            fields = ["wait", launch, str(file)]
        case Replace(launch, argument, file):
            fields = ["value", launch, argument, *_tensor(file), str(file)]
    if any(character in field for field in fields for character in "\t\n"):
        raise UsageError(f"{fields[-1]!r} has a tab or an end of line in its name", hint="use another directory")
    return "\t".join(fields)


def _tensor(file: Path) -> tuple[str, str, str]:
    """Of a tensor file: the number of its dtype, its sizes, and where its elements begin."""
    with opened_file(file, "np") as (_, layout):
        with file.open("rb") as opened:
            offset = 8 + int.from_bytes(opened.read(8), "little")
    return str(_NUMBERS[layout.dtype]), ",".join(map(str, layout.shape)) or "-", str(offset)
