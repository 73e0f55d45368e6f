"""Says what in a folder of triages cannot be read: `python torture_inspection.py FOLDER`, one line each.

A run or a triage that was cut short may be missing or unfinished; one that is there must be readable.
"""

from __future__ import annotations

import sys
from pathlib import Path

from aoti_debug.base.errors import AotiDebugError
from aoti_debug.base.machine.files.stamped_directories import LATEST
from aoti_debug.runs.rundir import run_directory
from aoti_debug.triage.results import triage_directory


def unreadable(base: Path) -> list[str]:
    found = []
    for record in sorted(base.glob(f"*/{triage_directory.NAME}")):
        try:
            triage_directory.open_triage(record.parent)
        except AotiDebugError as error:
            found.append(str(error))
    for runs in sorted(base.glob(f"*/{triage_directory.RUNS}")):
        for name in run_directory.runs(runs):
            try:
                run = run_directory.open_run(runs / name)
                _ = [launch.args for launch in run.launches]
            except AotiDebugError as error:
                found.append(str(error))
    latest = base / LATEST
    if latest.is_symlink() and not (latest / triage_directory.NAME).is_file():
        found.append(f"{latest} leads to no finished triage")
    return found


if __name__ == "__main__":
    print(*unreadable(Path(sys.argv[1])), sep="\n")
