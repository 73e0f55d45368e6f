"""Sources on a page: kernels highlighted by pygments, the lines around a line of the model, links to an editor."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from urllib.parse import quote

from markupsafe import Markup
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import CppLexer, PythonLexer

from aoti_debug.base.frozen import dataclass
from aoti_debug.package.manifest import Kernel, ModelLine, Site
from aoti_debug.runs.diagnosis.findings import Place
from aoti_debug.runs.rundir.run_directory import RunDir

_SCHEME = "vscode://file"


def editor_links(runs: Iterable[RunDir], lines: Iterable[ModelLine] = ()) -> Mapping[str, str]:
    """The links of the files of model lines, by file; a link is complete with ":LINE" behind it.

    Only of files that this machine has, and of none if a run was not made on this account: what it names is not looked
    up.

    Args:
        runs: whose model lines are shown.
        lines: others that are shown with them.
    """
    known = tuple(runs)
    if not known or not all(run.is_made_here for run in known):
        return {}
    shown = {frame.file for run in known for site in run.manifest.sites for frame in site.provenance.source}
    shown |= {line.file for line in lines}
    return {file: f"{_SCHEME}{quote(file)}" for file in sorted(shown) if os.path.isabs(file) and Path(file).is_file()}


NOT_MADE_HERE = "was not made on this account"
CONTEXT_LINES = 6  # before and after
_LARGEST = 4 << 20  # bytes of a source file that is read
_MAX_CHARACTERS = 200_000  # of a source that is shown
_FORMATTER = HtmlFormatter(nowrap=True)


@dataclass(frozen=True)
class Line:
    """A line of a source file."""

    number: int
    text: str
    marked: bool


@dataclass(frozen=True)
class LaunchContext:
    """A model line among its neighbours.

    Attributes:
        lines: the frame's line with those around it, or alone.
        remark: why the neighbours are missing; "" if they are not.
    """

    frame: ModelLine
    lines: tuple[Line, ...]
    remark: str


def context_of(frame: ModelLine) -> LaunchContext:
    """Reads the lines around a frame's; only of a Python file that still has the recorded line."""
    recorded = (Line(frame.line, frame.text, marked=True),) if frame.text else ()
    try:
        lines = _read(Path(frame.file))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        return LaunchContext(frame, recorded, f"the file was not read: {reason}")
    return context_in(frame, lines)


def recorded_line(frame: ModelLine, remark: str) -> LaunchContext:
    """A frame's line alone, as it was recorded."""
    lines = (Line(frame.line, frame.text, marked=True),) if frame.text else ()
    return LaunchContext(frame, lines, remark)


def context_in(frame: ModelLine, lines: list[str]) -> LaunchContext:
    """The frame's line and its neighbours among the lines of its file."""
    index = frame.line - 1
    recorded = (Line(frame.line, frame.text, marked=True),) if frame.text else ()
    current = lines[index].strip() if 0 <= index < len(lines) else ""
    if not frame.text or current != frame.text.strip():
        return LaunchContext(frame, recorded, "the file has changed since the model was exported")
    first = max(index - CONTEXT_LINES, 0)
    part = lines[first : index + CONTEXT_LINES + 1]
    return LaunchContext(frame, tuple(Line(first + i + 1, text, first + i == index) for i, text in enumerate(part)), "")


def model_lines_of(*places: Place | None) -> tuple[ModelLine, ...]:
    """The model lines of places, each once."""
    return tuple(dict.fromkeys(place.frame for place in places if place is not None and place.frame is not None))


def _read(path: Path) -> list[str]:
    """The file's lines; only of a Python file, as a package from elsewhere may name any file of this machine."""
    if path.suffix != ".py":
        raise ValueError("it is not a Python file")
    if not path.is_file():
        raise ValueError("no such file on this machine")
    if path.stat().st_size > _LARGEST:
        raise ValueError("it is too large")
    return path.read_text(encoding="utf-8").splitlines()


@dataclass(frozen=True)
class SourceFile:
    """The source of a kernel.

    Attributes:
        html: escaped and highlighted.
    """

    name: str
    language: str
    html: Markup


def source_indices(site: Site, index_by_kernel: dict[str, int]) -> list[int]:
    """Indices of the sources that belong to a site: its own, or those of the device kernels that it may start."""
    names = dict.fromkeys((site.kernel, *site.launches))
    return [index_by_kernel[name] for name in names if name in index_by_kernel]


@lru_cache(maxsize=1024)  # some are highlighted ahead
def highlight_kernel(kernel: Kernel) -> SourceFile:
    """The kernel's source as HTML; its end is left out if it is very long."""
    text = kernel.source
    if len(text) > _MAX_CHARACTERS:
        text = text[:_MAX_CHARACTERS] + "\n… the rest is left out"
    lexer = CppLexer() if kernel.language == "cpp" else PythonLexer()
    return SourceFile(kernel.name, kernel.language, Markup(highlight(text, lexer, _FORMATTER)))


def highlight_line(text: str) -> Markup:
    """One line of Python as HTML."""
    return Markup(highlight(text, PythonLexer(stripnl=False, ensurenl=False), HtmlFormatter(nowrap=True)).rstrip("\n"))
