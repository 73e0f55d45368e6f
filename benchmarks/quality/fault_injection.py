"""Has every call of the runtime to the system fail in turn, and looks at what the model and the run notice of it.

usage: python -m benchmarks.quality.fault_injection [--only WORD ...] [--step N] [--memory-step N]
    [--cut-step N] [--folder DIR]

A host calls a package in a process of its own for each point (tests/runtime_shims/fault_injection.py). One call fails:
open, write, mmap, std::thread, new, …, with each error that it may end with; or one and all those after it that may end
with the same error, as on a full disk. A point is broken if an output has other bits, the process crashes or hangs,
memory or descriptors grow, the run cannot be read, holds what did not happen, or lacks something that no note names, a
temporary file or memory in /dev/shm is left, or the next run of the process is not complete.

The journal of each setting is then cut at each N-th byte (--cut-step), as a copy may be, and as a process leaves it
that is killed there: a reader must find the records that are complete, and no others.

Prints a Markdown table, then the broken points. Exits with 1 if there is one.
"""

from __future__ import annotations

import argparse
import errno
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks import markdown
from tests import cut_journals
from tests.runtime_shims import fault_injection
from tests.runtime_shims.fault_injection import ERRORS, MEMORY, SETTINGS, SYSTEM, Fault, Injection, Point, Setting

LASTING = (errno.ENOSPC, errno.EACCES, errno.EIO, errno.EMFILE, errno.ENOMEM)
FAULTS: Mapping[str, Sequence[Fault]] = {
    "one call": [Fault(SYSTEM, choice) for choice in range(ERRORS)],
    "it and those after it": [Fault(SYSTEM, only=error, lasts=True) for error in LASTING],
    "one allocation": [Fault(MEMORY)],
    "it and all after it": [Fault(MEMORY, lasts=True)],
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", metavar="WORD", help="settings whose names contain one of these")
    parser.add_argument("--step", type=int, default=1, metavar="N", help="only each N-th call fails")
    parser.add_argument("--memory-step", type=int, default=1, metavar="N", help="only each N-th allocation fails")
    parser.add_argument("--cut-step", type=int, default=1, metavar="N", help="the journal is cut at each N-th byte")
    parser.add_argument("--folder", type=Path, help="where the compiled objects stay")
    arguments = parser.parse_args()
    broken: list[Point] = []
    rows: list[list[str]] = []
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        built = {}
        for setting in SETTINGS.values():
            if arguments.only and not any(word in setting.name for word in arguments.only):
                continue
            if setting.has_device not in built:
                folder = work / f"device{setting.has_device:d}"
                folder.mkdir()
                kept = arguments.folder or work / "objects"
                built[setting.has_device] = fault_injection.build(folder, kept, device=setting.has_device)
            rows.append(
                _row(Injection(built[setting.has_device], setting, work / "points"), setting, arguments, broken)
            )
            print(f"{setting.name}: {rows[-1][1:]}", file=sys.stderr, flush=True)
    markdown.table(["the runtime records", *FAULTS, "journal cut", "broken"], rows)
    print(f"{time.monotonic() - began:.0f} s")
    for point in broken:
        print(f"\n{point.setting}: {point.call} number {point.number} in {point.place}: {point.error}")
        for problem in point.problems:
            print(f"  {problem}")
    return 1 if broken else 0


def _step(fault: Fault, arguments: argparse.Namespace) -> int:
    return int(arguments.memory_step if fault.kind == MEMORY else arguments.step)


def _row(injection: Injection, setting: Setting, arguments: argparse.Namespace, broken: list[Point]) -> list[str]:
    counts, bad = [], 0
    for faults in FAULTS.values():
        points = [point for fault in faults for point in injection.points(fault, step=_step(fault, arguments))]
        counts.append(str(len(points)))
        worse = [point for point in points if point.problems]
        bad += len(worse)
        broken += worse
    cuts, worse_cuts = _cut(injection, arguments.cut_step)
    for problem in worse_cuts:
        print(f"{setting.name}: the journal, {problem}", file=sys.stderr)
    return [setting.name, *counts, str(cuts), str(bad + len(worse_cuts))]


def _cut(injection: Injection, step: int) -> tuple[int, list[str]]:
    """How often the journal of a run was cut, and what was wrong then."""
    path = injection.folder / "journal.bin"
    data = injection.journal
    path.write_bytes(data)
    whole = cut_journals.parts(path)
    cuts = range(0, max(part.end for part in whole) + 1, step)
    found = [
        f"killed: {killed}, byte {cut}: {problem}"
        for killed in (False, True)
        for cut in cuts
        if (problem := cut_journals.problem(path, data, whole, cut, killed=killed))
    ]
    return 2 * len(cuts), found


if __name__ == "__main__":
    sys.exit(main())
