"""Parses the call stack out of the text of an exception of torch or pybind11."""

from __future__ import annotations

import re

from aoti_debug.base.native.frames import MAX_FRAMES, StackFrame, is_noise, operator_python_frames, short_name

_ORIGIN = re.compile(r"^Exception raised from (.+) at (\S+):(\d+) \(most recent call first\)", re.MULTILINE)
_NATIVE = re.compile(r"^frame #\d+: (.+?) \+ 0x[0-9a-f]+ \(0x[0-9a-f]+ in (.+)\)$", re.MULTILINE)
_PYTHON = re.compile(r"^  (/.+|<.+>)\((\d+)\): (.+)$", re.MULTILINE)
_STACK = re.compile(r"\n+(?=Exception raised from .+ \(most recent call first\)|At:\n  \S+\(\d+\): )")
_UNKNOWN = "<unknown function>"


def message(text: str) -> str:
    """Returns the text without the stack that follows it."""
    return _STACK.split(text, maxsplit=1)[0]


def frames(text: str) -> tuple[str, ...]:
    """Returns at most six useful frames, innermost first; none if the text has no stack."""
    _, *stacks = _STACK.split(text)
    return () if not stacks else tuple(frame.text for frame in (*_native(stacks[0]), *_python(stacks[0])))[:MAX_FRAMES]


def _native(stack: str) -> list[StackFrame]:
    origin = _ORIGIN.match(stack)
    if origin is None:
        return []
    function, file, line = origin.groups()
    frames = [StackFrame(name, library) for name, library in _NATIVE.findall(stack) if name != _UNKNOWN]
    useful = [frame for frame in frames if not is_noise(frame)]
    first = next((frame for frame in useful if short_name(frame.function).split("::")[-1] == function), None)
    if first is not None:
        useful = useful[useful.index(first) + 1 :]
        function = first.function
    return [StackFrame(function, first.library if first else "", 0, file, int(line)), *useful]


def _python(stack: str) -> tuple[StackFrame, ...]:
    if not stack.startswith("At:"):
        return ()
    return operator_python_frames(
        StackFrame(function, file=file, line=int(line)) for file, line, function in _PYTHON.findall(stack)
    )
