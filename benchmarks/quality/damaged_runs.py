"""Cuts and damages a run directory at random bytes, and looks at what commands say of it.

usage: python -m benchmarks.quality.damaged_runs [--points N] [--seed N]

The files of a run that died (tests/damaged_runs.py) are changed one at a time, at a random byte: cut off, zero from
there on, a byte flipped or zero, 512 bytes zero. `show`, `show --json`, `show LAUNCH` and `report` then have to show
what is left, or to end with one error line, one hint and an exit code from 2 to 6. Of a journal that is cut off nothing
may be made up: no launch that there was not, and no other is blamed.

Prints a Markdown table, then what was wrong. Exits with 1 if there is something.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from itertools import islice
from pathlib import Path

from benchmarks import markdown
from tests.damaged_runs import Change, DamagedRun, complete_run


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=10000, metavar="N", help="how many bytes are changed")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the random bytes")
    arguments = parser.parse_args()
    began = time.monotonic()
    tried: Counter[tuple[str, Change]] = Counter()
    problems: list[str] = []
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as temporary:
        damaged = DamagedRun(complete_run(Path(temporary) / "whole"), Path(temporary))
        for point in islice(damaged.points(arguments.seed), arguments.points):
            tried[point.file, point.change] += 1
            problems += damaged.problems(point)
    files = sorted({file for file, _ in tried})
    rows = [[f"`{file}`", *(str(tried[file, change]) for change in Change)] for file in files]
    markdown.table(["file", *(change.value for change in Change)], rows)
    print(f"{sum(tried.values())} points, {len(problems)} problems, {time.monotonic() - began:.0f} s")
    for problem in problems:
        print(f"\n{problem}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
