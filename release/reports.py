"""Makes the three reports that the documentation site shows, from the programs in examples.

usage: python -m release.reports OUTPUT

What is there already, and newer than the examples, is kept.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples"
OWN = "--inductor-config assert_indirect_indexing=false"
WRONG = "--import examples.wrong_lowering"
REPORTS = {
    "fault": (
        "A fault: an index far past the end of a table",
        ("python examples/faulty.py faulty.pt2", f"aoti-debug triage faulty.pt2 {OWN}"),
        "aoti-debug/triages/*/report/index.html",
    ),
    "nan": (
        "NaN: zero divided by zero in one row",
        ("python examples/nan.py nan.pt2", "aoti-debug triage nan.pt2"),
        "aoti-debug/triages/*/report/index.html",
    ),
    "diff": (
        "A difference: one program, built by a right and by a wrong compiler",
        (
            "python examples/wrong_lowering.py lowering.pt2",
            "aoti-debug build lowering.pt2 -o right.pt2",
            f"aoti-debug build lowering.pt2 {WRONG} -o wrong.pt2",
            "aoti-debug diff right.pt2 wrong.pt2 --level 1 --report",
        ),
        "aoti-debug/diffs/*/report/index.html",
    ),
}


def make(output: Path) -> None:
    """Writes NAME.html of each, and `reports.json` with what was typed.

    Raises:
        RuntimeError: a command failed, or made no page.
    """
    output.mkdir(parents=True, exist_ok=True)
    changed = max(path.stat().st_mtime for path in EXAMPLES.glob("*.py"))
    for name, (_, commands, pattern) in REPORTS.items():
        target = output / f"{name}.html"
        if target.is_file() and target.stat().st_mtime > changed:
            continue
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(EXAMPLES, Path(folder, "examples"), ignore=shutil.ignore_patterns("out", "__pycache__"))
            for command in commands:
                print(f"$ {command}", flush=True)
                _call(command, Path(folder))
            made = {path.resolve() for path in Path(folder).glob(pattern)}  # `latest` leads to one of them
            if len(made) != 1:
                raise RuntimeError(f"{commands[-1]} made {len(made)} pages")
            shutil.copyfile(made.pop(), target)
    about = {
        name: {"title": title, "typed": "\n".join(f"$ {c}" for c in typed)}
        for name, (title, typed, _) in REPORTS.items()
    }
    (output / "reports.json").write_text(json.dumps(about, indent=1))


def _call(command: str, folder: Path) -> None:
    """Calls a command line of `python` or `aoti-debug`; a finding is no failure."""
    program, *words = command.split()
    start = [sys.executable] if program == "python" else [sys.executable, "-m", "aoti_debug"]
    path = os.pathsep.join([str(ROOT), str(folder)])
    done = subprocess.run([*start, *words], cwd=folder, env={**os.environ, "PYTHONPATH": path}, check=False)
    if done.returncode not in (0, 1):
        raise RuntimeError(f"{command}: exit code {done.returncode}")


if __name__ == "__main__":
    make(Path(sys.argv[1]).absolute())
