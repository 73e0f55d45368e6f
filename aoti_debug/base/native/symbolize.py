"""Symbolizes addresses of a process: functions, and lines of source."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.files.untrusted_files import complete_lines
from aoti_debug.base.machine.processes import child_process
from aoti_debug.base.native.elf import Library
from aoti_debug.base.native.frames import StackFrame
from aoti_debug.base.native.function_names import demangle

_ADDR2LINE_SECONDS = 20
_EXECUTABLE = re.compile(
    r"([0-9a-f]{1,16})-([0-9a-f]{1,16}) +[r-][w-]x[ps-] +([0-9a-f]{1,16}) +[0-9a-f:]+ +[0-9]+ *(.*)"
)


@dataclass(frozen=True)
class Mapping:
    """A part of a file that is mapped into executable memory."""

    start: int
    end: int
    offset: int
    path: str


def parse_maps(text: str) -> list[Mapping]:
    """Parses the executable mappings of a copy of /proc/PID/maps."""
    return [
        Mapping(int(match[1], 16), int(match[2], 16), int(match[3], 16), match[4].removesuffix(" (deleted)"))
        for match in map(_EXECUTABLE.fullmatch, complete_lines(text))
        if match
    ]


def symbolize(addresses: Iterable[int], maps: Sequence[Mapping]) -> dict[int, tuple[StackFrame, ...]]:
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
