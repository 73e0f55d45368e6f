"""The interpreter's findings: out-of-bounds accesses, and assertions that failed."""

from __future__ import annotations

import linecache
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType

import triton

from .accesses import Access, CodeLine, lines_of

# Files whose frames are not the kernel's: Triton's own, and this interpreter's.
MACHINERY = (str(Path(triton.__file__).parent), str(Path(__file__).with_name("interpreter")))

MAX_LINES = 6  # of one statement that are shown

Program = tuple[int, int, int]


@dataclass(frozen=True)
class Interpretation:
    """The result of interpreting a launch.

    Attributes:
        outside: out-of-bounds accesses, the first of each line, argument and operation. An `argument` is the kernel's
            parameter.
        assertions: of tl.device_assert, and of tl.assume; the first failure of each.
        n_outside: the number of all out-of-bounds accesses.
        programs: how many ran.
    """

    outside: tuple[Access, ...]
    assertions: tuple[Access, ...]
    n_outside: int
    programs: int
    seconds: float

    @property
    def accesses(self) -> tuple[Access, ...]:
        """All findings."""
        return (*self.outside, *self.assertions)

    def lines(self) -> list[str]:
        """The findings as text; empty if there are none."""
        return [line for access in self.accesses for line in lines_of(access)]


class AccessCollector:
    """Collects findings, one for each kind, in order."""

    def __init__(self) -> None:
        self._outside: dict[tuple[str, CodeLine, str], Access] = {}
        self._assertions: dict[tuple[CodeLine | None, str], Access] = {}

    def counted(self, kind: str, line: CodeLine, argument: str, count: int) -> bool:
        """Counts further accesses of a kind; False if this is the first."""
        key = (kind, line, argument)
        first = self._outside.get(key)
        if first is not None:
            self._outside[key] = replace(first, count=first.count + count)
        return first is not None

    def add(self, access: Access) -> None:
        """Adds the first out-of-bounds access of its kind."""
        assert access.source is not None
        self._outside[access.kind, access.source, access.argument] = access

    def failed(self, failure: Access) -> None:
        """Adds a failed assertion."""
        key = (failure.source, failure.what)
        first = self._assertions.get(key)
        self._assertions[key] = failure if first is None else replace(first, count=first.count + failure.count)

    def result(self, programs: int, seconds: float) -> Interpretation:
        """The findings so far."""
        outside = tuple(self._outside.values())
        total = sum(access.count for access in outside)
        return Interpretation(outside, tuple(self._assertions.values()), total, programs, seconds)


def current_line() -> CodeLine:
    """The line of the kernel, or of a helper of it, that is being interpreted."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(MACHINERY):
        frame = frame.f_back
    return CodeLine("", 0, "") if frame is None else line_of(frame.f_code.co_filename, frame.f_lineno)


def line_of(file: str, line: int) -> CodeLine:
    """Returns a line of source, with the following ones while a bracket is open."""
    text = ""
    for number in range(line, line + MAX_LINES):
        text = f"{text} {linecache.getline(file, number).strip()}".strip()
        if sum(map(text.count, "([{")) <= sum(map(text.count, ")]}")):
            break
    return CodeLine(file, line, text)
