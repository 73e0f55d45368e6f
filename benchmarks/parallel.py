"""Runs cases some at a time, and keeps what became of each in a file, so that a run that is cut off goes on."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any


def rows_of(results: Path) -> list[dict[str, Any]]:
    """Returns what a file of JSON lines holds: the last line of each name."""
    lines = results.read_text().splitlines() if results.exists() else []
    return list({row["name"]: row for row in map(json.loads, lines)}.values())


def appended(
    results: Path, names: Sequence[str], run: Callable[[str, int], dict[str, Any]], jobs: int
) -> list[dict[str, Any]]:
    """Runs the cases that a file does not hold yet, or with an error; appends a line for each, and returns all rows.

    Args:
        run: takes the name of a case and its number; returns what is kept beside its name and its seconds.
        jobs: cases at a time.
    """
    known = {row["name"] for row in rows_of(results) if "error" not in row}
    missing = [name for name in names if name not in known]

    def timed(name: str, job: int) -> dict[str, Any]:
        began = time.monotonic()
        found = run(name, job)
        return {"name": name, **found, "seconds": round(time.monotonic() - began, 1)}

    with ThreadPoolExecutor(jobs) as pool:
        for done in as_completed([pool.submit(timed, name, job) for job, name in enumerate(missing)]):
            row = json.dumps(done.result())
            with results.open("a") as file:
                file.write(row + "\n")
            print(row[:300], file=sys.stderr, flush=True)
    return rows_of(results)
