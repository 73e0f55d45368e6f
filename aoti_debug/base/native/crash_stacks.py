"""Call stacks of a process that a signal ended or that hung; runtime_shims/crash/backtrace.cpp wrote them.

backtrace.txt and backtrace.maps hold addresses. `decode` symbolizes them while the libraries still exist; `preserve`
keeps the result as backtrace.json. python.txt is the output of Python's faulthandler from the same moment.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, groupby
from pathlib import Path

from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.files import atomic_write, json_data, untrusted_files
from aoti_debug.base.machine.files.untrusted_files import complete_lines, read_end
from aoti_debug.base.machine.processes import child_process
from aoti_debug.base.native.frames import (
    MAX_FRAMES,
    StackFrame,
    calls_package,
    demangle,
    is_interpreter,
    is_noise,
    is_system_header,
    operator_python_frames,
    without_abort_frames,
)

_ADDR2LINE_SECONDS = 20
_EXECUTABLE = re.compile(
    r"([0-9a-f]{1,16})-([0-9a-f]{1,16}) +[r-][w-]x[ps-] +([0-9a-f]{1,16}) +[0-9a-f:]+ +[0-9]+ *(.*)"
)


@dataclass(frozen=True)
class MappedCode:
    """A part of a file that is mapped into executable memory."""

    start: int
    end: int
    offset: int
    path: str


def parse_maps(text: str) -> list[MappedCode]:
    """Parses the executable mappings of a copy of /proc/PID/maps."""
    return [
        MappedCode(int(match[1], 16), int(match[2], 16), int(match[3], 16), match[4].removesuffix(" (deleted)"))
        for match in map(_EXECUTABLE.fullmatch, complete_lines(text))
        if match
    ]


def symbolize(addresses: Iterable[int], maps: Sequence[MappedCode]) -> dict[int, tuple[StackFrame, ...]]:
    """Returns the frames of each address, several where functions are inlined."""
    frames: dict[int, tuple[StackFrame, ...]] = {}
    by_library: dict[str, list[tuple[int, int]]] = {}
    for address in addresses:
        mapping = next((m for m in maps if m.start <= address < m.end), None)
        if mapping is None or not mapping.path.startswith("/"):
            frames[address] = (StackFrame("", "" if mapping is None else mapping.path, address),)
        else:
            by_library.setdefault(mapping.path, []).append((address, address - mapping.start + mapping.offset))
    for path, offsets in by_library.items():
        frames |= _in_library(Path(path), offsets)
    return frames


def _in_library(path: Path, offsets: Sequence[tuple[int, int]]) -> dict[int, tuple[StackFrame, ...]]:
    """Symbolizes addresses within one library.

    Args:
        offsets: pairs of an address and the offset in the file that is mapped there.
    """
    from aoti_debug.base.native.elf import Library  # few runs have stacks, and most of them are decoded

    try:
        with Library(path) as library:
            linked = {address: library.address(offset) for address, offset in offsets}
            names = library.function_names(value for value in linked.values() if value is not None)
            has_lines = library.has_debug_lines
    except (OSError, ValueError):
        return {address: (StackFrame("", str(path), offset),) for address, offset in offsets}
    link_addresses = {address: (value if value is not None else 0) for address, value in linked.items()}
    lines = _source_lines(path, sorted(set(link_addresses.values()))) if has_lines else {}
    return {
        address: lines.get(value) or (StackFrame(demangle(names.get(value, "")), str(path), value),)
        for address, value in link_addresses.items()
    }


def _source_lines(path: Path, addresses: Sequence[int]) -> dict[int, tuple[StackFrame, ...]]:
    """Runs addr2line; empty if it is not installed, addresses without a known line are left out."""
    command = ["addr2line", "-a", "-f", "-i", "-e", str(path), *(hex(address) for address in addresses)]
    try:
        completed = child_process.run(command, timeout=_ADDR2LINE_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return {}
    inlined: dict[int, list[StackFrame]] = {}
    current, name = 0, ""
    for line in completed.stdout.splitlines():
        if re.fullmatch(r"0x[0-9a-f]+", line):
            current, name = int(line, 16), ""
        elif not name:
            name = line
        else:
            place = re.match(r"(.+):(\d+)", line)
            if place and place[1] != "??" and name != "??":
                inlined.setdefault(current, []).append(
                    StackFrame(demangle(name), str(path), current, place[1], int(place[2]))
                )
            name = ""
    return {address: tuple(dict.fromkeys(frames)) for address, frames in inlined.items()}


NAME = "backtrace.json"
STACKS = "backtrace.txt"
MAPS = "backtrace.maps"
PYTHON = "python.txt"
REQUEST = signal.SIGRTMIN + 7  # kStackRequest of runtime_shims/crash/backtrace.h: threads write their stacks
WAITS = "waits.txt"  # what each thread of a process that hung was doing
FORMAT = 1

_KERNEL_CODE = 0x80  # SI_KERNEL: the processor gave no address
_HEX = "(?:0x)?[0-9a-f]{1,16}"
_THREAD = re.compile(
    rf"thread ([0-9]{{1,10}}) signal ([0-9]{{1,3}}) code (-?[0-9]{{1,10}}) address ({_HEX}) pc ({_HEX}) caller ({_HEX})"
)
_TIME = re.compile(r"time ([0-9]{1,10}) ([0-9]{1,19})")
_FRAMES = re.compile(rf"frames ([0-9]{{1,10}})((?: {_HEX})*)")
_WAIT = re.compile(r"([0-9]{1,10}) (.{1,4096})")
_PYTHON_FRAME = re.compile(r'  File "(.+)", line (\d+) in (.+)')


def enable_python(path: Path, request: int | None = None) -> None:
    """Has Python write its call stack to a file on a fatal signal; the user's own faulthandler is kept.

    Args:
        request: a signal on which it is written as well.
    """
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o666)  # stays open
    except OSError as error:
        print(f"aoti-debug: the call stacks of Python cannot be written: {error}", file=sys.stderr)
        return
    if not faulthandler.is_enabled():
        faulthandler.enable(file, all_threads=False)
    if request is not None:
        faulthandler.register(request, file, all_threads=False)


@dataclass(frozen=True)
class Stack:
    """The stack of one thread, innermost frame first.

    Attributes:
        thread: the thread id of the operating system, as in Launch.thread.
        signal: "SIGSEGV"; "" if the thread had no fault and only its stack was taken.
        address: the invalid address that it accessed; None for signals that have none.
        waits: of a process that hung, what the thread was doing: "waits for a futex"; "" if it is not known.
    """

    thread: int
    signal: str
    address: int | None
    frames: tuple[StackFrame, ...]
    waits: str = ""


@dataclass(frozen=True)
class Backtrace:
    """The call stacks of a run.

    Attributes:
        stacks: of the thread that a signal ended; or of all threads of a process that hung.
        python: Python frames within the launch, innermost first.
    """

    stacks: tuple[Stack, ...]
    python: tuple[StackFrame, ...] = ()

    @property
    def died(self) -> Stack | None:
        """The stack of the thread in which a signal ended the process; None if the process hung."""
        return next((stack for stack in self.stacks if stack.signal), None)

    def useful(self, threads: Sequence[int] = ()) -> tuple[str, ...]:
        """Returns the useful frames of the thread that died; if none did, of the first stack of one of `threads`."""
        requested = [stack for stack in self.stacks if stack.thread in threads]
        stack = self.died or (requested[0] if requested else None) or (self.stacks[0] if self.stacks else None)
        return tuple(frame.text for frame in self.python[:MAX_FRAMES]) if stack is None else useful(stack, self.python)

    def waits(self, launches: Mapping[int, str]) -> tuple[str, ...]:
        """A line for each thread of a process that hung, on what it was doing and where; those within launches first.

        Args:
            launches: names of the launches that threads are in, by thread.
        """
        known = sorted((s for s in self.stacks if s.waits), key=lambda stack: stack.thread not in launches)
        python = dict.fromkeys(launches, self.python)
        lines = [f"{_of_thread(stack, launches)} {_wait(stack, python.get(stack.thread, ()))}" for stack in known]
        alike = [_wait(stack, ()) if stack.thread not in launches else "" for stack in known]
        merged = [
            line if not same or alike.count(same) == 1 else f"{alike.count(same)} other threads, each: {same}"
            for line, same in zip(lines, alike, strict=True)
        ]
        return tuple(dict.fromkeys(merged))


def _of_thread(stack: Stack, launches: Mapping[int, str]) -> str:
    name = launches.get(stack.thread, "")
    return f"thread {stack.thread}, in {name}," if name else f"thread {stack.thread}"


def _wait(stack: Stack, python: Sequence[StackFrame]) -> str:
    """The doing of a thread, with its innermost frame and who called it."""
    what, semicolon, more = stack.waits.partition("; ")
    if not stack.frames:
        return stack.waits
    first, caller = stack.frames[0], _own(stack, python)
    called = "" if caller is None or caller == first else f", called by {caller.text}"
    return f"{what}, in {first.text}{called}{semicolon}{more}"


def _own(stack: Stack, python: Sequence[StackFrame]) -> StackFrame | None:
    """The innermost frame whose line is known and that is not of the system; that of Python for the interpreter's."""
    for frame in stack.frames:
        if python and is_interpreter(frame):
            return python[0]
        if frame.file and not is_system_header(frame):
            return frame
    return None


