"""Ten scripts under `aoti-debug exec`, unmodified, and with a planted fault under `aoti-debug triage`.

python -m benchmarks.triage.scripts [NAME]...
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from aoti_debug.runs.rundir.run_directory import open_run
from benchmarks import checkout
from benchmarks.markdown import table
from benchmarks.models.public_scripts import SCRIPTS, PublicScript

_COLUMNS = ("script", "same output", "launches", "exec", "planted", "found", "triage", "seconds: alone, exec, triage")


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
    return int(any("**no**" in row for row in rows))


def measured(script: PublicScript, folder: Path) -> tuple[str, ...]:
    """A row of the table."""
    folder.mkdir()
    path = folder / "script.py"
    path.write_text(script.text)
    words = [path.name, *script.arguments]
    alone, alone_seconds = _run(folder, *words)
    recorded, exec_seconds = _run(folder, "-m", "aoti_debug", "exec", *words)
    is_same = (alone.stdout, alone.returncode) == (recorded.stdout, recorded.returncode)
    launches = len(open_run(base=folder / "aoti-debug" / "runs").launches) if is_same else 0
    path.write_text(script.planted)
    triaged, triage_seconds = _run(folder, "-m", "aoti_debug", "triage", "--json", *words)
    found = json.loads(triaged.stdout) if triaged.stdout.startswith("{") else {}
    text = (found.get("text") or found.get("what") or triaged.stderr.strip().splitlines()[-1])[:60]
    origin = found.get("origin") or {}
    lines = {str(place.get("text")).strip() for place in (found, origin)}
    is_found = found.get("kind") == script.kind and (script.faulty.strip() in lines or script.kind == "fault")
    return (
        script.name,
        _yes(is_same),
        str(launches),
        _yes(launches > 0),
        script.kind,
        f"`{text}`",
        _yes(is_found),
        f"{alone_seconds:.0f}, {exec_seconds:.0f}, {triage_seconds:.0f}",
    )


def _yes(value: object) -> str:
    return "yes" if value else "**no**"


def _run(folder: Path, *words: str) -> tuple[subprocess.CompletedProcess[str], float]:
    """Runs Python in a folder; returns how it ended, and the seconds that it took."""
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env=checkout.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    return done, time.monotonic() - began


if __name__ == "__main__":
    sys.exit(main())
