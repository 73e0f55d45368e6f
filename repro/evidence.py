"""Runs a repro and reads its evidence file."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.files import json_data
from aoti_debug.base.machine.fork_server import python_process
from aoti_debug.base.machine.fork_server.python_process import PythonCommand
from aoti_debug.base.machine.processes import child_process
from aoti_debug.base.machine.processes.child_process import FinishedProcess
from aoti_debug.repro.templates.accesses import CodeLine, LoadedIndex

FAILED = "failed"


@dataclass(frozen=True)
class SeenAccess:
    """One wrong access, or the first of several that are alike.

    Attributes:
        kind: "load", "store", "read", "write", "atomic", "access", "uninitialised read", "overrun", "index",
            "assertion", "division", "race", "undefined behaviour"; "" where the tool does not say.
        what: in the tool's own words; the message of an assertion; what is wrong with a division.
        argument: of the launch; "" where the address belongs to none.
        parameter: the kernel's own name of it; "" where it is the same.
        element: from the argument's first element, in memory; None where it is none in particular.
        elements: of the argument, gaps included; for "index" the size of the dimension.
        beyond: elements outside: > 0 past the end, < 0 before the beginning.
        program: of a Triton kernel's grid.
        count: how many are alike.
        source: the line that it came from; its file is the script, or "SOURCE" for the C++ source in that.
        index: the integer tensor element that an out-of-bounds address, or a divisor, was computed from.
    """

    kind: str
    what: str
    argument: str
    parameter: str
    element: int | None
    elements: int
    beyond: int
    bytes: int
    program: tuple[int, int, int] | None
    count: int
    source: CodeLine | None
    index: LoadedIndex | None


@dataclass(frozen=True)
class Evidence:
    """The evidence file of a repro; docs/repro.md describes each key.

    Attributes:
        title: "0.3 cpp_fused_relu_1"
        mode: "jit", "cubin", "interpret", "native", "checked"; "operator" where no kernel is the launch's own.
        option: "repeat", "sanitize", "poison", "bench", "reduce"; "" for none.
        sanitize: "memcheck", "racecheck", "initcheck"; "" for none.
        outcome: "as recorded", "differs", "fault", "no fault", "failed".
        code: the script's exit code.
        what: one line: what the launch ended in, what was seen first, or why it failed; "" where all is well.
        lines: what it printed.
    """

    title: str
    mode: str
    option: str
    sanitize: str
    outcome: str
    code: int
    what: str
    accesses: tuple[SeenAccess, ...]
    lines: tuple[str, ...]


def gather(repro: Path, mode: Sequence[str] = (), timeout: float = 600.0) -> Evidence:
    """Runs a repro in a process of its own. Whatever goes wrong with that is evidence, too: it "failed".

    Args:
        repro: its folder, or the script.
        mode: options: `Mode.words`.
        timeout: seconds; then it is killed, with what it started.
    """
    script = repro / "repro.py" if repro.is_dir() else repro
    with tempfile.TemporaryDirectory(prefix="aoti-debug-evidence-") as folder:
        path = Path(folder) / "evidence.json"
        command = PythonCommand(script=str(script), arguments=(*mode, "--evidence", str(path)))
        try:
            with python_process.start(command, os.environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as child:
                ended = child_process.finished(child, timeout)
        except subprocess.TimeoutExpired:
            return _failed(script, mode, -signal.SIGKILL, f"no end within {timeout:g} s", "")
        except OSError as error:
            return _failed(script, mode, 1, f"it cannot be started: {error.strerror}", "")
        try:
            return json_data.parse(Evidence, path.read_bytes())
        except FileNotFoundError:
            return _failed(script, mode, ended.code, _ending(ended), ended.stdout)
        except (OSError, json_data.DamagedJsonError) as error:
            return _failed(script, mode, ended.code, f"its evidence cannot be read: {error}", ended.stdout)


def _ending(ended: FinishedProcess) -> str:
    last = next((line for line in reversed(ended.stdout.splitlines()) if line.strip()), "")
    return child_process.fatal_signal(ended.code) or last.strip() or child_process.describe_exit(ended.code)


def _failed(script: Path, mode: Sequence[str], code: int, what: str, said: str) -> Evidence:
    words = list(mode)
    backend = words[words.index("--backend") + 1] if "--backend" in words[:-1] else ""
    option = next((word.removeprefix("--") for word in words if word in _OPTIONS), "")
    return Evidence(
        title=script.parent.name,
        mode=backend,
        option=option,
        sanitize=_tool(words),
        outcome=FAILED,
        code=code,
        what=what,
        accesses=(),
        lines=tuple(said.splitlines()),
    )


_OPTIONS = ("--repeat", "--sanitize", "--poison", "--bench", "--reduce")


def _tool(words: Sequence[str]) -> str:
    if "--sanitize" not in words:
        return ""
    after = [*words, ""][words.index("--sanitize") + 1]
    return after if after and not after.startswith("-") else "memcheck"
