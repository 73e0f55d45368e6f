"""The peaks of this machine, measured by a process of its own."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from aoti_debug.base.errors import TargetError
from aoti_debug.base.machine.files import json_data
from aoti_debug.base.machine.fork_server import python_process
from aoti_debug.base.machine.fork_server.python_process import PythonCommand
from aoti_debug.base.machine.processes import child_process
from aoti_debug.views.profile.roofline import Peaks

WORKER = "aoti_debug.views.profile.measure_peaks"
_LOG = "peaks.log"
_OUTPUT = "peaks.json"


def machine_peaks(device: str, folder: Path, reached: float) -> Peaks:
    """The peaks of this machine; they are measured if they were not before, or are below what a launch has reached.

    Args:
        device: "cpu" or "cuda".
        folder: for the answer and the output of the process.
        reached: operations per second in float32; 0.0 if nothing is known.

    Raises:
        TargetError: the process failed.
    """
    log, output = folder / _LOG, folder / _OUTPUT
    with log.open("ab") as file:
        child = python_process.start(
            PythonCommand(WORKER, arguments=(device, str(output), str(reached))),
            os.environ,
            stdout=file.fileno(),
            stderr=subprocess.STDOUT,
        )
        with child:
            code = child.wait()
    if code != 0:
        raise TargetError(
            f"what this machine can do was not measured: {child_process.describe_end(code, log)}",
            hint=f"the output of the process is in {log}",
        )
    return json_data.parse(Peaks, output.read_text())
