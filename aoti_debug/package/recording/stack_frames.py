"""The frames of a Python stack trace as text: file, line, function and source."""

from __future__ import annotations

import re
from collections.abc import Sequence

from aoti_debug.package.manifest import ModelLine

_FRAME = re.compile(
    r'^\s*File "(?P<file>[^"\n]*)", line (?P<line>\d+), in (?P<function>[^\n]*)'
    r'(?:\n(?P<text>(?!\s*File ")[^\n]*))?',
    re.MULTILINE,
)
_TORCH_FILE = re.compile(r"^<|/(?:site|dist)-packages/torch/|/torch/(?:nn|fx|utils|export|_\w+|functional\.py)(?:/|$)")


def frames(stack: str) -> tuple[ModelLine, ...]:
    """Parses the frames of a stack trace, outermost first."""
    return tuple(
        ModelLine(m["file"], int(m["line"]), m["function"].strip(), (m["text"] or "").strip())
        for m in _FRAME.finditer(stack)
    )


def traced_lines(stacks: Sequence[str]) -> tuple[ModelLine, ...]:
    """Returns all frames of the stacks that are not in torch, the innermost of each stack first; each line once."""
    own = (frame for stack in stacks for frame in reversed(frames(stack)) if not _TORCH_FILE.search(frame.file))
    return tuple({(frame.file, frame.line): frame for frame in own}.values())


def own_frames(stacks: Sequence[str]) -> tuple[ModelLine, ...]:
    """Returns the innermost frame of each stack that is not in torch; each line once."""
    innermost = (
        next((frame for frame in reversed(frames(stack)) if not _TORCH_FILE.search(frame.file)), None)
        for stack in stacks
    )
    return tuple({(f.file, f.line): f for f in innermost if f is not None}.values())
