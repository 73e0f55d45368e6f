from __future__ import annotations

import fcntl
import itertools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from aoti_debug.base import abi
from aoti_debug.base.abi import NoteCode
from aoti_debug.base.native import crash_stacks
from aoti_debug.runs.run import watchdog
from aoti_debug.runs.run.watchdog import Limits, ScriptWatchdog, Watchdog, callers, progress
from aoti_debug.runs.rundir import breadcrumbs
from aoti_debug.runs.rundir.run_json import RunStage
from tests import factories
from tests.factories import JournalWriter

X = factories.tensor(4)


class Clock:
    """A clock that a test sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)

    def __iadd__(self, seconds: float) -> Clock:
        self.now += seconds
        return self


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def write(run: Path, writer: JournalWriter) -> None:
    (run / "journal.bin").write_bytes(writer.bytes())


# What counts as progress


def test_every_record_of_every_thread_is_progress(tmp_path: Path) -> None:
    writer = JournalWriter()
    states = [progress(tmp_path)]
    writer.call_begin()
    for launch, thread in itertools.product(range(2), (1, 2)):
        writer.thread = thread
        writer.launch_begin(launch, 0, X)
        write(tmp_path, writer)
        states.append(progress(tmp_path))
        writer.launch_end(launch)
        write(tmp_path, writer)
        states.append(progress(tmp_path))
    assert all(a != b for a, b in itertools.pairwise(states))


def test_nothing_new_is_no_progress(tmp_path: Path) -> None:
    writer = JournalWriter()
    writer.call_begin()
    writer.torn_record()
    write(tmp_path, writer)
    before = progress(tmp_path)
    os.utime(tmp_path / "journal.bin", (1, 1))
    assert progress(tmp_path) == before


def test_a_block_that_is_used_again_is_progress(tmp_path: Path) -> None:
    writer = JournalWriter()
    for launch in range(900):
        writer.launch(launch, 0, X)
    data = bytearray(writer.bytes())
    (tmp_path / "journal.bin").write_bytes(data)
    before = progress(tmp_path)
    first = abi.JOURNAL_HEADER.size
    data[first : first + abi.BLOCK_HEADER.size] = abi.BLOCK_HEADER.codec.pack(abi.BLOCK_MAGIC, 1, 999)
    (tmp_path / "journal.bin").write_bytes(data)
    assert progress(tmp_path) != before


def test_a_breadcrumb_and_a_second_package_are_progress(tmp_path: Path) -> None:
    states = [progress(tmp_path)]
    (tmp_path / breadcrumbs.NAME).write_bytes(b"1")
    states.append(progress(tmp_path))
    (tmp_path / "process-8").mkdir()
    writer = JournalWriter()
    writer.note(NoteCode.CONFIGURATION, "x")
    write(tmp_path / "process-8", writer)
    states.append(progress(tmp_path))
    assert len(set(states)) == 3


def test_a_look_at_a_long_journal_is_cheap(tmp_path: Path) -> None:
    blocks = 4096
    with (tmp_path / "journal.bin").open("wb") as file:
        for number in range(blocks):
            file.seek(abi.JOURNAL_HEADER.size + number * abi.BLOCK_BYTES)
            file.write(abi.BLOCK_HEADER.codec.pack(abi.BLOCK_MAGIC, number % 4, number))
        file.truncate(abi.JOURNAL_HEADER.size + blocks * abi.BLOCK_BYTES)
    began = time.process_time()
    progress(tmp_path)
    assert time.process_time() - began < 0.2


# When patience ends


def test_a_timeout_counts_from_the_loading(tmp_path: Path, clock: Clock) -> None:
    patience = Watchdog(Limits(timeout=5), tmp_path)
    for stage in (RunStage.IMPORT, RunStage.INPUTS, RunStage.LOAD):
        assert patience.exceeded_limit(stage) == ""
        clock += 4
    clock += 0.5
    assert patience.exceeded_limit(RunStage.CALL) == ""
    clock += 1
    assert patience.exceeded_limit(RunStage.CALL) == "it was killed after 5 s"


def test_a_stall_counts_from_the_last_progress(tmp_path: Path, clock: Clock) -> None:
    patience = Watchdog(Limits(stall=30), tmp_path)
    assert patience.exceeded_limit(RunStage.LOAD) == ""
    clock += 100
    writer = JournalWriter()
    for launch in range(3):
        writer.launch(launch, 0, X)
        write(tmp_path, writer)
        assert patience.exceeded_limit(RunStage.CALL) == ""
        clock += 29
    clock += 0.9
    assert patience.exceeded_limit(RunStage.CALL) == ""
    clock += 1.2
    assert patience.exceeded_limit(RunStage.CALL) == "no progress for 30 s"


def test_another_stage_is_progress(tmp_path: Path, clock: Clock) -> None:
    patience = Watchdog(Limits(stall=2), tmp_path)
    for stage in (RunStage.CALL, RunStage.SYNCHRONISE, RunStage.UNLOAD):
        assert patience.exceeded_limit(stage) == ""
        clock += 1.9
    clock += 1
    assert patience.exceeded_limit(RunStage.UNLOAD) == "no progress for 2 s"


def test_the_journal_is_looked_at_once_a_second(tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[Path] = []
    monkeypatch.setattr(watchdog, "progress", looks.append)
    patience = Watchdog(Limits(stall=60), tmp_path)
    for _ in range(100):
        patience.exceeded_limit(RunStage.CALL)
        clock += 0.1
    assert len(looks) in (10, 11)


def test_without_limits_there_is_no_end(tmp_path: Path, clock: Clock) -> None:
    patience = Watchdog(Limits(), tmp_path)
    for _ in range(3):
        assert patience.exceeded_limit(RunStage.CALL) == ""
        clock += 1e6


def test_a_script_stalls_in_calls_alone(tmp_path: Path, clock: Clock) -> None:
    patience = ScriptWatchdog(Limits(stall=30), tmp_path)
    writer = JournalWriter(pid=os.getpid())
    for call in range(3):
        assert patience.exceeded_limit() == ""  # it loads, or waits for requests
        clock += 100
        writer.call_begin(call)
        writer.launch_begin(0, 0, X, call=call)
        write(tmp_path, writer)
        assert patience.exceeded_limit() == ""
        clock += 29
        assert patience.exceeded_limit() == ""
        writer.launch_end(0, call=call)
        writer.call_end(call)
        write(tmp_path, writer)
    writer.call_begin(3)
    write(tmp_path, writer)
    clock += 2  # it looks once a second
    assert patience.exceeded_limit() == ""
    clock += 31
    assert patience.exceeded_limit() == "no progress for 30 s"


@pytest.fixture
def died_in_a_call(tmp_path: Path) -> Path:
    """The run directory of a script, a process of which has died in a call."""
    process = subprocess.Popen(["true"])
    process.wait()
    writer = JournalWriter(pid=process.pid)
    writer.call_begin()
    folder = tmp_path / f"process-{process.pid}"
    folder.mkdir()
    write(folder, writer)
    assert callers(tmp_path) == {process.pid: False}
    return tmp_path


def test_a_server_outlives_a_process_that_died_in_a_call(died_in_a_call: Path, clock: Clock) -> None:
    patience = ScriptWatchdog(Limits(stall=30), died_in_a_call)
    for _ in range(3):
        assert patience.exceeded_limit() == ""
        clock += 100


def test_who_waits_for_a_process_that_died_in_a_call_is_killed(died_in_a_call: Path, clock: Clock) -> None:
    patience = ScriptWatchdog(Limits(stall=30, after_crash=30), died_in_a_call)
    assert patience.exceeded_limit() == ""
    clock += 31
    assert patience.exceeded_limit() == "no progress for 30 s"


def test_a_script_is_killed_after_its_time_in_and_outside_of_calls(tmp_path: Path, clock: Clock) -> None:
    patience = ScriptWatchdog(Limits(timeout=5), tmp_path)
    assert patience.exceeded_limit() == ""
    clock += 6
    assert patience.exceeded_limit() == "it was killed after 5 s"


@pytest.mark.parametrize("folder", ["", "process-7", "20261127-045912-14265/rank1", "2026/rank1/process-7"])
def test_an_open_call_of_every_process_and_rank(tmp_path: Path, folder: str) -> None:
    inner = tmp_path / folder
    inner.mkdir(parents=True, exist_ok=True)
    writer = JournalWriter(pid=os.getpid())
    assert callers(tmp_path) == {}
    writer.thread = 2
    writer.call_begin()
    writer.thread = 1
    writer.call_begin(1)
    writer.call_end(1)
    write(inner, writer)
    assert callers(tmp_path) == {os.getpid(): True}
    writer.thread = 2
    writer.call_end()
    write(inner, writer)
    assert callers(tmp_path) == {}


def test_a_model_that_goes_on_after_its_recording_stopped(tmp_path: Path, clock: Clock) -> None:
    patience = ScriptWatchdog(Limits(stall=30), tmp_path)
    writer = JournalWriter(pid=os.getpid())
    writer.call_begin()
    writer.launch_begin(0, 0, X)
    writer.open_calls = 1
    for _ in range(3):
        writer.lost_records += 1
        write(tmp_path, writer)
        assert patience.exceeded_limit() == ""
        clock += 31
    assert patience.exceeded_limit() == "no progress for 30 s"


def test_a_model_that_rests_after_its_recording_stopped(tmp_path: Path, clock: Clock) -> None:
    writer = JournalWriter(pid=os.getpid())
    writer.call_begin()
    writer.launch_begin(0, 0, X)
    writer.lost_records = 5
    write(tmp_path, writer)
    patience = ScriptWatchdog(Limits(stall=30), tmp_path)
    for _ in range(3):
        assert patience.exceeded_limit() == ""
        clock += 31


def test_packages_are_taken_for_no_ranks(tmp_path: Path) -> None:
    (tmp_path / "packages").mkdir()
    (tmp_path / "packages" / "ranker-a4591ce1.pt2").touch()
    (tmp_path / "package.pt2").symlink_to("packages/ranker-a4591ce1.pt2")
    assert callers(tmp_path) == {}


def test_a_directory_that_is_deleted_while_ranks_are_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()

    def gone(path: Path) -> dict[int, Path]:
        raise FileNotFoundError(path)

    monkeypatch.setattr("aoti_debug.runs.rundir.ranks_directory.folders", gone)
    assert callers(tmp_path) == {}


# Asking for stacks

ANSWERING = f"""
import os, signal, sys, threading, time
def answer(number, frame):
    with open(sys.argv[1], "a") as file: file.write("answered\\n")
