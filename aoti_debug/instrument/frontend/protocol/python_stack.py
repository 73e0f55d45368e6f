"""The innermost Python frames in the output of a process that has ended, or was asked for its stack."""

from __future__ import annotations

import re
import sysconfig
from pathlib import Path

_MAX_FRAMES = 12
_OWN = Path(__file__).parents[3]
_INSTALLED = tuple(Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
_TRACEBACK = "Traceback (most recent call last):"
_STACK = re.compile(r"^(?:Current thread .*|Stack) \(most recent call first\):$")
_FRAME = re.compile(r'^(?:  \| )?  File "(?P<file>[^"]*)", line (?P<line>\d+),? in (?P<function>.*)$')


def innermost_frames(text: str) -> tuple[str, ...]:
    """The frames of the last stack in a text, the innermost first: "ops.py:12 in apply", with whole paths.

    It understands the tracebacks of exceptions, and the stacks of the faulthandler module. Frames of aoti-debug are
    left out: they watch the build.
    """
    frames: list[str] = []
    is_innermost_first = False
    for line in text.splitlines():
        if line.strip(" |+") == _TRACEBACK or _STACK.match(line):
            frames, is_innermost_first = [], line.strip(" |+") != _TRACEBACK
        elif (match := _FRAME.match(line)) and not _lies_in(match["file"], _OWN):
            frames.append(f"{match['file']}:{match['line']} in {match['function']}")
    return tuple(frames[:_MAX_FRAMES] if is_innermost_first else frames[: -_MAX_FRAMES - 1 : -1])


def is_of_user(frame: str) -> bool:
    """True for a frame of a file that is neither of Python nor of an installed package."""
    file = frame.rpartition(":")[0]
    is_installed = "/site-packages/" in file or "/dist-packages/" in file or file.startswith("<")
    return not is_installed and not any(_lies_in(file, folder) for folder in (_OWN, *_INSTALLED))


def _lies_in(file: str, folder: Path) -> bool:
    """True for a file in a folder, whether or not links lead there."""
    return Path(file).is_relative_to(folder) or Path(file).resolve().is_relative_to(folder.resolve())
