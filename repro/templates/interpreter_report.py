"""What the interpreter found: accesses outside the arguments, and assertions that failed."""

from __future__ import annotations

import linecache
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType

import triton

# Frames of these are not the kernel's: Triton's own, and this interpreter's.
MACHINERY = (str(Path(triton.__file__).parent), str(Path(__file__).with_name("interpreter")))

MOST_LINES = 6  # of one statement that are shown

Program = tuple[int, int, int]


@dataclass(frozen=True)
class Line:
    """A line of the kernel, or of a function that it calls."""

    file: str
    line: int
    text: str


@dataclass(frozen=True)
class OutsideAccess:
    """The first access outside an argument of its kind: the same line, argument and operation.

    Attributes:
        what: "load", "store" or "atomic".
        argument: whose pointer it was; "" if the address belongs to none.
        element: from the argument's data pointer, in elements of the argument; the address if it belongs to none.
        elements: how many elements lie between the view's first and last one, both included.
        beyond: elements outside the view: > 0 past the end, < 0 before the start, 0 in a gap between its elements.
        in_storage: outside the view, inside the storage.
        position: index in the block.
        mask: "none" or "true".
        count: how many in all of this kind.
        fed_by: the argument, element and value of the loaded integer that the address was computed from.
        wrapped: the address was computed from an integer that passed the end of its type.
    """

    what: str
    file: str
    line: int
    text: str
    argument: str
    element: int
    elements: int
    beyond: int
    in_storage: bool
    program: Program
    position: tuple[int, ...]
    mask: str
    count: int
    fed_by: tuple[str, int, int] | None
    wrapped: bool

    def lines(self) -> list[str]:
        gave = "gave 0" if self.what == "load" else "was dropped"
        mask = "no mask" if self.mask == "none" else "mask true"
        found = [
            f"{self.what} outside {self.argument or 'every argument'}: {self._where()}; it {gave}",
            f"  {self.file}:{self.line}: {self.text}",
            f"  program {_tuple(self.program)}, position {_tuple(self.position)} of the block, {mask}",
        ]
        if self.fed_by is not None:
            argument, element, value = self.fed_by
            found.append(f"  the index came from {argument}: element {element} is {value}")
        if self.wrapped:
            found.append("  its offset wrapped around: an integer passed the end of its type")
        if self.count > 1:
            found.append(f"  {self.count} such accesses at this line")
        return found

    def _where(self) -> str:
        if not self.argument:
            return f"address {self.element:#x}"
        if self.beyond == 0:
            return f"element {self.element} is outside the view, inside the storage"
        side = "past the end" if self.beyond > 0 else "before the start"
        storage = " of the view, inside the storage" if self.in_storage else ""
        return f"element {self.element} of {self.elements}, {abs(self.beyond)} {side}{storage}"


@dataclass(frozen=True)
class FailedAssertion:
    """The first failure of an assertion: of tl.device_assert, or of tl.assume if `message` is "".

    Attributes:
        count: for how many elements in all it failed.
    """

    file: str
    line: int
    text: str
    message: str
    program: Program
    position: tuple[int, ...]
    count: int

    def lines(self) -> list[str]:
        times = f", {self.count} times in all" if self.count > 1 else ""
        return [
            f"assertion failed: {self.message or 'tl.assume'}{times}",
            f"  {self.file}:{self.line}: {self.text}",
            f"  program {_tuple(self.program)}, position {_tuple(self.position)} of the block",
        ]


@dataclass(frozen=True)
class Interpretation:
    """Attributes:
    n_outside: accesses outside in all.
    programs: how many ran.
    """

    outside: tuple[OutsideAccess, ...]
    assertions: tuple[FailedAssertion, ...]
    n_outside: int
    programs: int
    seconds: float

    def lines(self) -> list[str]:
        """For a person to read; empty if nothing was found."""
        found: tuple[OutsideAccess | FailedAssertion, ...] = (*self.outside, *self.assertions)
        return [line for finding in found for line in finding.lines()]


class Report:
    """Collects findings, one for each kind, in the order in which they came."""

    def __init__(self) -> None:
        self._outside: dict[tuple[str, Line, str], OutsideAccess] = {}
        self._assertions: dict[tuple[Line, str], FailedAssertion] = {}

    def counted(self, what: str, line: Line, argument: str, count: int) -> bool:
        """Counts accesses of a kind that is known; False if it is not."""
        key = (what, line, argument)
        known = self._outside.get(key)
        if known is not None:
            self._outside[key] = replace(known, count=known.count + count)
        return known is not None

    def add(self, access: OutsideAccess) -> None:
        self._outside[access.what, Line(access.file, access.line, access.text), access.argument] = access

    def failed(self, failure: FailedAssertion) -> None:
        key = (Line(failure.file, failure.line, failure.text), failure.message)
        known = self._assertions.get(key)
        self._assertions[key] = failure if known is None else replace(known, count=known.count + failure.count)

    def result(self, programs: int, seconds: float) -> Interpretation:
        outside = tuple(self._outside.values())
        total = sum(access.count for access in outside)
        return Interpretation(outside, tuple(self._assertions.values()), total, programs, seconds)


def current_line() -> Line:
    """The line of the kernel, or of a helper of it, that is being interpreted."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(MACHINERY):
        frame = frame.f_back
    return Line("", 0, "") if frame is None else line_of(frame.f_code.co_filename, frame.f_lineno)


def line_of(file: str, line: int) -> Line:
    """With the lines that follow as long as a bracket is open."""
    text = ""
    for number in range(line, line + MOST_LINES):
        text = f"{text} {linecache.getline(file, number).strip()}".strip()
        if sum(map(text.count, "([{")) <= sum(map(text.count, ")]}")):
            break
    return Line(file, line, text)


def _tuple(numbers: tuple[int, ...]) -> str:
    return "(" + ", ".join(map(str, numbers)) + ")"