@dataclass(frozen=True)
class CaughtSignal:
    """A signal that a process received.

    Attributes:
        signal: "SIGSEGV".
        thread: that it came in, as in Launch.thread.
        unix_ns: when, by the wall clock of its machine; 0 if it is not recorded.
    """

    signal: str
    thread: int
    unix_ns: int


def last_signal(run: Path) -> CaughtSignal | None:
    """The last signal that the process of a run wrote its stack for; None without any. Nothing is symbolized."""
    caught: CaughtSignal | None = None
    for line in complete_lines(read_end(run / STACKS)):
        if (match := _THREAD.fullmatch(line)) and int(match[2]) < signal.SIGRTMIN:
            caught = CaughtSignal(child_process.signal_name(int(match[2])), int(match[1]), 0)
        elif caught is not None and (match := _TIME.fullmatch(line)) and int(match[1]) == caught.thread:
            caught = replace(caught, unix_ns=int(match[2]))
    return caught


def read(run: Path) -> Backtrace | None:
    """Reads the symbolized call stacks of a run; None if it has none, or they are not symbolized yet (`decode`).

    Raises:
        RunDirError: backtrace.json cannot be read.
    """
    parse = partial(json_data.from_data, Backtrace)
    try:
        return json_data.read_file(run, NAME, parse, format_=FORMAT, hint="run the package again")
    except FileNotFoundError:
        return None


