"""Core files: small ones that are written here, and those of real processes."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import struct
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

PATTERN = Path("/proc/sys/kernel/core_pattern")
_CORE, _LOAD, _NOTE = 4, 1, 4


@dataclass(frozen=True)
class Memory:
    """A part of the memory: what the core holds of it, which may be less than its size."""

    address: int
    data: bytes


@dataclass(frozen=True)
class Mapped:
    """A mapped file."""

    start: int
    end: int
    offset: int
    path: str


@dataclass(frozen=True)
class SmallCore:
    """The content of a core file."""

    threads: Sequence[int] = (100,)
    signal: int = 11
    code: int = 1
    address: int = 0x10
    memory: Sequence[Memory] = ()
    mapped: Sequence[Mapped] = ()
    entry: int = 0
    arguments: str = "./server model.pt2"
    machine: int = 62

    def content(self) -> bytes:
        """The bytes of the file."""
        notes = b"".join(self._notes())
        count = 1 + len(self.memory)
        begin = 64 + 56 * count
        header = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
        header += struct.pack("<HHIQQQIHHHHHH", _CORE, self.machine, 1, 0, 64, 0, 0, 64, 56, count, 0, 0, 0)
        segments = struct.pack("<IIQQQQQQ", _NOTE, 0, begin, 0, 0, len(notes), 0, 4)
        place, content = begin + len(notes), notes
        for part in self.memory:
            size = len(part.data)
            segments += struct.pack("<IIQQQQQQ", _LOAD, 6, place, part.address, 0, size, size, 4096)
            place, content = place + size, content + part.data
        return header + segments + content

    def write(self, path: Path) -> Path:
        path.write_bytes(self.content())
        return path

    def _notes(self) -> list[bytes]:
        notes = []
        for number, thread in enumerate(self.threads):
            status = struct.pack("<iiihxx", 0, 0, 0, self.signal) + bytes(16) + struct.pack("<i", thread)
            notes.append(_note(1, status.ljust(336, b"\0")))
            if number == 0:
                notes.append(_note(3, bytes(56) + self.arguments.encode().ljust(80, b"\0")))
                signo = struct.pack("<iiiiQ", self.signal, 0, self.code, 0, self.address)
                notes.append(_note(0x53494749, signo.ljust(128, b"\0")))
                notes.append(_note(6, struct.pack("<QQQQ", 9, self.entry, 0, 0)))
                places = b"".join(struct.pack("<QQQ", m.start, m.end, m.offset // 4096) for m in self.mapped)
                names = b"".join(os.fsencode(m.path) + b"\0" for m in self.mapped)
                notes.append(_note(0x46494C45, struct.pack("<QQ", len(self.mapped), 4096) + places + names))
        return notes


def _note(kind: int, content: bytes) -> bytes:
    padded = content + bytes(-len(content) % 4)
    return struct.pack("<III", 5, len(content), kind) + b"CORE\0\0\0\0" + padded


def why_none() -> str:
    """Why no core file of a real process can be made here; "" if it can."""
    if shutil.which("gdb") is None:
        return "gdb is not installed"
    if not _is_kernels(PATTERN.read_text().strip()):
        return f"core files go elsewhere: {PATTERN}"
    if resource.getrlimit(resource.RLIMIT_CORE)[1] == 0:
        return "the limit of core files is 0"
    return ""


def _is_kernels(pattern: str) -> bool:
    """True if the system writes a core file into the directory of its process."""
    return not pattern.startswith("|") and "/" not in pattern and pattern.startswith("core")


def core_of(command: Sequence[str], folder: Path, variables: Mapping[str, str]) -> Path:
    """Runs a command in a folder until a signal ends it; its core file.

    Args:
        variables: of its environment, beside ours.
    """
    most = resource.getrlimit(resource.RLIMIT_CORE)[1]
    limited = ["prlimit", f"--core={most}:{most}", *command]
    done = traced(limited, folder, variables)
    assert done.returncode < 0, done.stdout + done.stderr
    return next(folder.glob("core*"))


def traced(command: Sequence[str], folder: Path, variables: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Runs a command in a folder with our environment and more variables."""
    return subprocess.run(
        command, cwd=folder, env=_environment(variables), capture_output=True, text=True, check=False, timeout=300
    )


@contextlib.contextmanager
def running(command: Sequence[str], folder: Path, variables: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """The same command while it runs; it is killed at the end."""
    with subprocess.Popen(command, cwd=folder, env=_environment(variables), stderr=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.kill()


def _environment(variables: Mapping[str, str]) -> Mapping[str, str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith("AOTI_DEBUG")}
    return {**own, **variables}
