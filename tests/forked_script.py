"""Runs a script in a process forked from one that has imported torch, or in a new one where none serves."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from aoti_debug.base.machine.processes import python_process
from aoti_debug.base.machine.processes.python_process import PythonCommand


def run(script: Path, *arguments: Path, variables: Mapping[str, str] | None = None) -> None:
    """Runs it to its end, which has to be a good one.

    Args:
        variables: further environment variables.
    """
    command = PythonCommand(script=str(script), arguments=tuple(map(str, arguments)))
    environment = {**os.environ, **(variables or {})}
    with python_process.start(command, environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as child:
        _, said = child.communicate()
        assert child.wait() == 0, said.decode()
