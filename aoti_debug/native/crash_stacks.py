"""The stacks of a process that died of a signal or hung, from what runtime_shims/backtrace.cpp left in the run.

backtrace.txt and backtrace.maps hold addresses. `decode` turns them into functions while the libraries are still there;
`preserve` keeps that as backtrace.json. python.txt is what Python's faulthandler wrote in the same moment.
"""

from __future__ import annotations

import contextlib
import json
import re
import signal
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import chain, groupby
from pathlib import Path

from aoti_debug.errors import RunDirError
from aoti_debug.machine import files, json_data, process
from aoti_debug.native.frames import MOST_FRAMES, StackFrame, is_noise, is_python, own_python, without_dying
from aoti_debug.native.symbolize import complete_lines, mappings, resolve

NAME = "backtrace.json"
STACKS = "backtrace.txt"
MAPS = "backtrace.maps"
PYTHON = "python.txt"
FORMAT = 1

_THREAD = re.compile(r"thread (\d+) signal (\d+) code (-?\d+) address (\w+) pc (\w+) caller (\w+)")
_PYTHON_FRAME = re.compile(r'  File "(.+)", line (\d+) in (.+)')
_LAST_WORDS = re.compile(
    r"^terminate called|^  what\(\):|^(?:double free|free\(\)|malloc|realloc|munmap_chunk|corrupted|invalid) ?"
    r"|\*\*\* .* detected \*\*\*|: Assertion .* failed|^Fatal glibc error|^pure virtual method called"
)
_LAST_LINES = 200


@dataclass(frozen=True)
class Stack:
    """The stack of one thread, innermost frame first.

    Attributes:
        thread: the operating system's number, as in Launch.thread.
        signal: "SIGSEGV"; "" where the thread was only asked.
        address: what it accessed in vain, where that is what the signal means.
    """

    thread: int
    signal: str
    address: int | None
    frames: tuple[StackFrame, ...]


@dataclass(frozen=True)
class Backtrace:
    """Attributes:
    stacks: the thread that died; or all threads of a process that hung.
    python: frames of Python within the launch, innermost first.
    """

    stacks: tuple[Stack, ...]
    python: tuple[StackFrame, ...] = ()

    @property
    def died(self) -> Stack | None:
        """The thread in which a signal ended the process."""
        return next((stack for stack in self.stacks if stack.signal), None)

    def useful(self, threads: Sequence[int] = ()) -> tuple[str, ...]:
        """The useful frames of the thread that died; where none did, of the first of `threads` that was asked."""
        asked = [stack for stack in self.stacks if stack.thread in threads]
        stack = self.died or (asked[0] if asked else None) or (self.stacks[0] if self.stacks else None)
        return tuple(frame.text for frame in self.python[:MOST_FRAMES]) if stack is None else useful(stack, self.python)


def read(run: Path) -> Backtrace | None:
    """None where the run has no stacks.

    Raises:
        RunDirError: backtrace.json cannot be read.
    """
    path = run / NAME
    if not path.exists():
        return decode(run)
    try:
        return json_data.from_data(Backtrace, json_data.parse_versioned(path.read_bytes(), FORMAT))
    except OSError as error:
        raise RunDirError(f"cannot read {path}: {error.strerror}", hint="run the package again") from error
    except json_data.OtherFormatError as error:
        raise RunDirError(f"{path} has {error}", hint="read it with the version of aoti-debug that wrote it") from error
    except json_data.DamagedJsonError as error:
        raise RunDirError(f"{path} is damaged: {error}", hint="run the package again") from error


def preserve(run: Path) -> None:
    """Keeps the stacks of a process that has ended as backtrace.json, as long as its libraries are there.

    On a full disk, what the process itself wrote has to do.
    """
    found = decode(run)
    if found is not None:
        data = {"format": FORMAT, **asdict(found)}
        with contextlib.suppress(OSError):
            files.write(run / NAME, json.dumps(data, indent=1) + "\n")
    python = run / PYTHON
    if python.exists() and python.stat().st_size == 0:
        python.unlink()


