"""The lines around a line of the model's source."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from aoti_debug.diagnosis.findings import Place
from aoti_debug.manifest import ModelLine

AROUND = 6  # lines before and after
_LARGEST = 4 << 20  # bytes of a source file that is read


@dataclass(frozen=True)
class Line:
    number: int
    text: str
    marked: bool


@dataclass(frozen=True)
class LaunchContext:
    """
    Attributes:
        lines: those around the frame's, or only that one.
        remark: why there are no others; "".
    """

    frame: ModelLine
    lines: tuple[Line, ...]
    remark: str


def context_of(frame: ModelLine) -> LaunchContext:
    """Reads the file that a frame names; only Python files, and only if they still say what was recorded."""
    own = (Line(frame.line, frame.text, True),) if frame.text else ()
    try:
        lines = _read(Path(frame.file))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        return LaunchContext(frame, own, f"the file is not read here: {reason}")
    return around(frame, lines)


def around(frame: ModelLine, lines: list[str]) -> LaunchContext:
    """The frame's line and its neighbours among the lines of its file."""
    index = frame.line - 1
    own = (Line(frame.line, frame.text, True),) if frame.text else ()
    said = lines[index].strip() if 0 <= index < len(lines) else ""
    if not frame.text or said != frame.text.strip():
        return LaunchContext(frame, own, "the file is not as it was when the model was exported")
    first = max(index - AROUND, 0)
    part = lines[first : index + AROUND + 1]
    return LaunchContext(frame, tuple(Line(first + i + 1, text, first + i == index) for i, text in enumerate(part)), "")


def places_with_lines(*places: Place | None) -> tuple[ModelLine, ...]:
    """The model lines of places, each once."""
    return tuple(dict.fromkeys(place.frame for place in places if place is not None and place.frame is not None))


def _read(path: Path) -> list[str]:
    """A package from elsewhere may name any file of this machine."""
    if path.suffix != ".py":
        raise ValueError("it is no Python file")
    if not path.is_file():
        raise ValueError("there is none of that name on this machine")
    if path.stat().st_size > _LARGEST:
        raise ValueError("it is too large")
    return path.read_text(encoding="utf-8").splitlines()
