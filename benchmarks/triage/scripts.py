"""Sixteen scripts under `aoti-debug exec`, unmodified, and with a planted fault under `aoti-debug triage`.

The table also says how many commands a user types, and how long they take: from a script with a fault to the model
line, and to the repro of the launch, which is the command that the triage names next.

python -m benchmarks.triage.scripts [NAME]...
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from aoti_debug.runs.rundir.run_directory import open_run
from benchmarks import checkout
from benchmarks.markdown import table
from benchmarks.models import public_scripts, service_scripts
from benchmarks.models.public_scripts import PublicScript

SCRIPTS = (*public_scripts.SCRIPTS, *service_scripts.SCRIPTS)
_NO = "**no**"
_ENDS = {"fault": 11, "hang": 124}  # exit codes of repros: docs/repro.md, and of `timeout`; others: 0
_STALL = 5  # seconds after which a script hangs
_LONGEST = {"hang": 60}  # seconds after which a repro of such a finding is ended
_COLUMNS = (
    *("script", "same output", "launches", "finding", "kernel", "model line"),
    *("to the line: commands, s", "to the repro: commands, s", "alone, s", "`exec`, s"),
)


def main() -> int:
    """Prints the table; 1 if a script differs, or the wrong line is found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="all unless given")
    parser.add_argument("--jobs", type=int, default=1, help="scripts at the same time")
    options = parser.parse_args()
    chosen = [script for script in SCRIPTS if not options.names or script.name in options.names]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(options.jobs) as pool:
        rows = []
        for row in pool.map(lambda script: measured(script, Path(folder) / script.name), chosen):
            print(*row, sep="  ", file=sys.stderr, flush=True)
            rows.append(row)
    table(_COLUMNS, rows)
    return int(any(_NO in cell for row in rows for cell in row))


def measured(script: PublicScript, folder: Path) -> tuple[str, ...]:
    """A row of the table."""
    folder.mkdir()
    path = folder / "script.py"
    path.write_text(script.text)
    words = [path.name, *script.arguments]
    alone, alone_seconds = _run(folder, *words)
    option = ("--torch-compile",) if script.torch_compile else ()
    recorded, exec_seconds = _run(folder, "-m", "aoti_debug", "exec", *option, *words)
    is_same = (alone.stdout, alone.returncode) == (recorded.stdout, recorded.returncode)
    launches = len(open_run(base=folder / "aoti-debug" / "runs").launches) if is_same else 0
    path.write_text(script.planted)
    option = (*option, "--stall", str(_STALL)) if script.kind == "hang" else option
    triaged, line_seconds = _run(folder, "-m", "aoti_debug", "triage", "--json", *option, *words)
    found = json.loads(triaged.stdout) if triaged.stdout.startswith("{") else {}
    kernel, line = found.get("kernel") or "", (found.get("text") or "").strip()
    named = f"{found['line']}: {line}" if line else found.get("what") or triaged.stderr.strip().splitlines()[-1]
    repeated, repro_seconds = _repeated(folder, script.kind, *found.get("next", ()))
    return (
        script.name,
        _yes(is_same),
        str(launches) if launches else _NO,
        _expected(found.get("kind", "none"), found.get("kind") == script.kind),
        _expected(kernel, script.operator in kernel),
        _expected(f"`{named[:60]}`", line == script.guilty and Path(found["file"]).samefile(path)),
        f"1, {line_seconds:.0f}",
        f"2, {line_seconds + repro_seconds:.0f}" if repeated else _NO,
        f"{alone_seconds:.0f}",
        f"{exec_seconds:.0f}",
    )


def _repeated(folder: Path, kind: str, *commands: str) -> tuple[bool, float]:
    """Runs the first command that a finding names: the repro; returns whether it shows the same, and the seconds.

    Args:
        kind: of the finding.
    """
    program, *words = shlex.split(commands[0]) if commands else [""]
    if program != "python":
        return False, 0.0
    done, seconds = _run(folder, *words, longest=_LONGEST.get(kind, 0))
    return done.returncode == _ENDS.get(kind, 0), seconds


def _expected(text: str, is_expected: object) -> str:
    return text if is_expected else f"{_NO}: {text}"


def _yes(value: object) -> str:
    return "yes" if value else _NO


def _run(folder: Path, *words: str, longest: int = 0) -> tuple[subprocess.CompletedProcess[str], float]:
    """Runs Python in a folder; returns how it ended, and the seconds that it took.

    Args:
        longest: seconds after which it is killed; 0: never.
    """
    began = time.monotonic()
    done = subprocess.run(
        ["timeout", str(longest), sys.executable, *words],
        cwd=folder,
        env=checkout.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    return done, time.monotonic() - began


if __name__ == "__main__":
    sys.exit(main())
