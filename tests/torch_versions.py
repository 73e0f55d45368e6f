"""Runs the version suite with several versions of torch and writes the results into docs/versions.md.

`python -m tests.torch_versions 2.11.0 2.14.1`: the rows of other versions stay as they are.
"""

from __future__ import annotations

import argparse
import itertools
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "versions.md"
HEAD = "| torch | Python | passed | failed | skipped | seconds | date |\n|---|---|---|---|---|---|---|\n"


@dataclass(frozen=True)
class Row:
    """What the version suite said.

    Attributes:
        torch: the version that is installed, as `2.14.1+cu130`.
        failed: failures, and errors outside of tests.
        seconds: of the suite alone, without installing.
    """

    torch: str
    python: str
    passed: int
    failed: int
    skipped: int
    seconds: int
    date: str

    @property
    def text(self) -> str:
        cells = (self.torch, self.python, self.passed, self.failed, self.skipped, self.seconds, self.date)
        return "| " + " | ".join(map(str, cells)) + " |\n"


def main(arguments: Sequence[str]) -> int:
    """Returns 1 if a test failed with one of the versions, or a version had no result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("versions", nargs="+", help="like 2.14.1")
    failed = []
    for version in parser.parse_args(arguments).versions:
        row = measured(version)
        if row is not None:
            PAGE.write_text(with_row(PAGE.read_text(), row))
            print(row.text, end="", flush=True)
        if row is None or row.failed:
            failed.append(version)
    if failed:
        print(f"not green: torch {', '.join(failed)}", file=sys.stderr)
    return bool(failed)


def measured(version: str) -> Row | None:
    """Runs the suite in an environment of its own, which is removed if it was made here; None if it did not end."""
    environment = ROOT / f".venv-{version}"
    was_there = environment.exists()
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results.xml"
        done = subprocess.run(
            ["make", "version", f"TORCH={version}", f"PYTEST_ARGS=-q --junitxml={results}"], cwd=ROOT, check=False
        )
        try:
            return row_of(results, *_versions(environment / "bin" / "python")) if results.exists() else None
        finally:
            print(f"torch {version}: make ended with {done.returncode}", flush=True)
            if not was_there:
                shutil.rmtree(environment, ignore_errors=True)


def row_of(results: Path, torch: str, python: str) -> Row:
    """The row of a run's JUnit XML."""
    suite = next(ElementTree.parse(results).iter("testsuite"))
    tests, errors, failures, skipped = (int(suite.attrib[n]) for n in ("tests", "errors", "failures", "skipped"))
    failed = errors + failures
    seconds = round(float(suite.attrib["time"]))
    date = time.strftime("%Y-%m-%d", time.gmtime())
    return Row(torch, python, tests - failed - skipped, failed, skipped, seconds, date)


def with_row(page: str, row: Row) -> str:
    """The page with the row in place of that of the same version, build left aside; rows are in the order of versions.

    Raises:
        ValueError: the page has no such table.
    """
    rows = rows_of(page)
    changed = rows | {release_of(row.torch): row.text}
    return page.replace(HEAD + "".join(rows.values()), HEAD + "".join(changed[release] for release in sorted(changed)))


def rows_of(page: str) -> dict[tuple[int, ...], str]:
    """The lines of the page's table by version, as (2, 14, 1).

    Raises:
        ValueError: the page has no such table.
    """
    _, head, after = page.partition(HEAD)
    if not head:
        raise ValueError(f"{PAGE} has no table of results")
    lines = itertools.takewhile(lambda line: line.startswith("|"), after.splitlines(keepends=True))
    return {release_of(line.split("|")[1].strip()): line for line in lines}


def release_of(version: str) -> tuple[int, ...]:
    """The numbers of a version, as (2, 14, 1) of "2.14.1+cu130"."""
    return tuple(map(int, version.partition("+")[0].split(".")))


def _versions(python: Path) -> tuple[str, str]:
    code = "import platform, torch; print(torch.__version__, platform.python_version())"
    torch, version = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    return torch, version


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
