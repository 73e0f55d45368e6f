"""Runs a script in a process of its own, and reads whether it shows its finding."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

from aoti_debug.base import wording
from aoti_debug.base.machine.processes import child_process, tied_process
from aoti_debug.triage.minify.scripts.script_results import ScriptTrial
from aoti_debug.triage.minify.scripts.script_text import OBSERVED

COMPILING = 1800.0  # seconds that compiling a part may take
_LINE = re.compile(re.escape(OBSERVED) + r"(?P<what>.*?)(, in (?P<shown>\d+) of \d+ runs)?; expected: .*")


def run_script(path: Path, trial: ScriptTrial, stall: float) -> ScriptTrial:
    """The trial with what running its script shows.

    Args:
        stall: seconds that one of its runs may take.
    """
    most = COMPILING + (trial.runs + 1) * stall  # eager runs it once more
    command, variables = [sys.executable, str(path)], {"TORCHINDUCTOR_COMPILE_THREADS": "1", **os.environ}
    began = time.monotonic()
    try:
        done = tied_process.run(command, timeout=most, environment=variables)
    except subprocess.TimeoutExpired:
        return replace(trial, failure=f"no end within {wording.duration(most)}", seconds=most)
    seconds = time.monotonic() - began
    if done.code == 0:
        return replace(trial, seconds=seconds)
    last = done.stderr.strip().rpartition("\n")[2]
    match = _LINE.fullmatch(last)
    if match is None:
        return replace(
            trial, failure=wording.first_line(last) or child_process.describe_exit(done.code), seconds=seconds
        )
    return replace(trial, observed=match["what"], shown=int(match["shown"] or 1), seconds=seconds)


def is_like(observed: str, first: str) -> bool:
    """True if two observations are of the same kind: both a signal, the same exception, both numbers."""
    return _kind(observed) == _kind(first)


def _kind(observed: str) -> str:
    if re.fullmatch(r"SIG[A-Z]+", observed):
        return "signal"
    exception = re.match(r"[\w.]*(Error|Exception)\b", observed)
    if exception is not None:
        return exception[0]
    return "no end" if observed.startswith("no end within") else ""