def preserve(run: Path) -> None:
    """Writes the symbolized stacks of a process that has ended to backtrace.json, while its libraries still exist.

    If the disk is full, only the files of the process itself remain.
    """
    backtrace = decode(run)
    if backtrace is not None:
        with contextlib.suppress(OSError):
            write(run, backtrace)
    if untrusted_files.is_file(run, PYTHON) and untrusted_files.size(run, PYTHON) == 0:
        (run / PYTHON).unlink()


def write(run: Path, backtrace: Backtrace) -> None:
    """Replaces backtrace.json atomically.

    Raises:
        OSError: it cannot be written.
    """
    data = {"format": FORMAT, **json_data.to_data(backtrace)}
    atomic_write.write(run / NAME, json_data.to_text(data) + "\n")


def decode(run: Path) -> Backtrace | None:
    """Symbolizes the files that the process wrote; None if it wrote none.

    It reads the libraries that they name, wherever they are, and runs addr2line: only for a run
    that was made on this account.
    """
    stacks = _raw_stacks(read_end(run / STACKS))
    python = _python_frames(read_end(run / PYTHON))
    if not stacks and not python:
        return None
    maps = parse_maps(read_end(run / MAPS))
    matches = map(_WAIT.fullmatch, complete_lines(read_end(run / WAITS)))
    waits = {int(match[1]): match[2] for match in matches if match}
    resolved = symbolize(set(chain.from_iterable(addresses for *_, addresses in stacks)), maps)
    return Backtrace(
        tuple(
            Stack(
                thread,
                name,
                address,
                tuple(chain.from_iterable(resolved[a] for a in addresses)),
                "" if name else waits.get(thread, ""),
            )
            for thread, name, address, addresses in stacks
        ),
        python,
    )


