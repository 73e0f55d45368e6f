"""Whether a model that runs still gets anywhere, seen from outside, and where its threads are when it does not."""

from __future__ import annotations

import ctypes
import os
import signal
import struct
import time
from dataclasses import dataclass
from pathlib import Path

from aoti_debug import abi
from aoti_debug.native import crash_stacks
from aoti_debug.rundir import breadcrumbs
from aoti_debug.rundir.run_json import Stage

REQUEST = signal.SIGRTMIN + 7  # kStackRequest of runtime_shims/backtrace.h
_LOOK = 1.0  # seconds between two looks at the journal
_ANSWER = 2.0  # seconds that the threads have to write their stacks down
_SETTLED = 0.3  # seconds without another stack: all have answered
_MOST_THREADS = 256
_SIZE = struct.Struct("<I")
_CALLED = frozenset({Stage.CALL, Stage.SYNCHRONISE, Stage.UNLOAD})
_LOADED = _CALLED | {Stage.LOAD}


@dataclass(frozen=True)
class Limits:
    """When a process is given up. None: never.

    Attributes:
        timeout: seconds from when the package is being loaded.
        stall: seconds in which no launch begins, ends on the host, or completes on the device; counted once the model
            is called.
    """

    timeout: float | None = None
    stall: float | None = None


class Patience:
    """Watches over one process's progress."""

    def __init__(self, limits: Limits, run: Path) -> None:
        self._limits = limits
        self._run = run
        self._stage = Stage.IMPORT
        self._deadline: float | None = None
        self._next_look = 0.0
        self._progress: object = None
        self._since = 0.0

    def exhausted(self, stage: Stage) -> str:
        """Why the process must be ended now; "" while it may go on."""
        now = time.monotonic()
        if stage in _LOADED and self._deadline is None and self._limits.timeout is not None:
            self._deadline = now + self._limits.timeout
        if self._deadline is not None and now > self._deadline:
            return f"it was killed after {self._limits.timeout:g} s"
        if self._limits.stall is not None and stage in _CALLED and self._stalls(stage, now, self._limits.stall):
            return f"no progress for {self._limits.stall:g} s"
        return ""

    def _stalls(self, stage: Stage, now: float, limit: float) -> bool:
        if stage is self._stage and now < self._next_look:
            return False
        self._next_look = now + min(_LOOK, limit / 4)
        found = progress(self._run)
        if stage is not self._stage or found != self._progress:
            self._stage, self._progress, self._since = stage, found, now
        return now - self._since >= limit


def progress(run: Path) -> object:
    """Something that changes whenever a launch begins, ends, or completes on the device."""
    journals = [run / "journal.bin", *sorted(run.glob("process-*/journal.bin"))]
    words = [run / breadcrumbs.NAME, *sorted(run.glob(f"process-*/{breadcrumbs.NAME}"))]
    return tuple(_journal_end(path) for path in journals), tuple(_bytes(path) for path in words)


def _journal_end(path: Path) -> tuple[tuple[int, int, int], ...]:
    """Of each thread: its newest block and the end of what is written there. Mapped memory is read as it is: the file's
    time and size say nothing."""
    try:
        with path.open("rb") as file:
            return _ends(file.fileno(), os.fstat(file.fileno()).st_size)
    except FileNotFoundError:
        return ()


def _ends(descriptor: int, size: int) -> tuple[tuple[int, int, int], ...]:
    newest: dict[int, tuple[int, int]] = {}
    header = abi.BLOCK_HEADER
    for offset in range(abi.JOURNAL_HEADER.size, size, abi.BLOCK_BYTES):
        data = os.pread(descriptor, header.size, offset)
        if len(data) < header.size:
            break
        magic, thread, sequence = header.codec.unpack(data)
        if magic == abi.BLOCK_MAGIC and sequence >= newest.get(thread, (-1, 0))[0]:
            newest[thread] = (sequence, offset)
    return tuple(
        (thread, sequence, _records_end(os.pread(descriptor, abi.BLOCK_BYTES, offset)))
        for thread, (sequence, offset) in sorted(newest.items())
    )


def _records_end(block: bytes) -> int:
    position = abi.BLOCK_HEADER.size
    while position + _SIZE.size <= len(block):
        (size,) = _SIZE.unpack_from(block, position)
        if size == 0:
            break
        position += size
    return position


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def ask_for_stacks(pid: int, run: Path) -> None:
    """Has the threads of a process write down where they are; returns when they have, or after two seconds."""
    deadline = time.monotonic() + _ANSWER
    libc = ctypes.CDLL(None)
    for thread in _threads(pid)[:_MOST_THREADS]:
        libc.tgkill(pid, thread, REQUEST)
    path, size, settled = run / crash_stacks.STACKS, -1, time.monotonic() + _SETTLED
    while time.monotonic() < deadline and (size <= 0 or time.monotonic() < settled):
        time.sleep(0.05)
        found = len(_bytes(path))
        if found != size:
            size, settled = found, time.monotonic() + _SETTLED


def _threads(pid: int) -> list[int]:
    """Of those that handle the request; the main thread first."""
    found = []
    try:
        for task in sorted(int(path.name) for path in Path(f"/proc/{pid}/task").iterdir()):
            if _handles(Path(f"/proc/{pid}/task/{task}/status")):
                found.append(task)
    except OSError:
        return found
    return found


def _handles(status: Path) -> bool:
    """Whether the request ends no process: a handler is there for it."""
    fields = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
    return bool(int(fields.get("SigCgt", "0"), 16) >> (REQUEST - 1) & 1)
