"""Has every call of the runtime to the system fail in turn, and looks at what the model and the run notice of it.

usage: python -m benchmarks.quality.fault_injection [--only WORD ...] [--step N] [--memory-step N] [--driver-step N]
    [--cut-step N] [--short-step N] [--minutes N] [--jobs N] [--folder DIR]

A C++ host that has loaded a package forks for each point (tests/runtime_shims/fault_injection.py): there is no Python
and no torch in it. One call fails: open, write, mmap, std::thread, new, cuMemAlloc, …, with each error that it may end
with; or one and all those after it that may end with the same error, as on a full disk. A point is broken if an output
has other bits, the process crashes or hangs, memory or descriptors grow, the run cannot be read, holds what did not
happen, or lacks something that no note names, a temporary file or memory in /dev/shm is left, or the next run of the
process is not complete.

A write of the summaries and one of a tensor end at each N-th of their bytes (--short-step). The journal of each setting
is cut at each N-th byte (--cut-step), as a copy may be, and as a process leaves it that is killed there, and one block
of one journal at each of its bytes: a reader must find the records that are complete, and no others.

Prints Markdown tables, by setting and by call, then the broken points. Exits with 1 if there is one.
"""

from __future__ import annotations

import argparse
import errno
import math
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from aoti_debug.base import abi
from benchmarks import markdown
from tests import cut_journals
from tests.runtime_shims import fault_injection
from tests.runtime_shims.fault_injection import (
    DEVICE,
    DRIVER_ERRORS,
    ERRORS,
    MEMORY,
    SETTINGS,
    SHORT,
    SYSTEM,
    Built,
    Fault,
    Injection,
    Machine,
    Point,
    Setting,
)

LASTING = (errno.ENOSPC, errno.EACCES, errno.EIO, errno.EMFILE, errno.ENOMEM)
FAULTS: Mapping[str, Sequence[Fault]] = {
    "one call": [Fault(SYSTEM, choice) for choice in range(ERRORS)],
    "it and those after it": [Fault(SYSTEM, only=error, lasts=True) for error in LASTING],
    "one allocation": [Fault(MEMORY)],
    "it and all after it": [Fault(MEMORY, lasts=True)],
}
DRIVER_FAULTS: Mapping[str, Sequence[Fault]] = {
    "one call": [Fault(DEVICE, choice) for choice in range(DRIVER_ERRORS)],
    "it and those after it": [Fault(DEVICE, choice, lasts=True) for choice in range(DRIVER_ERRORS)],
}
SHORT_WRITES, CUT = "short write", "journal cut"
COLUMNS = (*FAULTS, SHORT_WRITES, CUT)
WRITTEN = ("hashes, summaries", "tensors")  # settings whose writes end at each byte
EACH_BYTE = "names"  # the setting whose journal has a block that is cut at each byte


@dataclass(frozen=True)
class Task:
    """Points of one kind, of one setting."""

    setting: Setting
    column: str
    fault: Fault | None = None  # None: the journal is cut, or writes are cut short


@dataclass(frozen=True)
class Done:
    """The points of a task.

    Attributes:
        calls: how many points there are, by the name of the call that failed.
        journal: what was wrong with journals that were cut.
    """

    task: Task
    calls: Mapping[str, int]
    broken: Sequence[Point] = ()
    journal: Sequence[str] = ()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", metavar="WORD", help="settings whose names contain one of these")
    parser.add_argument("--step", type=int, default=1, metavar="N", help="only each N-th call fails")
    parser.add_argument("--memory-step", type=int, default=1, metavar="N", help="only each N-th allocation fails")
    parser.add_argument(
        "--driver-step", type=int, default=1, metavar="N", help="only each N-th call of the driver fails"
    )
    parser.add_argument("--cut-step", type=int, default=1, metavar="N", help="the journal is cut at each N-th byte")
    parser.add_argument("--short-step", type=int, default=1, metavar="N", help="a write ends at each N-th byte")
    parser.add_argument("--minutes", type=float, default=math.inf, metavar="N", help="no point begins after them")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), metavar="N", help="hosts at a time")
    parser.add_argument("--folder", type=Path, help="where the runs go: in memory, unless it says something else")
    arguments = parser.parse_args()
    began = time.monotonic()
    memory = Path("/dev/shm")
    parent = arguments.folder or (memory if memory.is_dir() else None)
    with tempfile.TemporaryDirectory(dir=parent) as temporary:
        settings = [
            setting
            for setting in SETTINGS.values()
            if not arguments.only or any(word in setting.name for word in arguments.only)
        ]
        built = _build(Path(temporary), settings)
        tasks = [task for setting in settings for task in _tasks(setting)]
        random.Random(0).shuffle(tasks)  # where time is short, some of each setting
        arguments.deadline = time.monotonic() + 60 * arguments.minutes
        found: list[Done] = []
        with ProcessPoolExecutor(arguments.jobs) as pool:
            pending = [
                pool.submit(_work, task, built[task.setting.machine], Path(temporary) / f"points{number}", arguments)
                for number, task in enumerate(tasks)
            ]
            for each in pending:
                found.append(each.result())
                done = found[-1]
                tried, bad = sum(done.calls.values()), len(done.broken) + len(done.journal)
                print(
                    f"{time.monotonic() - began:.0f} s: {done.task.setting.name}, {done.task.column}: "
                    f"{tried}, {bad} broken",
                    file=sys.stderr,
                    flush=True,
                )
    return _report(found, time.monotonic() - began)


