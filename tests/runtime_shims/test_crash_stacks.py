"""What the handlers of fatal signals write, and that they change nothing else."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.runtime_shims.runtime_library import TORCH

BEGIN = """
import ctypes, faulthandler, os, signal, sys, threading
ctypes.CDLL(sys.argv[2])  # would otherwise keep the runtime from being unloaded
runtime = ctypes.CDLL(sys.argv[1])
call, launch = (ctypes.c_uint64 * 8)(), (ctypes.c_uint64 * 8)()
REQUEST = signal.SIGRTMIN + 7
def begin():
    runtime.h_call_begin(ctypes.byref(call), 0, None, None)
    runtime.h_launch_begin(ctypes.byref(launch), 0, None, 0)
"""
THREAD = re.compile(r"thread (\d+) signal (\d+) code (-?\d+) address (0x\w+) pc (0x\w+) caller 0x\w+")


def run(library: Path, folder: Path, script: str, backtrace: str | None = "1") -> subprocess.CompletedProcess[str]:
    """Runs a script with the runtime loaded; its run directory is `folder`."""
    env = {**os.environ, "AOTI_DEBUG_RUN": str(folder), "AOTI_DEBUG_PRINT": "none", "AOTI_DEBUG_LEVEL": "3"}
    env.pop("AOTI_DEBUG_BACKTRACE", None)
    if backtrace is not None:
        env["AOTI_DEBUG_BACKTRACE"] = backtrace
    command = [sys.executable, "-c", BEGIN + script, str(library), str(TORCH / "lib/libtorch_cpu.so")]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=60)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "run").mkdir()
    return tmp_path / "run"


def heads(folder: Path) -> list[tuple[str, ...]]:
    """Thread, signal, code, address, pc of each stack."""
    return [
        match.groups()
        for line in (folder / "backtrace.txt").read_text().splitlines()
        if (match := THREAD.fullmatch(line))
    ]


@pytest.mark.parametrize(
    ("fault", "number"),
    [
        ("ctypes.string_at(0)", signal.SIGSEGV),
        ("os.abort()", signal.SIGABRT),
        ("os.kill(os.getpid(), signal.SIGFPE)", signal.SIGFPE),
        ("os.kill(os.getpid(), signal.SIGBUS)", signal.SIGBUS),
        ("os.kill(os.getpid(), signal.SIGILL)", signal.SIGILL),
    ],
)
def test_a_fatal_signal_leaves_the_stack_and_stays_what_it_is(
    library: Path, folder: Path, fault: str, number: signal.Signals
) -> None:
    done = run(library, folder, f"begin()\nprint(threading.get_native_id(), flush=True)\n{fault}")
    assert done.returncode == -number
    ((thread, caught, _, _, pc),) = heads(folder)
    assert (thread, int(caught)) == (done.stdout.strip(), number)
    _, time_, frames = (folder / "backtrace.txt").read_text().splitlines()
    assert time_.split()[:2] == ["time", thread]
    assert abs(int(time_.split()[2]) / 1e9 - time.time()) < 600
    words = frames.split()
    assert words[:3] == ["frames", thread, pc]
    assert len(words) > 8
    assert "/libc" in (folder / "backtrace.maps").read_text()
    assert str(library) in (folder / "backtrace.maps").read_text()


def test_the_address_that_was_accessed(library: Path, folder: Path) -> None:
    run(library, folder, "begin()\nctypes.string_at(0x1234)")
    ((_, _, code, address, _),) = heads(folder)
    assert (int(code), address) == (1, "0x1234")


@pytest.mark.parametrize("backtrace", [None, "0", "1"])
def test_a_crash_is_caught_unless_that_is_turned_off(library: Path, folder: Path, backtrace: str | None) -> None:
    done = run(library, folder, "begin()\nctypes.string_at(0)", backtrace)
    assert done.returncode == -signal.SIGSEGV
    assert (folder / "backtrace.txt").exists() == (backtrace != "0")


def test_a_value_that_is_not_understood(library: Path, folder: Path) -> None:
    done = run(library, folder, "runtime.h_level()", "yes")
    assert "AOTI_DEBUG_BACKTRACE=yes is not 0 or 1" in done.stderr


def test_a_handler_that_was_there_runs_too(library: Path, folder: Path) -> None:
    done = run(library, folder, "faulthandler.enable()\nbegin()\nctypes.string_at(0)")
    assert done.returncode == -signal.SIGSEGV
    assert "Fatal Python error: Segmentation fault" in done.stderr
    assert len(heads(folder)) == 1


def test_a_crash_in_another_thread(library: Path, folder: Path) -> None:
    script = """
begin()
def crash():
    print(threading.get_native_id(), flush=True)
    ctypes.string_at(0)
thread = threading.Thread(target=crash)
thread.start()
thread.join()
"""
    done = run(library, folder, script)
    assert done.returncode == -signal.SIGSEGV
    assert [head[0] for head in heads(folder)] == [done.stdout.strip()]


def test_a_stack_that_is_exhausted(library: Path, folder: Path) -> None:
    script = """
begin()
libc = ctypes.CDLL(None)
Compare = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
sys.setrecursionlimit(10**9)
pair = (ctypes.c_int * 2)(2, 1)
@Compare
def compare(a, b):
    libc.qsort(pair, 2, 4, compare)
    return 0
compare(None, None)
"""
    done = run(library, folder, script)
    assert done.returncode == -signal.SIGSEGV, done.stderr
    (head,) = heads(folder)
    assert int(head[1]) == signal.SIGSEGV
    (frames,) = [line for line in (folder / "backtrace.txt").read_text().splitlines() if line.startswith("frames ")]
    assert len(frames.split()) > 100


def test_a_request_is_answered_and_the_process_goes_on(library: Path, folder: Path) -> None:
    script = """
faulthandler.register(REQUEST)
begin()
for _ in range(2):
    signal.pthread_kill(threading.get_ident(), REQUEST)
print("went on")
"""
    done = run(library, folder, script)
    assert (done.returncode, done.stdout) == (0, "went on\n")
    assert [int(head[1]) for head in heads(folder)] == [signal.SIGRTMIN + 7] * 2
    assert done.stderr.count("Stack (most recent call first)") + done.stderr.count("Current thread") == 2


def test_an_orderly_end_leaves_nothing(library: Path, folder: Path) -> None:
    assert run(library, folder, "begin()").returncode == 0
    assert list(folder.glob("backtrace.*")) == []


def test_an_unloaded_package_catches_nothing(library: Path, folder: Path) -> None:
    script = "begin()\nctypes.CDLL(None).dlclose(ctypes.c_void_p(runtime._handle))\nctypes.string_at(0)"
    done = run(library, folder, script)
    assert done.returncode == -signal.SIGSEGV
    assert list(folder.glob("backtrace.*")) == []


def test_the_crash_of_a_forked_process_is_not_the_runs(library: Path, folder: Path) -> None:
    script = """
begin()
child = os.fork()
if child == 0:
    ctypes.string_at(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert run(library, folder, script).stdout.strip() == str(-signal.SIGSEGV)
    assert list(folder.glob("backtrace.*")) == []