def useful(stack: Stack, python: Sequence[StackFrame] = ()) -> tuple[str, ...]:
    """Returns the lines of at most six useful frames: the innermost one, operators, the generated code.

    Args:
        python: Python frames, shown in place of the interpreter's native frames.
    """
    frames = without_abort_frames(stack.frames) if stack.signal == "SIGABRT" else stack.frames
    if not frames:
        return tuple(frame.text for frame in python[:MAX_FRAMES])
    interpreter = next((index for index, frame in enumerate(frames) if is_interpreter(frame)), len(frames))
    inside = [frame for frame in frames[1:interpreter] if not is_noise(frame)]
    outside = [frame for frame in frames[max(1, interpreter) :] if not is_noise(frame)]
    between = list(python) if interpreter < len(frames) else []
    if between and 2 + len(inside) + len(between) > MAX_FRAMES:  # the operator's own frames say more than its callees'
        inside = inside[: max(MAX_FRAMES - 2 - len(between), 0)]
    selected = (frames[0], *inside, *between, *outside)
    accessed = "" if stack.address is None or not frames[0].library else f" (address {stack.address:#x})"
    lines = [_line(tuple(repeated)) for _, repeated in groupby(selected, key=lambda frame: frame.text)]
    lines[0] += accessed
    return tuple(lines) if len(lines) <= MAX_FRAMES else (*lines[: MAX_FRAMES - 1], lines[-1])


def _line(repeated: Sequence[StackFrame]) -> str:
    """The line of consecutive frames with the same text: recursion."""
    return repeated[0].text if len(repeated) == 1 else f"{repeated[0].text} (× {len(repeated)})"


# The raw files


def _raw_stacks(text: str) -> list[tuple[int, str, int | None, tuple[int, ...]]]:
    """Parses thread, signal, accessed address and frame addresses of each stack."""
    heads: dict[int, re.Match[str]] = {}
    frames: dict[int, list[int]] = {}
    for line in complete_lines(text):
        if match := _THREAD.fullmatch(line):
            heads[int(match[1])] = match
        elif match := _FRAMES.fullmatch(line):
            frames[int(match[1])] = [int(address, 16) for address in match[2].split()]
    stacks = []
    for thread, match in heads.items():
        number, code = int(match[2]), int(match[3])
        name = child_process.signal_name(number) if number < signal.SIGRTMIN else ""
        pc, caller = int(match[5], 16), int(match[6], 16)
        unwound = frames.get(thread) or [pc, caller]
        has_address = name in ("SIGSEGV", "SIGBUS") and 0 < code < _KERNEL_CODE
        address = int(match[4], 16) if has_address else None
        # A return address may belong to the next line or function already.
        stacks.append((thread, name, address, (pc, *(a - 1 for a in unwound[1:] if a))))
    return stacks


def _python_frames(text: str) -> tuple[StackFrame, ...]:
    """Parses the stack of the thread that the package runs in, down to the call of the package.

    None where several threads are in a call: a stack does not say whose it is.
    """
    texts = re.split(r"^(?=Current thread|Thread |Stack )", text, flags=re.MULTILINE)
    stacks = [
        [StackFrame(function, file=path, line=int(line)) for path, line, function in _PYTHON_FRAME.findall(stack)]
        for stack in texts
    ]
    known = list(filter(None, stacks))
    calling = list(filter(calls_package, known)) or known[:1]
    return operator_python_frames(calling[0]) if len(calling) == 1 else ()
