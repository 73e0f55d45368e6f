"""Has every call of the runtime to the system fail in turn, and looks at what the model and the run notice of it.

usage: python -m benchmarks.quality.fault_injection [--results FILE] [--minutes N] [--jobs N] [--only WORD ...]
    [--columns WORD ...] [--shards N] [--cut-step N] [--short-step N] [--folder DIR] [--table]

A C++ host that has loaded a package forks for each point (tests/runtime_shims/fault_injection.py): there is no Python
and no torch in it. One call fails: open, write, mmap, std::thread, new, cuMemAlloc, …, with each error that it may end
with; or one and all those after it that may end with the same error, as on a full disk. A point is broken if an output
has other bits, the process crashes or hangs, memory or descriptors grow, the run cannot be read, holds what did not
happen, or lacks something that no note names, a temporary file or memory in /dev/shm is left, or the next run of the
process is not complete.

A write of the summaries and one of a tensor end at each N-th of their bytes (--short-step). The journal of each setting
is cut at each N-th byte (--cut-step), as a copy may be, and as a process leaves it that is killed there, and one block
of one journal at each of its bytes: a reader must find the records that are complete, and no others.

All points are spread over shards, each with calls from all over a run; they come in a random order that is always the
same, so that work that is cut off (--minutes, --shards) is a sample of all settings and kinds. FILE gets a line for
each shard that is done; with the same FILE the rest is done. --table makes the table from it and does nothing else.

A broken point is tried once more: a process of aoti-debug beside it may have collected what its processes left.

Prints Markdown tables, by setting and by call, then the broken points. Exits with 1 if there is one.
"""

from __future__ import annotations

import argparse
import errno
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from aoti_debug.base import abi
from benchmarks import markdown
from benchmarks.sharded import IS_DONE, Line, ShardsFile
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
    "one call of the driver": [Fault(DEVICE, choice) for choice in range(DRIVER_ERRORS)],
    "it and each after it": [Fault(DEVICE, choice, lasts=True) for choice in range(DRIVER_ERRORS)],
}
SHORT_WRITES, CUT = "short write", "journal cut"
COLUMNS = (*FAULTS, *DRIVER_FAULTS, SHORT_WRITES, CUT)
SHARDS = {SYSTEM: 8, MEMORY: 64, DEVICE: 64}  # of all calls of a setting that can fail in one way
OTHER_SHARDS = 16  # of writes that are cut short, and of cuts
WRITTEN = ("hashes, summaries", "tensors")  # settings whose writes end at each byte
EACH_BYTE = "names"  # the setting whose journal has a block that is cut at each byte
PROGRESS = 10  # seconds between lines that say how far it is


@dataclass(frozen=True)
class Shard:
    """Points of one kind, of one setting: every `of`-th, from number `first` on.

    Attributes:
        fault: None where the journal is cut, or writes are cut short.
    """

    setting: Setting
    column: str
    first: int
    of: int
    fault: Fault | None = None

    @property
    def name(self) -> str:
        fault = "" if self.fault is None else f"{self.fault.choice} {errno.errorcode.get(self.fault.only, '')}".strip()
        return f"{self.setting.name} | {self.column} | {fault} | {self.first} of {self.of}"


@dataclass(frozen=True)
class Options:
    """What a process that works on shards needs.

    Attributes:
        folder: where the runs go.
        deadline: of time.time(); no point begins after it.
    """

    built: Mapping[Machine, Built]
    folder: Path
    deadline: float
    cut_step: int
    short_step: int


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, metavar="FILE", help="gets a line for each shard; continued if there")
    parser.add_argument("--minutes", type=float, default=math.inf, metavar="N", help="no point begins after them")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), metavar="N", help="hosts at a time")
    parser.add_argument("--only", nargs="*", metavar="WORD", help="settings whose names contain one of these")
    parser.add_argument("--columns", nargs="*", metavar="WORD", help="columns whose names contain one of these")
    parser.add_argument("--shards", type=int, metavar="N", help="only so many of those that are left")
    parser.add_argument("--cut-step", type=int, default=1, metavar="N", help="the journal is cut at each N-th byte")
    parser.add_argument("--short-step", type=int, default=1, metavar="N", help="a write ends at each N-th byte")
    parser.add_argument("--folder", type=Path, help="where the runs go: in memory, unless it says something else")
    parser.add_argument("--table", action="store_true", help="only print the table of FILE")
    arguments = parser.parse_args()
    memory = Path("/dev/shm")
    parent = arguments.folder or (memory if memory.is_dir() else None)
    with tempfile.TemporaryDirectory(dir=parent) as temporary:
        results = arguments.results or Path(temporary) / "results.jsonl"
        lines = ShardsFile(results, measures=not arguments.table)
        if not arguments.table:
            _run(arguments, Path(temporary), lines)
        return _report(lines.lines)


