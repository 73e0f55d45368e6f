from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from aoti_debug.base.machine.processes import child_process
from aoti_debug.base.machine.processes.child_process import Child, Children, FinishedProcess
from tests.shell_children import WITH_CHILD, is_dead, shell, wait_for


def quiet(text: str) -> Child:
    return Child(shell(text), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def test_the_end_of_a_with_kills_all_that_was_started(tmp_path: Path) -> None:
    with quiet(WITH_CHILD.format(pid=tmp_path / "pid")) as child:
        started = wait_for(tmp_path / "pid")
        assert child.poll() is None
    assert child.poll() == -signal.SIGKILL
    assert is_dead(started)


def test_an_error_in_a_with_kills_all_that_was_started(tmp_path: Path) -> None:
    child = quiet(WITH_CHILD.format(pid=tmp_path / "pid"))
    started = wait_for(tmp_path / "pid")
    with pytest.raises(subprocess.TimeoutExpired), child:
        child.wait(0.01)
    assert child.poll() == -signal.SIGKILL
    assert is_dead(started)


def test_what_a_process_leaves_behind_is_killed(tmp_path: Path) -> None:
    with quiet(f"sleep 600 & echo $! > {tmp_path / 'pid'}; exit 3") as child:
        assert child.wait(30) == 3
        left = wait_for(tmp_path / "pid")
    assert is_dead(left)
    assert child.poll() == 3


def test_a_child_has_a_session_the_given_variables_and_descriptors_and_no_input() -> None:
    reading, writing = os.pipe()
    code = (
        "import os, sys\n"
        "told = (os.getsid(0) == os.getpid(), sorted(set(os.environ) - {'LC_CTYPE'}), sys.stdin.read())\n"
        f"os.write({writing}, repr(told).encode())"
    )
    with Child(
        [sys.executable, "-c", code],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        environment={"ONLY": "this"},
        pass_fds=(writing,),
    ) as child:
        os.close(writing)
        assert child.wait(30) == 0
    with os.fdopen(reading) as pipe:
        assert pipe.read() == "(True, ['ONLY'], '')"


def test_what_a_command_wrote() -> None:
    script = shell("printf 'a\\r\\nb\\377'; echo wrong >&2; exit 4")
    assert child_process.run(script, timeout=30) == FinishedProcess(4, "a\nb\ufffd", "wrong\n")
    merged = child_process.run(script, timeout=30, stderr=subprocess.STDOUT)
    assert merged == FinishedProcess(4, "a\nb\ufffdwrong\n", "")


def test_a_command_that_takes_too_long_is_killed_though_its_child_holds_the_pipe(tmp_path: Path) -> None:
    began = time.monotonic()
    with pytest.raises(subprocess.TimeoutExpired):
        child_process.run(shell(WITH_CHILD.format(pid=tmp_path / "pid")), timeout=0.5)
    assert time.monotonic() - began < 30
    assert is_dead(wait_for(tmp_path / "pid"))


def test_a_command_that_does_not_exist() -> None:
    with pytest.raises(FileNotFoundError):
        child_process.run(["/no/such/program"], timeout=1)


@pytest.mark.parametrize(
    ("code", "ending", "name"),
    [
        (0, "exit code 0", ""),
        (3, "exit code 3", ""),
        (-signal.SIGSEGV, "SIGSEGV", "SIGSEGV"),
        (-signal.SIGRTMIN, "SIGRTMIN", "SIGRTMIN"),
        (-(signal.SIGRTMIN + 6), "signal 40", "signal 40"),
    ],
)
def test_how_a_process_ended(code: int, ending: str, name: str) -> None:
    assert child_process.describe_exit(code) == ending
    assert child_process.fatal_signal(code) == name


def test_an_error_kills_what_other_threads_have_started(tmp_path: Path) -> None:
    children = Children()
    with ThreadPoolExecutor(1) as pool:
        result = pool.submit(children.run, shell(WITH_CHILD.format(pid=tmp_path / "pid")))
        started = wait_for(tmp_path / "pid")
        with pytest.raises(KeyboardInterrupt), children.killed_on_error():
            raise KeyboardInterrupt
    assert result.result().code == -signal.SIGKILL
    assert is_dead(started)


def test_what_begins_after_a_kill_is_killed() -> None:
    children = Children()
    children.kill()
    assert children.run(shell("sleep 600")).code == -signal.SIGKILL


def test_children_that_end_by_themselves() -> None:
    children = Children()
    with children.killed_on_error():
        assert children.run(shell("echo out; echo err >&2; exit 3")) == FinishedProcess(3, "out\n", "err\n")
    assert not children.killed


def test_a_changed_environment_is_what_it_was_for_started_processes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def seen() -> str:
        return subprocess.run(["sh", "-c", "echo $OF_TEST"], capture_output=True, text=True, check=True).stdout.strip()

    monkeypatch.setenv("OF_TEST", "of Python")
    os.putenv("OF_TEST", "of C")
    with child_process.changed_environment({"OF_TEST": "changed"}):
        assert (os.environ["OF_TEST"], seen()) == ("changed", "changed")
    assert (os.environ["OF_TEST"], seen()) == ("of Python", "of C")
    with child_process.changed_environment({"OF_TEST_ALONE": "changed"}):
        pass
    assert "OF_TEST_ALONE" not in os.environ