def decode(run: Path) -> Backtrace | None:
    """What the process wrote; None where it wrote nothing."""
    stacks = _raw_stacks(_text(run / STACKS))
    python = _python_frames(_text(run / PYTHON))
    if not stacks and not python:
        return None
    maps = mappings(_text(run / MAPS))
    resolved = resolve(set(chain.from_iterable(addresses for *_, addresses in stacks)), maps)
    return Backtrace(
        tuple(
            Stack(thread, name, address, tuple(chain.from_iterable(resolved[a] for a in addresses)))
            for thread, name, address, addresses in stacks
        ),
        python,
    )


def useful(stack: Stack, python: Sequence[StackFrame] = ()) -> tuple[str, ...]:
    """At most six frames that say what happened: the innermost one, operators, the generated code.

    Args:
        python: what the interpreter was doing, shown in the place of its frames.
    """
    frames = without_dying(stack.frames) if stack.signal == "SIGABRT" else stack.frames
    if not frames:
        return tuple(frame.text for frame in python[:MOST_FRAMES])
    interpreter = next((index for index, frame in enumerate(frames) if is_python(frame)), len(frames))
    inside = [frame for frame in frames[1:interpreter] if not is_noise(frame)]
    outside = [frame for frame in frames[max(1, interpreter) :] if not is_noise(frame)]
    between = list(python) if interpreter < len(frames) else []
    kept = (frames[0], *inside, *between, *outside)
    accessed = "" if stack.address is None or not frames[0].library else f" (address {stack.address:#x})"
    lines = [_line(tuple(same)) for _, same in groupby(kept, key=lambda frame: frame.text)]
    lines[0] += accessed
    return tuple(lines) if len(lines) <= MOST_FRAMES else (*lines[: MOST_FRAMES - 1], lines[-1])


def last_words(run: Path) -> str:
    """What a process that ended itself said about it: "terminate called after throwing …", "double free …"."""
    lines = _text(run / "stderr.log").splitlines()[-_LAST_LINES:]
    said = [line.strip() for line in lines if _LAST_WORDS.search(line)]
    return " ".join(dict.fromkeys(said[:2]))


def _line(same: Sequence[StackFrame]) -> str:
    """Frames of one text, of a function that calls itself."""
    return same[0].text if len(same) == 1 else f"{same[0].text} (× {len(same)})"


# The raw files


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return ""


def _raw_stacks(text: str) -> list[tuple[int, str, int | None, tuple[int, ...]]]:
    """Thread, signal, what it accessed, addresses of the frames."""
    heads: dict[int, re.Match[str]] = {}
    frames: dict[int, list[int]] = {}
    for line in complete_lines(text):
        if match := _THREAD.fullmatch(line):
            heads[int(match[1])] = match
        elif line.startswith("frames "):
            _, of_thread, *addresses = line.split()
            frames[int(of_thread)] = [int(address, 16) for address in addresses]
    found = []
    for thread, match in heads.items():
        number, code = int(match[2]), int(match[3])
        name = process.signal_name(number) if number < signal.SIGRTMIN else ""
        pc, caller = int(match[5], 16), int(match[6], 16)
        unwound = frames.get(thread) or [pc, caller]
        address = int(match[4], 16) if name in ("SIGSEGV", "SIGBUS") and code > 0 else None
        # A return address may belong to the next line or function already.
        found.append((thread, name, address, (pc, *(a - 1 for a in unwound[1:] if a))))
    return found


def _python_frames(text: str) -> tuple[StackFrame, ...]:
    """The stack of the thread that the package runs in, down to where the package was called."""
    for stack in re.split(r"^(?=Current thread|Thread |Stack )", text, flags=re.MULTILINE):
        found = [
            StackFrame(function, file=path, line=int(line)) for path, line, function in _PYTHON_FRAME.findall(stack)
        ]
        if found:
            return own_python(found)
    return ()