def _run(arguments: argparse.Namespace, folder: Path, lines: ShardsFile) -> None:
    chosen = {
        shard.name: shard
        for setting in SETTINGS.values()
        if not arguments.only or any(word in setting.name for word in arguments.only)
        for shard in _shards(setting)
        if not arguments.columns or any(word in shard.column for word in arguments.columns)
    }
    names = lines.left(chosen)[: arguments.shards]
    began = time.time()
    built = _build(folder, [chosen[name].setting for name in names])
    deadline = began + 60 * arguments.minutes
    options = Options(built, folder, deadline, arguments.cut_step, arguments.short_step)
    said, broken = time.time(), 0
    with ProcessPoolExecutor(arguments.jobs) as pool:
        pending = {pool.submit(_work, chosen[name], options): name for name in names}
        for number, each in enumerate(as_completed(pending), 1):
            result = each.result()
            if result["seconds"] == 0:
                continue  # there was no time for it
            lines.add(pending[each], result, done=not result["stopped"])
            broken += len(result["broken"]) + len(result["journal"])
            if time.time() - said > PROGRESS:
                said = time.time()
                text = f"{said - began:.0f} s: {number} of {len(names)} shards, {broken} broken"
                print(text, file=sys.stderr, flush=True)


def _build(folder: Path, settings: Sequence[Setting]) -> dict[Machine, Built]:
    built = {}
    for machine in dict.fromkeys(setting.machine for setting in settings):
        made = folder / machine.name
        made.mkdir()
        built[machine] = fault_injection.build(made, machine)
    return built


def _shards(setting: Setting) -> Iterator[Shard]:
    faults = {**FAULTS, **DRIVER_FAULTS} if setting.machine is Machine.DRIVER else FAULTS
    for column, of_column in faults.items():
        for fault in of_column:
            of = SHARDS[fault.kind]
            yield from (Shard(setting, column, first, of, fault) for first in range(of))
    columns = ([SHORT_WRITES] if setting.name in WRITTEN else []) + [CUT]
    for column in columns:
        yield from (Shard(setting, column, first, OTHER_SHARDS) for first in range(OTHER_SHARDS))


_INJECTIONS: dict[str, Injection] = {}  # of this process, by the setting
_LONGEST: dict[str, tuple[int, int]] = {}  # the number and the bytes of the longest pwrite, by the setting


def _work(shard: Shard, options: Options) -> dict[str, Any]:
    """The result of a shard: what is in its line."""
    calls: Counter[str] = Counter()
    broken: list[Any] = []
    journal: list[str] = []
    result: dict[str, Any] = {"setting": shard.setting.name, "column": shard.column, "calls": calls, "broken": broken}
    result |= {"journal": journal, "seconds": 0.0, "stopped": "no time left"}
    if time.time() > options.deadline:
        return result
    began = _used()
    try:
        for call, found in _tried(shard, options):
            calls[call] += 1
            if isinstance(found, Point):
                broken.append({**asdict(found), "again": _again(shard, found)})
            elif found:
                journal.append(found)
            if time.time() > options.deadline:
                break
        else:
            result["stopped"] = ""
    except subprocess.TimeoutExpired:
        pass
    except (AssertionError, OSError, ValueError, KeyError):
        result["stopped"] = traceback.format_exc()
    result["seconds"] = round(_used() - began, 3)
    return result


def _again(shard: Shard, broken: Point) -> list[str]:
    """What is wrong when a point is tried once more."""
    if shard.fault is None:
        return list(broken.problems)
    points = _INJECTIONS[shard.setting.name].points(shard.fault, first=broken.number, most=1)
    return [problem for point in points for problem in point.problems]


def _used() -> float:
    """Seconds of the processor that this process and those that it has waited for have used."""
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(used.ru_utime + used.ru_stime for used in both)


def _tried(shard: Shard, options: Options) -> Iterator[tuple[str, Point | str]]:
    """Yields the call of each point, with the point or the text that says what is wrong; "" if nothing is."""
    name = shard.setting.name
    if name not in _INJECTIONS:
        folder = options.folder / f"{os.getpid()}-{list(SETTINGS).index(name)}"
        _INJECTIONS[name] = Injection(options.built[shard.setting.machine], shard.setting, folder)
    injection = _INJECTIONS[name]
    injection.seconds = max(options.deadline - time.time(), 1) if math.isfinite(options.deadline) else 3600
    if shard.column == CUT:
        yield from ((CUT, problem) for problem in _cuts(shard, injection, options.cut_step))
        return
    if shard.fault is not None:
        points = injection.points(shard.fault, first=shard.first, step=shard.of)
    else:
        points = _short_writes(shard, injection, options.short_step)
    for point in points:
        yield point.call, point if point.problems else ""


