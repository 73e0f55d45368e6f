"""The text of exceptions and aborts: in the log of a run, and the call stack in the text of torch or pybind11."""

from __future__ import annotations

import re
from pathlib import Path

from aoti_debug.base import wording
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.files.untrusted_files import read_end
from aoti_debug.base.native.frames import MAX_FRAMES, StackFrame, is_noise, operator_python_frames, short_name

_ORIGIN = re.compile(r"^Exception raised from (.+) at (\S+):(\d+) \(most recent call first\)", re.MULTILINE)
_NATIVE = re.compile(r"^frame #\d+: (.+?) \+ 0x[0-9a-f]+ \(0x[0-9a-f]+ in (.+)\)$", re.MULTILINE)
_PYTHON = re.compile(r"^  (/.+|<.+>)\((\d+)\): (.+)$", re.MULTILINE)
_STACK = re.compile(r"\n+(?=Exception raised from .+ \(most recent call first\)|At:\n  \S+\(\d+\): )")
_UNKNOWN = "<unknown function>"
_ABORT_MESSAGE = re.compile(
    r"^terminate called|^  what\(\):|^(?:double free|free\(\)|malloc|realloc|munmap_chunk|corrupted|invalid) ?"
    r"|\*\*\* .* detected \*\*\*|: Assertion .* failed|^Fatal glibc error|^pure virtual method called"
)
_UNCAUGHT = re.compile(r"terminate called after throwing an instance of '(.+?)' what\(\): *")  # of libstdc++
_SHIM_EXCEPTION = "] Exception in aoti_torch: "
_LOG_LINE = re.compile(r"^(?:\[[A-Z]\d{4} |c?\d+\.\d+ |Traceback )", re.MULTILINE)  # what may come behind an exception
_SEARCHED_LINES = 200  # at the end of stderr.log
_SEARCHED_BYTES = 1 << 20


MARK = "\nException raised from "  # behind the message in the text of torch's exceptions


@dataclass(frozen=True)
class RaisedException:
    """An exception of torch, by its text.

    Attributes:
        message: its first line.
        function, file, line: where it was raised.
    """

    message: str
    function: str
    file: str
    line: int


def raised(text: str) -> RaisedException | None:
    """Returns the exception that a text is of; None of another text."""
    origin = _ORIGIN.search(text)
    said = wording.first_line(text[: origin.start()]) if origin is not None else ""
    return None if origin is None or not said else RaisedException(said, origin[1], origin[2], int(origin[3]))


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


def abort_message(run: Path) -> str:
    """Returns the message of an abort from stderr.log: "uncaught std::runtime_error: it is over", "double free …"."""
    lines = read_end(run / "stderr.log", _SEARCHED_BYTES).splitlines()[-_SEARCHED_LINES:]
    messages = [line.strip() for line in lines if _ABORT_MESSAGE.search(line)]
    return _UNCAUGHT.sub(r"uncaught \1: ", " ".join(dict.fromkeys(messages[:2])))


def shim_exception(run: Path) -> str:
    """Returns the text of the first exception that torch's C shim wrote to stderr.log, with the stack behind it.

    Versions of torch whose shim does not hand the text over have it there; later ones may follow from the first. ""
    where there is none.
    """
    _, found, text = read_end(run / "stderr.log", _SEARCHED_BYTES).partition(_SHIM_EXCEPTION)
    return _LOG_LINE.split(text, maxsplit=1)[0].strip() if found else ""
