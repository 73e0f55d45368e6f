"""Commands that end with the process that started them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from aoti_debug.base.machine.processes import tied_process
from aoti_debug.base.machine.processes.child_process import FinishedProcess
from tests.shell_children import WITH_CHILD, is_dead, shell, wait_for

STARTER = """
import sys
from aoti_debug.base.machine.processes import tied_process
tied_process.run(["sh", "-c", sys.argv[1]], timeout=600)
"""


def test_output_exit_code_and_environment() -> None:
    done = tied_process.run(shell("echo $WORD; echo bad >&2; exit 3"), timeout=60, environment={"WORD": "good"})
    assert done == FinishedProcess(3, "good\n", "bad\n")
    merged = tied_process.run(shell("echo good; echo bad >&2"), timeout=60, stderr=subprocess.STDOUT)
    assert merged == FinishedProcess(0, "good\nbad\n", "")
    assert tied_process.run(shell("kill -SEGV $$"), timeout=60).code == -signal.SIGSEGV
    with pytest.raises(subprocess.TimeoutExpired):
        tied_process.run(shell("sleep 600"), timeout=0.3)


def test_the_command_has_no_child_and_no_descriptor_of_ours() -> None:
    code = "import os; print(sorted(os.listdir('/proc/self/fd'))); os.wait()"
    done = tied_process.run([sys.executable, "-c", code], timeout=60)
    assert done.stdout == "['0', '1', '2', '3']\n"  # 3: that of the listing
    assert done.stderr.endswith("ChildProcessError: [Errno 10] No child processes\n")


def test_no_such_command() -> None:
    done = tied_process.run(["/no/such/command"], timeout=60)
    assert (done.code, done.stderr) == (1, "/no/such/command: No such file or directory\n")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT], ids=lambda n: n.name)
def test_it_and_what_it_started_end_with_the_parent(number: signal.Signals, tmp_path: Path) -> None:
    both = f"echo $$ > {tmp_path / 'own'}; {WITH_CHILD.format(pid=tmp_path / 'pid')}"
    parent = subprocess.Popen([sys.executable, "-c", STARTER, both], stderr=subprocess.DEVNULL)
    started, own = wait_for(tmp_path / "pid"), wait_for(tmp_path / "own")
    os.kill(parent.pid, number)
    parent.wait()
    assert is_dead(own)
    assert is_dead(started)


END_WITH = "from aoti_debug.base.machine.processes import tied_process; tied_process.end_with"


def test_it_ends_with_its_parent() -> None:
    child = f"import time; {END_WITH}(int(__import__('sys').argv[1])); print('here', flush=True); time.sleep(60)"
    parent = f"""
import os, signal, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {child!r}, str(os.getpid())], stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", parent], capture_output=True, text=True, check=False)
    assert is_dead(int(done.stdout))


def test_its_parent_has_ended_before() -> None:
    code = f"{END_WITH}({os.getpid() + 1}); print('here')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "")
