"""Looks for the races that are planted in wrappers of several streams, and for races in those that have none.

usage: python -m benchmarks.quality.races

The wrappers are those that torch generates for programs with streams of their own, each without one of its records or
waits (tests/instrument/wrapper/planted_races.py). Prints a Markdown table. Exits with 1 if a race is missed, if one is
found that there is not, or if its launches are not both named.
"""

from __future__ import annotations

import sys
import time

from benchmarks import markdown
from tests.instrument.wrapper import planted_races


def main() -> int:
    """Prints the table; returns the exit code."""
    rows: list[tuple[str, ...]] = []
    wrong = 0
    began = time.perf_counter()
    for name in planted_races.NAMES:
        found = planted_races.races_of(planted_races.clean(name))
        rows.append((name, "nothing", "0", str(len(found)), "0"))
        wrong += len(found)
    for planted in planted_races.planted():
        found = planted_races.races_of(planted.text)
        missed, false = len(planted.pairs - found), len(found - planted.pairs)
        named = str(len(planted.pairs & found))
        rows.append((planted.wrapper, planted.lacks, str(len(planted.pairs)), named, str(false)))
        wrong += missed + false
    seconds = time.perf_counter() - began
    markdown.table(("wrapper", "lacks", "races", "found, with both launches", "false"), rows)
    print(f"{len(rows)} wrappers in {seconds:.1f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
