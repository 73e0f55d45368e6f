"""The innermost Python frames in the output of a process that has ended, or was asked for its stack."""

from __future__ import annotations

import re

_MOST = 12
_TRACEBACK = "Traceback (most recent call last):"
_STACK = re.compile(r"^(?:Current thread .*|Stack) \(most recent call first\):$")
_FRAME = re.compile(r'^(?:  \| )?  File "(?P<file>[^"]*)", line (?P<line>\d+),? in (?P<function>.*)$')


def innermost_frames(text: str) -> tuple[str, ...]:
    """The frames of the last stack in a text, the innermost first: "ops.py:12 in apply", with whole paths.

    It understands the tracebacks of exceptions, and the stacks of the faulthandler module.
    """
    frames: list[str] = []
    is_innermost_first = False
    for line in text.splitlines():
        if line.strip(" |+") == _TRACEBACK or _STACK.match(line):
            frames, is_innermost_first = [], line.strip(" |+") != _TRACEBACK
        elif match := _FRAME.match(line):
            frames.append(f"{match['file']}:{match['line']} in {match['function']}")
    return tuple(frames[:_MOST] if is_innermost_first else frames[: -_MOST - 1 : -1])
