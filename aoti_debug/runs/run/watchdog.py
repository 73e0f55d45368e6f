"""Detects from outside the process that a model makes no progress; asks for its stacks, and what its threads wait for.

The kernel tells which system call a thread is in (/proc/PID/task/TID/syscall). A signal interrupts that, so it is read
before the stacks are asked for.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import re
import struct
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.files import stamped_directories
from aoti_debug.base.native import crash_stacks
from aoti_debug.runs.rundir import breadcrumbs, ranks_directory
from aoti_debug.runs.rundir.formats import journal_end
from aoti_debug.runs.rundir.run_json import RunStage

_JOURNAL = "journal.bin"
_POLL_INTERVAL = 1.0  # seconds between two reads of the journal
_STACKS_TIMEOUT = 2.0  # seconds in which the threads must write their stacks
_QUIET_TIME = 0.3  # seconds without another stack after which all threads are taken to have answered
_DUMP_TIMEOUT = 30.0  # seconds in which the driver must write a core dump of a GPU
_DUMP_QUIET_TIME = 1.0  # seconds without another byte of it after which it is taken to be complete
_TRIGGER_BYTES = 1 << 16  # one byte need not reach the driver
_MAX_THREADS = 256
_CALLED = frozenset({RunStage.CALL, RunStage.SYNCHRONISE, RunStage.UNLOAD})
_LOADED = _CALLED | {RunStage.LOAD}


# The numbers of system calls that wait, by name.
_X86 = (
    "read=0 write=1 poll=7 select=23 sched_yield=24 pause=34 nanosleep=35 connect=42 accept=43 recvfrom=45 recvmsg=47 "
    "wait4=61 fcntl=72 flock=73 futex=202 clock_nanosleep=230 epoll_wait=232 waitid=247 pselect6=270 ppoll=271 "
    "epoll_pwait=281 accept4=288"
)
_ARM = (
    "epoll_pwait=22 fcntl=25 flock=32 read=63 write=64 pselect6=72 ppoll=73 waitid=95 futex=98 nanosleep=101 "
    "clock_nanosleep=115 sched_yield=124 accept=202 connect=203 recvfrom=207 recvmsg=212 accept4=242 wait4=260"
)
_NAMES = {
    machine: {int(number): name for name, number in (word.split("=") for word in numbers.split())}
    for machine, numbers in {"x86_64": _X86, "aarch64": _ARM}.items()
}
_OF_FILES = ("read", "write", "connect", "accept", "accept4", "recvfrom", "recvmsg", "fcntl", "flock")
_SLEEPS = ("nanosleep", "clock_nanosleep")
_SET_AND_WAIT = 7  # F_SETLKW
_HELD = (1, 2)  # the first word of a pthread mutex that is locked
_KINDS = 0x1FF  # the bits of its kind
_MOST_THREADS = 1 << 22  # no thread has a larger id
_LOCK = re.compile(r"\d+: (?:POSIX|FLOCK|OFDLCK) +\w+ +\w+ (-?\d+) [0-9a-f]+:[0-9a-f]+:(\d+) ")


@dataclass(frozen=True)
class Limits:
    """The time limits after which a process is killed; None: no limit.

    Attributes:
        timeout: seconds from the beginning of loading.
        stall: seconds in which no launch begins, ends on the host, or completes on the device; counted once the model
            is called.
        after_crash: of a script, the same seconds after a process that it had started died in a call: who waits for it
            may wait for ever. A server need not.
    """

    timeout: float | None = None
    stall: float | None = None
    after_crash: float | None = None


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


class ScriptWatchdog:
    """Checks the process of a script against its limits: the time limit from its beginning, progress within calls."""

    def __init__(self, limits: Limits, run: Path) -> None:
        self._run = run
        self._watchdog = Watchdog(limits, run)
        self._after_crash = Watchdog(Limits(stall=limits.after_crash), run)
        self._patience = [seconds for seconds in (limits.stall, limits.after_crash) if seconds is not None]
        self._next_poll = 0.0
        self._callers: Mapping[int, bool] = {}

    def exceeded_limit(self) -> str:
        """The reason to kill the script now; "" if it exceeds no limit."""
        if self._patience and time.monotonic() >= self._next_poll:
            self._next_poll = time.monotonic() + min(_POLL_INTERVAL, min(self._patience) / 4)
            self._callers = callers(self._run)
        alive = self._callers.values()
        of_living = RunStage.CALL if any(alive) else RunStage.LOAD
        of_dead = RunStage.LOAD if all(alive) else RunStage.CALL
        return self._watchdog.exceeded_limit(of_living) or self._after_crash.exceeded_limit(of_dead)


def progress(run: Path) -> object:
    """A value that changes whenever a launch begins, ends, or completes on the device, recorded or not."""
    folders = _recorded_in(run)
    journals = tuple(_journal_end(folder / _JOURNAL) for folder in folders)
    return journals, tuple(_bytes(folder / breadcrumbs.NAME) for folder in folders)


def callers(run: Path) -> dict[int, bool]:
    """The processes that record in a run directory and are in a call of a model; False for one that died in it."""
    found = {}
    for folder in _recorded_in(run):
        writer = journal_end.writer_of(folder / _JOURNAL)
        if writer is not None and journal_end.has_open_call(folder / _JOURNAL):
            found[writer.process] = stamped_directories.is_running_since(writer.process, time.time())
    return found


def _recorded_in(run: Path) -> list[Path]:
    """The folders of the runs of all packages, processes and ranks that record in a run directory."""
    launches = sorted(entry for entry in run.iterdir() if entry.is_dir() and not entry.is_symlink())
    ranks: list[Path] = []
    for launch in launches:
        with contextlib.suppress(FileNotFoundError):  # the script may delete directories
            ranks += ranks_directory.folders(launch).values()
    return [folder for rank in (run, *ranks) for folder in (rank, *sorted(rank.glob("process-*")))]


def _journal_end(path: Path) -> tuple[object, ...]:
    """The newest block of each thread and the end of its records; what the process does where it records no more."""
    blocks = journal_end.newest_blocks(path).items()
    ends = ((thread, sequence, journal_end.records_end(block)) for thread, (sequence, block) in blocks)
    return (*ends, journal_end.writer_of(path))


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def request_all_stacks(pid: int, run: Path) -> None:
    """The same as `request_stacks`, also of the processes that this one has started and that record in its run."""
    request_stacks(pid, run)
    for folder in _recorded_in(run):
        writer = journal_end.writer_of(folder / _JOURNAL)
        if writer is not None and writer.process != pid and _threads(writer.process):
            request_stacks(writer.process, folder)


def request_stacks(pid: int, run: Path) -> None:
    """Makes the threads of a process write their call stacks; returns when they have, or after two seconds."""
    with contextlib.suppress(OSError):  # a full disk: the stacks are more important
        (run / crash_stacks.WAITS).write_text("".join(f"{thread} {text}\n" for thread, text in waits_of(pid).items()))
    deadline = time.monotonic() + _STACKS_TIMEOUT
    libc = ctypes.CDLL(None)
    for thread in _threads(pid)[:_MAX_THREADS]:
        libc.tgkill(pid, thread, crash_stacks.REQUEST)
    path, size, quiet_end = run / crash_stacks.STACKS, -1, time.monotonic() + _QUIET_TIME
    while time.monotonic() < deadline and (size <= 0 or time.monotonic() < quiet_end):
        time.sleep(0.05)
        new_size = len(_bytes(path))
        if new_size != size:
            size, quiet_end = new_size, time.monotonic() + _QUIET_TIME


def request_gpu_core(pid: int, pipe: Path, dump: Path) -> None:
    """Asks the CUDA driver of a process for a core dump; returns when it is written, or after half a minute.

    Args:
        pipe: that the driver listens to; without it, or without a listener, nothing is done.
        dump: the file that the driver writes.
    """
    if dump.exists():  # of a kernel that has failed
        return
    try:
        descriptor = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return
    with contextlib.suppress(OSError):  # the pipe is full
        os.write(descriptor, bytes(_TRIGGER_BYTES))
    os.close(descriptor)
    began, deadline, size, quiet_end = time.time(), time.monotonic() + _DUMP_TIMEOUT, -1, 0.0
    while time.monotonic() < deadline and (size <= 0 or time.monotonic() < quiet_end):
        if not stamped_directories.is_running_since(pid, began):
            return
        time.sleep(0.1)
        new_size = dump.stat().st_size if dump.exists() else 0
        if new_size != size:
            size, quiet_end = new_size, time.monotonic() + _DUMP_QUIET_TIME


def waits_of(pid: int, machine: str = platform.machine()) -> Mapping[int, str]:
    """A clause on what each thread of a process does now: "waits for a futex"; none where the system hides it."""
    threads = {}
    for thread in _tasks(pid):
        with contextlib.suppress(OSError):  # it has ended, or the system denies it
            words = Path(f"/proc/{pid}/task/{thread}/syscall").read_text().split()
            threads[thread] = _wait_text(pid, words, machine)
    return threads


def _wait_text(pid: int, words: Sequence[str], machine: str) -> str:
    """A clause on what a thread does.

    Args:
        words: of the file `syscall`: "running", or the number of the system call with its arguments.
    """
    if words[0] == "running":
        return "runs, and waits for nothing"
    number, arguments = int(words[0]), [int(word, 16) for word in words[1:7]]
    name = _NAMES.get(machine, {}).get(number, f"system call {number}")
    if number < 0 or name == "sched_yield":
        return "runs, and waits for nothing" if number >= 0 else "waits in the kernel, in no system call"
    if name == "futex":
        return f"waits for a futex{_holder_of_mutex(pid, arguments[0])}"
    if name in _SLEEPS:
        return "sleeps for a time"
    if name in _OF_FILES:
        what = "F_SETLKW" if name == "fcntl" and arguments[1] == _SET_AND_WAIT else ""
        holder = _holder_of_lock(pid, arguments[0]) if name in ("fcntl", "flock") else ""
        return f"waits in {name}{f' ({what})' if what else ''} of {_file(pid, arguments[0])}{holder}"
    return f"waits in {name}"


def _file(pid: int, descriptor: int) -> str:
    """The file, pipe or socket behind a descriptor."""
    try:
        return os.readlink(f"/proc/{pid}/fd/{descriptor}")
    except OSError:
        return f"descriptor {descriptor}"


def _holder_of_mutex(pid: int, address: int) -> str:
    """The thread that may hold a mutex, as words; "" if the memory does not look like a locked mutex of a thread."""
    try:
        with Path(f"/proc/{pid}/mem").open("rb") as memory:
            memory.seek(address)
            state, _, owner, _, kind = struct.unpack("<IIIII", memory.read(20))
    except (OSError, struct.error, OverflowError):
        return ""
    if state not in _HELD or not 0 < owner <= _MOST_THREADS or kind & ~_KINDS:
        return ""
    ended = "" if owner in _tasks(pid) else ", which has ended,"
    return f"; the futex looks like a mutex, which thread {owner}{ended} may hold"


def _holder_of_lock(pid: int, descriptor: int) -> str:
    """The process that holds a lock on a file, as words; "" if the system names none."""
    try:
        inode = os.stat(f"/proc/{pid}/fd/{descriptor}").st_ino
        locks = Path("/proc/locks").read_text()
    except OSError:
        return ""
    holders = [int(match[1]) for line in locks.splitlines() if (match := _LOCK.match(line)) and int(match[2]) == inode]
    return f"; process {holders[0]} has locked it" if holders and holders[0] > 0 else ""


def _tasks(pid: int) -> Sequence[int]:
    """Ids of the threads of a process; none if it has ended."""
    try:
        return sorted(int(path.name) for path in Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return ()


def _threads(pid: int) -> list[int]:
    """Ids of the threads that handle the request, the main thread first."""
    threads = []
    try:
        for task in _tasks(pid):
            if _handles(Path(f"/proc/{pid}/task/{task}/status")):
                threads.append(task)
    except OSError:
        return threads
    return threads


def _handles(status: Path) -> bool:
    """True if the thread has a handler for the request, which would kill the process otherwise."""
    fields = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
    return bool(int(fields.get("SigCgt", "0"), 16) >> (crash_stacks.REQUEST - 1) & 1)
