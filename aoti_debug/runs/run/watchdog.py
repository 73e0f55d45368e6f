"""Detects from outside the process that a model makes no progress, and requests the call stacks of its threads."""

from __future__ import annotations

import ctypes
import signal
import time
from pathlib import Path

from aoti_debug.base.frozen import dataclass
from aoti_debug.base.native import crash_stacks
from aoti_debug.runs.rundir import breadcrumbs
from aoti_debug.runs.rundir.formats import journal_end
from aoti_debug.runs.rundir.run_json import RunStage

REQUEST = signal.SIGRTMIN + 7  # kStackRequest of runtime_shims/crash/backtrace.h
_POLL_INTERVAL = 1.0  # seconds between two reads of the journal
_STACKS_TIMEOUT = 2.0  # seconds in which the threads must write their stacks
_QUIET_TIME = 0.3  # seconds without another stack after which all threads are taken to have answered
_MAX_THREADS = 256
_CALLED = frozenset({RunStage.CALL, RunStage.SYNCHRONISE, RunStage.UNLOAD})
_LOADED = _CALLED | {RunStage.LOAD}


@dataclass(frozen=True)
class Limits:
    """The time limits after which a process is killed; None: no limit.

    Attributes:
        timeout: seconds from the beginning of loading.
        stall: seconds in which no launch begins, ends on the host, or completes on the device; counted once the model
            is called.
    """

    timeout: float | None = None
    stall: float | None = None


class Watchdog:
    """Checks one process against its limits."""

    def __init__(self, limits: Limits, run: Path) -> None:
        self._limits = limits
        self._run = run
        self._stage = RunStage.IMPORT
        self._deadline: float | None = None
        self._next_poll = 0.0
        self._progress: object = None
        self._progress_time = 0.0

    def exceeded_limit(self, stage: RunStage) -> str:
        """The reason to kill the process now: the limit that it exceeds; "" if it exceeds none."""
        now = time.monotonic()
        if stage in _LOADED and self._deadline is None and self._limits.timeout is not None:
            self._deadline = now + self._limits.timeout
        if self._deadline is not None and now > self._deadline:
            return f"it was killed after {self._limits.timeout:g} s"
        if self._limits.stall is not None and stage in _CALLED and self._stalls(stage, now, self._limits.stall):
            return f"no progress for {self._limits.stall:g} s"
        return ""

    def _stalls(self, stage: RunStage, now: float, limit: float) -> bool:
        if stage is self._stage and now < self._next_poll:
            return False
        self._next_poll = now + min(_POLL_INTERVAL, limit / 4)
        current = progress(self._run)
        if stage is not self._stage or current != self._progress:
            self._stage, self._progress, self._progress_time = stage, current, now
        return now - self._progress_time >= limit


def progress(run: Path) -> object:
    """A value that changes whenever a launch begins, ends, or completes on the device."""
    journals = [run / "journal.bin", *sorted(run.glob("process-*/journal.bin"))]
    crumbs = [run / breadcrumbs.NAME, *sorted(run.glob(f"process-*/{breadcrumbs.NAME}"))]
    return tuple(_journal_end(path) for path in journals), tuple(_bytes(path) for path in crumbs)


def _journal_end(path: Path) -> tuple[tuple[int, int, int], ...]:
    """The newest block of each thread and the end of its records."""
    blocks = journal_end.newest_blocks(path).items()
    return tuple((thread, sequence, journal_end.records_end(block)) for thread, (sequence, block) in blocks)


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def request_stacks(pid: int, run: Path) -> None:
    """Makes the threads of a process write their call stacks; returns when they have, or after two seconds."""
    deadline = time.monotonic() + _STACKS_TIMEOUT
    libc = ctypes.CDLL(None)
    for thread in _threads(pid)[:_MAX_THREADS]:
        libc.tgkill(pid, thread, REQUEST)
    path, size, quiet_end = run / crash_stacks.STACKS, -1, time.monotonic() + _QUIET_TIME
    while time.monotonic() < deadline and (size <= 0 or time.monotonic() < quiet_end):
        time.sleep(0.05)
        new_size = len(_bytes(path))
        if new_size != size:
            size, quiet_end = new_size, time.monotonic() + _QUIET_TIME


def _threads(pid: int) -> list[int]:
    """Ids of the threads that handle the request, the main thread first."""
    threads = []
    try:
        for task in sorted(int(path.name) for path in Path(f"/proc/{pid}/task").iterdir()):
            if _handles(Path(f"/proc/{pid}/task/{task}/status")):
                threads.append(task)
    except OSError:
        return threads
    return threads


def _handles(status: Path) -> bool:
    """True if the thread has a handler for the request, which would kill the process otherwise."""
    fields = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
    return bool(int(fields.get("SigCgt", "0"), 16) >> (REQUEST - 1) & 1)
