"""Looks for the races that are planted in wrappers of several streams, and for races in those that have none.

usage: python -m benchmarks.quality.races [--programs N]

* The wrappers that torch generates for programs with streams of their own, each without one of its records or waits
  (tests/instrument/wrapper/planted_races.py).
* A race of each of 24 kinds; where it is not certain, it has to be named as one that may be (race_kinds.py beside it).
* Programs of launches on three streams that are put together at random: N without a race, and each of these without one
  of its waits; their races are known by the paths between launches.

Prints Markdown tables. Exits with 1 if a race is missed, if one is found that there is not, or if its launches are not
both named.
"""

from __future__ import annotations

import argparse
import sys
import time

from benchmarks import markdown
from tests.instrument.wrapper import planted_races, race_kinds


def wrappers_of_torch() -> int:
    """Prints the table of the wrappers of torch; returns how many races are missed or are none."""
    rows: list[tuple[str, ...]] = []
    wrong = 0
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
    markdown.table(("wrapper", "lacks", "races", "found, with both launches", "false"), rows)
    return wrong


def each_kind() -> int:
    """Prints the table of the kinds; returns how many races are missed or are none."""
    rows: list[tuple[str, ...]] = []
    wrong = 0
    for kind in race_kinds.kinds():
        found = race_kinds.found(kind.text, certain=kind.certain)
        false = len(race_kinds.found(kind.text, certain=True) - kind.pairs) if kind.certain else 0
        named = len(kind.pairs & found)
        rows.append((kind.name, str(len(kind.pairs)), f"{named}{'' if kind.certain else ', as may be'}", str(false)))
        wrong += len(kind.pairs) - named + false
    markdown.table(("race", "races", "found, with both launches", "false"), rows)
    return wrong


def programs(count: int) -> int:
    """Prints a line on the programs; returns how many have other races than are found."""
    clean = lacking = racing = wrong = 0
    for seed in range(count):
        made = race_kinds.program(seed)
        clean += 1
        wrong += bool(planted_races.order_of(made.wrapper()).races)
        for less in race_kinds.without_a_wait(made):
            lacking += 1
            racing += bool(less.races())
            wrong += race_kinds.found_in(less) != less.races()
    print(f"{clean} programs without a race; {lacking} that lack a wait, of which {racing} have a race; {wrong} wrong")
    return wrong


def main() -> int:
    """Prints the tables; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=int, default=50)
    chosen = parser.parse_args()
    began = time.perf_counter()
    wrong = wrappers_of_torch() + each_kind() + programs(chosen.programs)
    print(f"{time.perf_counter() - began:.1f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