signal.signal(signal.SIGRTMIN + {crash_stacks.REQUEST - signal.SIGRTMIN}, answer)
print("ready", flush=True)
while True: time.sleep(0.1)
"""


def test_a_process_that_answers(tmp_path: Path) -> None:
    script = [sys.executable, "-c", ANSWERING, str(tmp_path / crash_stacks.STACKS)]
    with subprocess.Popen(script, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        began = time.monotonic()
        watchdog.request_stacks(process.pid, tmp_path)
        assert (tmp_path / crash_stacks.STACKS).read_text() == "answered\n"
        assert time.monotonic() - began < 2
        assert process.poll() is None
        process.kill()


def test_a_process_that_knows_no_request_lives_on(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        began = time.monotonic()
        watchdog.request_stacks(process.pid, tmp_path)
        assert time.monotonic() - began < 5
        assert process.poll() is None
        process.kill()


def test_a_process_that_has_ended(tmp_path: Path) -> None:
    with subprocess.Popen(["true"]) as process:
        process.wait()
        watchdog.request_stacks(process.pid, tmp_path)
    assert not (tmp_path / crash_stacks.STACKS).exists()


# What threads wait for

SLEEPER = "import time\nprint(flush=True)\ntime.sleep(600)"
READER = "import sys\nprint(flush=True)\nsys.stdin.read()"
LOCKER = "import fcntl, sys\nfile = open(sys.argv[1], 'w')\nprint(flush=True)\nfcntl.lockf(file, fcntl.LOCK_EX)"
SPINNER = "print(flush=True)\nwhile True: pass"
MUTEX = """
import ctypes, threading
libc = ctypes.CDLL(None)
mutex = ctypes.create_string_buffer(64)
thread = threading.Thread(target=libc.pthread_mutex_lock, args=(mutex,))
thread.start()
thread.join()
print(thread.native_id, flush=True)
libc.pthread_mutex_lock(mutex)
"""


def waits(code: str, *words: str, contains: str) -> tuple[str, str]:
    """What a process printed, and what its thread was doing as soon as that contains a text."""
    command = [sys.executable, "-c", code, *words]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            printed = child.stdout.readline()
            deadline = time.monotonic() + 20
            while contains not in (found := watchdog.waits_of(child.pid)[child.pid]) and time.monotonic() < deadline:
                time.sleep(0.05)
            return printed.strip(), found
        finally:
            child.kill()


def test_a_thread_sleeps_reads_or_runs() -> None:
    assert waits(SLEEPER, contains="sleeps")[1] == "sleeps for a time"
    assert waits(READER, contains="read")[1].startswith("waits in read of pipe:[")
    assert waits(SPINNER, contains="runs")[1] == "runs, and waits for nothing"


def test_the_holder_of_a_lock_on_a_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with path.open("w") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        found = waits(LOCKER, str(path), contains="fcntl")[1]
    assert found == f"waits in fcntl (F_SETLKW) of {path}; process {os.getpid()} has locked it"


def test_the_holder_of_a_mutex_is_named_with_may() -> None:
    holder, found = waits(MUTEX, contains="has ended")
    assert found == (
        f"waits for a futex; the futex looks like a mutex, which thread {holder}, which has ended, may hold"
    )


def test_a_process_that_is_gone_has_no_threads() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        child.wait()
    assert watchdog.waits_of(child.pid) == {}


@pytest.mark.parametrize(
    ("words", "machine", "text"),
    [
        ("202 0x0 0x80 0x2 0x0 0x0 0x0 0x7ffe 0x7f2d", "x86_64", "waits for a futex"),
        ("98 0x0 0x80 0x2 0x0 0x0 0x0 0x7ffe 0x7f2d", "aarch64", "waits for a futex"),
        ("232 0x3 0x0 0x20 0xffffffff 0x0 0x0 0x7ffe 0x7f2d", "x86_64", "waits in epoll_wait"),
        ("999 0x3 0x0 0x20 0xffffffff 0x0 0x0 0x7ffe 0x7f2d", "x86_64", "waits in system call 999"),
        ("232 0x3 0x0 0x20 0xffffffff 0x0 0x0 0x7ffe 0x7f2d", "riscv64", "waits in system call 232"),
        ("24 0x0 0x0 0x0 0x0 0x0 0x0 0x7ffe 0x7f2d", "x86_64", "runs, and waits for nothing"),
        ("-1 0x7ffe 0x7f2d", "x86_64", "waits in the kernel, in no system call"),
        ("running", "x86_64", "runs, and waits for nothing"),
    ],
)
def test_system_calls_as_words(words: str, machine: str, text: str) -> None:
    assert watchdog._wait_text(os.getpid(), words.split(), machine) == text
