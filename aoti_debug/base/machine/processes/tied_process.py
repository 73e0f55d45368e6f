"""Processes that end with their parent, however it ends: also when it is killed."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from aoti_debug.base.machine.processes import child_process
from aoti_debug.base.machine.processes.child_process import Child, FinishedProcess

_PR_SET_PDEATHSIG = 1
_LAUNCHER = Path(__file__).with_name("end_with_parent.py")


def end_with(parent: int) -> None:
    """Makes the kernel kill this process when its parent ends; ends it at once if that was another process."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def run(
    command: Sequence[str],
    *,
    timeout: float,
    stderr: int = subprocess.PIPE,
    environment: Mapping[str, str] | None = None,
) -> FinishedProcess:
    """Runs a command to its end and captures its output.

    If this process ends first, even by SIGKILL, the command and all its descendants are killed at once.

    Args:
        timeout: seconds, after which it is killed with its descendants.
        stderr: `subprocess.STDOUT` to merge it into `FinishedProcess.stdout`.
        environment: all variables of the command; None to inherit those of this process.

    Raises:
        OSError: no process can be started.
        subprocess.TimeoutExpired: it was killed.
    """
    reading, writing = os.pipe()
    try:
        launcher = [sys.executable, "-I", "-S", str(_LAUNCHER), str(reading)]
        with Child(
            [*launcher, *command],
            stdout=subprocess.PIPE,
            stderr=stderr,
            environment=environment,
            pass_fds=(reading,),
        ) as child:
            return child_process.finished(child, timeout)
    finally:
        os.close(reading)
        os.close(writing)
