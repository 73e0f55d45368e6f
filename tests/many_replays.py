"""Runs many repros in one fresh process that cannot import aoti_debug: torch and triton are imported once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

# Everything that a script and its children print goes to the file that is named first.
DRIVER = """
import json, os, runpy, sys, time, traceback
sys.modules["aoti_debug"] = None
results, said = os.fdopen(os.dup(1), "w"), open(sys.argv[1], "r+b", buffering=0)
os.dup2(said.fileno(), 1)
os.dup2(said.fileno(), 2)
for script, options in json.load(sys.stdin):
    for name in [n for n in sys.modules if n.partition(".")[0] == "replay"]:
        del sys.modules[name]
    said.seek(0)
    said.truncate()
    path, sys.argv = list(sys.path), [script, *options]
    began, code = time.monotonic(), "it did not exit"
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as end:
        code = end.code
    except Exception:
        code = traceback.format_exc()
    sys.path[:] = path
    sys.stdout.flush()
    sys.stderr.flush()
    said.seek(0)
    text = said.read().decode(errors="replace")
    print(json.dumps([script, options, code, text, time.monotonic() - began]), file=results, flush=True)
"""


@dataclass(frozen=True)
class Replayed:
    """
    Attributes:
        name: of the folder.
        code: what the script exited with; the text of an exception that left it.
    """

    name: str
    options: tuple[str, ...]
    code: int | str
    said: str
    seconds: float


def replay_many(jobs: Iterable[tuple[Path, Sequence[str]]], timeout: float = 600.0) -> list[Replayed]:
    """What each folder's script did with its options. One that takes the process with it is told by its exit code.

    Args:
        timeout: seconds for all.
    """
    waiting = [(str(folder / "repro.py"), list(options)) for folder, options in jobs]
    found: list[Replayed] = []
    deadline = time.monotonic() + timeout
    while waiting:
        ended, said = _run(waiting, deadline - time.monotonic())
        found += ended
        waiting = waiting[len(ended) :]
        if waiting:
            script, options = waiting.pop(0)
            found.append(Replayed(Path(script).parent.name, tuple(options), "took the process with it", said, 0.0))
    return found


def _run(jobs: list[tuple[str, list[str]]], timeout: float) -> tuple[list[Replayed], str]:
    """Those that one process has done, and how it ended with what the next one printed."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "AOTI_DEBUG"))}
    with tempfile.NamedTemporaryFile() as said:
        try:
            done = subprocess.run(
                [sys.executable, "-I", "-c", DRIVER, said.name],
                input=json.dumps(jobs).encode(),
                cwd="/",
                env=environment,
                stdout=subprocess.PIPE,
                check=False,
                timeout=max(timeout, 1.0),
            )
            out, how = done.stdout, f"exit code {done.returncode}"
        except subprocess.TimeoutExpired as expired:
            out, how = expired.stdout or b"", "no end in time"
        last = Path(said.name).read_text(errors="replace")
    lines = [json.loads(line) for line in out.splitlines()]
    found = [Replayed(Path(s).parent.name, tuple(o), code, text, seconds) for s, o, code, text, seconds in lines]
    return found, f"{how}\n{last[-4000:]}"
