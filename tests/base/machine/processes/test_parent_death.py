from __future__ import annotations

import os
import subprocess
import sys

from tests.shell_children import is_dead

END_WITH = "from aoti_debug.base.machine.processes import parent_death; parent_death.end_with"


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
    assert (done.returncode, done.stdout) == (1, "")