def _build(folder: Path, settings: Sequence[Setting]) -> dict[Machine, Built]:
    built = {}
    for machine in dict.fromkeys(setting.machine for setting in settings):
        made = folder / machine.name
        made.mkdir()
        built[machine] = fault_injection.build(made, machine)
    return built


def _tasks(setting: Setting) -> Iterator[Task]:
    faults = DRIVER_FAULTS if setting.machine is Machine.DRIVER else FAULTS
    for column, of_column in faults.items():
        for fault in of_column:
            yield Task(setting, column, fault)
    if setting.name in WRITTEN:
        yield Task(setting, SHORT_WRITES)
    if setting.machine is not Machine.DRIVER:
        yield Task(setting, CUT)


def _work(task: Task, built: Built, folder: Path, arguments: argparse.Namespace) -> Done:
    injection = Injection(built, task.setting, folder)
    try:
        if task.column == CUT:
            return _cut(task, injection, arguments)
        if task.fault is not None:
            steps = {SYSTEM: arguments.step, MEMORY: arguments.memory_step, DEVICE: arguments.driver_step}
            return _done(task, injection.points(task.fault, step=steps[task.fault.kind]), arguments.deadline)
        return _done(task, _short_writes(injection, arguments.short_step), arguments.deadline)
    finally:
        shutil.rmtree(folder)


def _done(task: Task, points: Iterator[Point], deadline: float) -> Done:
    calls: Counter[str] = Counter()
    broken = []
    for point in points:
        if time.monotonic() > deadline:
            break
        calls[point.call] += 1
        if point.problems:
            broken.append(point)
    return Done(task, calls, broken)


def _short_writes(injection: Injection, step: int) -> Iterator[Point]:
    """The longest pwrite of the runtime ends after each number of bytes in turn."""
    writes = [point for point in injection.points(Fault(SYSTEM, SHORT)) if point.call == "pwrite"]
    chosen = max(writes, key=lambda point: _bytes_of(injection, point.number))
    for part in range(1, _bytes_of(injection, chosen.number), step):
        yield from injection.points(Fault(SYSTEM, SHORT, part=part), first=chosen.number, most=1)


def _bytes_of(injection: Injection, number: int) -> int:
    """How many bytes a write has: the least number that cuts nothing off."""
    least, most = 1, 1 << 12  # longer ones are cut at their first bytes
    while least < most:
        part = (least + most) // 2
        is_short = any(injection.points(Fault(SYSTEM, SHORT, part=part), first=number, most=1))
        least, most = (part + 1, most) if is_short else (least, part)
    return least


def _cut(task: Task, injection: Injection, arguments: argparse.Namespace) -> Done:
    """The journal of a run ends at bytes in turn, of one block at each of them."""
    path = injection.folder / "journal.bin"
    data = injection.journal
    path.write_bytes(data)
    whole = cut_journals.parts(path)
    end = max(part.end for part in whole) + 1
    cuts = set(range(0, end, arguments.cut_step))
    if task.setting.name == EACH_BYTE:
        cuts |= set(range(whole[0].begin, min(whole[0].begin + abi.BLOCK_BYTES, _last_of_block(whole)) + 1))
    tried, found = 0, []
    for cut in sorted(cuts):
        if time.monotonic() > arguments.deadline:
            break
        for killed in (False, True):
            tried += 1
            if problem := cut_journals.problem(path, data, whole, cut, killed=killed):
                found.append(f"killed: {killed}, byte {cut}: {problem}")
    return Done(task, {CUT: tried}, journal=found)


def _last_of_block(whole: Sequence[cut_journals.Part]) -> int:
    """The byte behind the last record of the first block."""
    return max(part.end for part in whole if part.begin < whole[0].begin + abi.BLOCK_BYTES)


def _report(found: Sequence[Done], seconds: float) -> int:
    counts: Counter[tuple[str, str]] = Counter()
    worse: Counter[str] = Counter()
    calls: Counter[str] = Counter()
    broken_calls = Counter(point.call for done in found for point in done.broken)
    for done in found:
        name = done.task.setting.name
        counts[name, done.task.column] += sum(done.calls.values())
        worse[name] += len(done.broken) + len(done.journal)
        calls.update(done.calls)
        broken_calls[CUT] += len(done.journal)
    names = [name for name in SETTINGS if any(done.task.setting.name == name for done in found)]
    rows = [[name, *(str(counts[name, column]) for column in COLUMNS), str(worse[name])] for name in names]
    markdown.table(["the runtime records", *COLUMNS, "broken"], rows)
    print()
    of_calls = [[f"`{call}`", str(number), str(broken_calls[call])] for call, number in sorted(calls.items())]
    markdown.table(["call", "points", "broken"], of_calls)
    total = sum(calls.values())
    print(f"\n{total} points, {sum(worse.values())} broken, {seconds:.0f} s")
    for done in found:
        for problem in done.journal:
            print(f"\n{done.task.setting.name}: the journal, {problem}")
        for point in done.broken:
            print(f"\n{point.setting}: {point.call} number {point.number} in {point.place}: {point.error}")
            for problem in point.problems:
                print(f"  {problem}")
    return 1 if sum(worse.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
