"""The model lines of a launch, grouped by file, the innermost first."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from aoti_debug.package.manifest import Certainty, ModelLine, Provenance
from aoti_debug.package.recording.stack_frames import frames
from aoti_debug.runs.show import terminal_cells

MAX_STACK_LINES = 8
_LABEL = 13  # columns
_LIBRARY = re.compile(r".*/(?:site|dist)-packages/")


def model_lines(provenance: Provenance, width: int) -> list[str]:
    """The innermost lines of the model's own code; "line unknown" where there is none."""
    if provenance.certainty is Certainty.NONE:
        return [f"{_label('model')}line unknown"]
    if not provenance.source:
        return []
    first = provenance.source[0]
    lines = [f"{_label('model')}{first.place} in {first.function} ({provenance.certainty.value})"]
    groups = _by_file(provenance.source)
    same = groups.pop(first.file)
    if len(same) == 1:
        lines.append(terminal_cells.shorten_middle(f"{'':{_LABEL + 2}}{first.text.strip()}", width))
    else:
        lines += _numbered(same, width)
    for file, frames_of_file in groups.items():
        lines += [f"{'':{_LABEL}}{file}", *_numbered(frames_of_file, width)]
    return lines


def stack_lines(provenance: Provenance, width: int) -> list[str]:
    """The other lines of the traced stacks, at most MAX_STACK_LINES: the model's own files first, then libraries."""
    shown = {(frame.file, frame.line) for frame in provenance.source}
    traced = [frame for stack in provenance.stacks for frame in frames(stack) if (frame.file, frame.line) not in shown]
    groups = sorted(_by_file(traced).items(), key=lambda group: _is_library(group[0]))
    total = sum(len(group) for _, group in groups)
    lines: list[str] = []
    room = MAX_STACK_LINES
    for file, group in groups:
        if room > 0:
            lines += [f"{'':{_LABEL}}{_short(file)}", *_numbered(group[:room], width)]
        room -= len(group)
    if total > MAX_STACK_LINES:
        lines.append(f"{'':{_LABEL}}and {total - MAX_STACK_LINES} more (--all)")
    return _under("stack", lines)


def whole_stacks(provenance: Provenance) -> list[str]:
    """Every traced stack as torch recorded it, outermost call first."""
    lines: list[str] = []
    for stack in provenance.stacks:
        lines += ["  stack", *(f"    {line.rstrip()}" for line in stack.splitlines())]
    return lines


def _label(label: str) -> str:
    return f"  {label:<{_LABEL - 2}}"


def _under(label: str, lines: Sequence[str]) -> list[str]:
    return [f"{_label(label)}{lines[0][_LABEL:]}", *lines[1:]] if lines else []


def _by_file(model_lines: Iterable[ModelLine]) -> dict[str, list[ModelLine]]:
    """Distinct lines of each file by number; files in the order of their first line."""
    groups: dict[str, dict[int, ModelLine]] = {}
    for frame in model_lines:
        groups.setdefault(frame.file, {}).setdefault(frame.line, frame)
    return {file: [lines[number] for number in sorted(lines)] for file, lines in groups.items()}


def _numbered(lines: Sequence[ModelLine], width: int) -> Iterator[str]:
    digits = max(4, *(len(str(frame.line)) for frame in lines))
    for frame in lines:
        yield terminal_cells.shorten_middle(f"{'':{_LABEL}}{frame.line:>{digits}}  {frame.text.strip()}", width)


def _is_library(file: str) -> bool:
    return _LIBRARY.match(file) is not None


def _short(file: str) -> str:
    """The path below the directory of installed packages: "torch/nn/functional.py"."""
    return _LIBRARY.sub("", file)