def _short_writes(shard: Shard, injection: Injection, step: int) -> Iterator[Point]:
    """The longest pwrite of the runtime ends after each number of bytes in turn."""
    name = shard.setting.name
    if name not in _LONGEST:
        writes = [point for point in injection.points(Fault(SYSTEM, SHORT)) if point.call == "pwrite"]
        _LONGEST[name] = max(((write.number, _bytes_of(injection, write.number)) for write in writes), key=_bytes)
    number, most = _LONGEST[name]
    for part in range(1 + shard.first * step, most, shard.of * step):
        yield from injection.points(Fault(SYSTEM, SHORT, part=part), first=number, most=1)


def _bytes(write: tuple[int, int]) -> int:
    return write[1]


def _bytes_of(injection: Injection, number: int) -> int:
    """How many bytes a write has: the least number that cuts nothing off."""
    least, most = 1, 1 << 12  # longer ones are cut at their first bytes
    while least < most:
        part = (least + most) // 2
        is_short = any(injection.points(Fault(SYSTEM, SHORT, part=part), first=number, most=1))
        least, most = (part + 1, most) if is_short else (least, part)
    return least


def _cuts(shard: Shard, injection: Injection, step: int) -> Iterator[str]:
    """The journal of a run ends at bytes in turn, of one block at each of them."""
    path = injection.folder / "journal.bin"
    data = injection.journal
    path.write_bytes(data)
    whole = cut_journals.parts(path)
    end = max(part.end for part in whole) + 1
    cuts = set(range(0, end, step))
    if shard.setting.name == EACH_BYTE:
        cuts |= set(range(whole[0].begin, min(whole[0].begin + abi.BLOCK_BYTES, _last_of_block(whole)) + 1))
    for cut in sorted(cuts)[shard.first :: shard.of]:
        for killed in (False, True):
            problem = cut_journals.problem(path, data, whole, cut, killed=killed)
            yield f"killed: {killed}, byte {cut}: {problem}" if problem else ""
    path.unlink()


def _last_of_block(whole: Sequence[cut_journals.Part]) -> int:
    """The byte behind the last record of the first block."""
    return max(part.end for part in whole if part.begin < whole[0].begin + abi.BLOCK_BYTES)


def _comes_again(point: Mapping[str, Any]) -> bool:
    """False if a broken point was right when it was tried again; older rows were not."""
    return bool(point.get("again", True))


def _report(lines: Mapping[str, Line]) -> int:
    counts: Counter[tuple[str, str]] = Counter()
    worse: Counter[str] = Counter()
    calls: Counter[str] = Counter()
    broken_calls: Counter[str] = Counter()
    for line in lines.values():
        counts[line["setting"], line["column"]] += sum(line["calls"].values())
        worse[line["setting"]] += len(line["broken"]) + len(line["journal"])
        calls.update(line["calls"])
        broken_calls.update(point["call"] for point in line["broken"])
        broken_calls[CUT] += len(line["journal"])
    names = [name for name in SETTINGS if any(setting == name for setting, _ in counts)]
    rows = [[name, *(str(counts[name, column]) for column in COLUMNS), str(worse[name])] for name in names]
    markdown.table(["the runtime records", *COLUMNS, "broken"], rows)
    markdown.table(
        ["call", "points", "broken"],
        [[f"`{call}`", str(number), str(broken_calls[call])] for call, number in sorted(calls.items())],
    )
    failed = [(name, line["stopped"]) for name, line in lines.items() if "\n" in line["stopped"]]
    expected = sum(1 for setting in SETTINGS.values() for _ in _shards(setting))
    done = sum(1 for line in lines.values() if line[IS_DONE])
    used = sum(line["seconds"] for line in lines.values())
    cuts = calls[CUT]
    once = sum(1 for line in lines.values() for point in line["broken"] if not _comes_again(point))
    print(
        f"{sum(calls.values()) - cuts} points and {cuts} cuts of journals, {sum(worse.values())} broken ({once} not "
        f"when tried again); {done} of {expected} shards, {len(failed)} failed; {used / 60:.1f} core-minutes"
    )
    for line in lines.values():
        for problem in line["journal"]:
            print(f"\n{line['setting']}: the journal, {problem}")
        for point in line["broken"]:
            print(f"\n{point['setting']}: {point['call']} number {point['number']} in {point['place']}: ", end="")
            print(point["error"], *(["and all that follow"] if point["lasts"] else []))
            for problem in point["problems"]:
                print(f"  {problem}")
            if not _comes_again(point):
                print("  not when it was tried again")
    for name, text in failed:
        print(f"\n{name}: {text}")
    return 1 if sum(worse.values()) or failed else 0


if __name__ == "__main__":
    sys.exit(main())
