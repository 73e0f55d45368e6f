"""Has every call of a command to the system fail in turn, and looks at what the command says and leaves.

usage: python -m benchmarks.quality.command_faults [--results FILE] [--minutes N] [--jobs N] [--only COMMAND ...]
    [--faults FAULT ...] [--shards N] [--folder DIR] [--table]

A small model is built and run at level 1; each command then runs in a fresh copy of the folder for each point
(tests/command_faults/commands.py). Calls for files below that folder, among them its cache and TMPDIR, fail with ENOSPC
(one call, or it and all after it), EACCES, EIO or ENOMEM, or SIGTERM comes before the call. A point is broken if there
is a traceback, no error line or no hint, another exit code than one from 2 to 6, a file that is no whole result, a
temporary file, or if the same command does not do its work afterwards. After `build` and `triage` every fourth is run
again. Their compilers do not fail, and compile each text once (tests/command_faults/remembering_compiler.sh).
`first build` has an empty cache; a triage finds in the cache what `build` makes.

All points are spread over shards, each with calls from all over a command; they come in a random order that is always
the same, so that work that is cut off (--minutes, --shards) is a sample. FILE gets a line for each shard that is done;
with the same FILE the rest is done. --table makes the table from it and does nothing else.

Prints a Markdown table, then the broken points. Exits with 1 if there is one.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from benchmarks import checkout, markdown
from benchmarks.sharded import IS_DONE, Line, ShardsFile
from tests.command_faults import commands
from tests.command_faults.commands import CACHE, TEMPORARY, WORK, Fault, Worker


@dataclass(frozen=True)
class Command:
    """A command, and how it is spread.

    Attributes:
        arguments: of aoti-debug.
        shards: of all calls that can fail in one way.
        weight: how long one of them takes, by the others.
        seconds: that the command may take.
        template: the folder that it begins in.
        called: its name, where another one begins with the same word.
    """

    arguments: Sequence[str]
    shards: int = 8
    weight: int = 1
    seconds: int = commands.SECONDS
    template: str = "with_run"
    called: str = ""

    @property
    def name(self) -> str:
        return self.called or self.arguments[0]


LONG = 300  # seconds that a command may take that compiles
EMPTY = "with_program"  # a folder without a run, and with an empty cache
COMMANDS = (
    Command(("show",)),
    Command(("list",)),
    Command(("repro", "0.1", "--trust")),
    Command(("report",)),
    Command(("bundle",)),
    Command(("clean", "--all")),
    Command(("build", "model.pt2", "-o", "again.pt2"), 64, 3, LONG),
    Command(("build", "model.pt2", "-o", "first.pt2"), 128, 4, LONG, EMPTY, "first build"),
    Command(("triage", "model.pt2"), 128, 3, LONG),
)
FAULTS: Mapping[str, Fault] = {
    "ENOSPC": Fault(errno.ENOSPC),
    "full disk": Fault(errno.ENOSPC, lasts=True),
    "EACCES": Fault(errno.EACCES),
    "EIO": Fault(errno.EIO),
    "ENOMEM": Fault(errno.ENOMEM),
    "SIGTERM": Fault(-signal.SIGTERM),
}


@dataclass(frozen=True)
class Shard:
    """Every `of`-th point of a command and a fault, from number `first` on."""

    command: Command
    fault: str
    first: int

    @property
    def name(self) -> str:
        return f"{self.command.name} | {self.fault} | {self.first} of {self.command.shards}"


class Model(torch.nn.Module):
    """A linear layer and two elementwise operations."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.linear(x)).softmax(-1)


def make_templates(beside: Path) -> None:
    """Exports the model, and in another folder builds and runs it, unless it has done so."""
    folder, empty = beside / COMMANDS[0].template, beside / EMPTY
    for name in (WORK, CACHE, TEMPORARY):
        (folder / name).mkdir(parents=True, exist_ok=True)
        (empty / name).mkdir(parents=True, exist_ok=True)
    work = folder / WORK
    if (work / "aoti-debug/runs").exists():
        return
    program = torch.export.export(Model().eval(), (torch.linspace(-1, 1, 64).reshape(8, 8),))
    torch.export.save(program, work / "model.pt2")
    shutil.copy(work / "model.pt2", empty / WORK)
    environment = {**checkout.environment(), **commands.places(folder)}  # what it compiles stays in the folder's cache
    environment |= commands.remembering_compiler(folder, folder.parent)
    for arguments in (["build", "model.pt2"], ["run", "model.instrumented.pt2", "--level", "1"]):
        subprocess.run([sys.executable, "-m", "aoti_debug", *arguments], cwd=work, env=environment, check=True)


class Queue:
    """The shards that are left, of each command in their order; workers stay with a command as long as it has some."""

    def __init__(self, shards: Sequence[Shard]) -> None:
        self._lock = threading.Lock()
        self._left = {command.name: [shard for shard in shards if shard.command == command] for command in COMMANDS}
        self._workers: Counter[str] = Counter()

    def command(self) -> Command | None:
        """The command that a worker without one begins with; None if nothing is left."""
        with self._lock:
            found = max(COMMANDS, key=self._need)
            if not self._left[found.name]:
                return None
            self._workers[found.name] += 1
            return found

    def _need(self, command: Command) -> float:
        return len(self._left[command.name]) * command.weight / (1 + self._workers[command.name])

    def take(self, command: Command) -> Shard | None:
        with self._lock:
            if self._left[command.name]:
                return self._left[command.name].pop(0)
            self._workers[command.name] -= 1
            return None


class Bench:
    """Has workers try shards until there are none left, or no time."""

    def __init__(self, lines: ShardsFile, library: Path, folder: Path, deadline: float) -> None:
        self._lines, self._library, self._folder, self._deadline = lines, library, folder, deadline
        self._lock = threading.Lock()
        self._workers: set[Worker] = set()
        self._ended = threading.Event()
        self._tried = self._broken = 0
        self._began = time.time()

    def run(self, queue: Queue, jobs: int) -> None:
        with ThreadPoolExecutor(jobs) as pool:
            pending = [pool.submit(self._work, queue) for _ in range(jobs)]
            threading.Thread(target=self._watch, daemon=True).start()
            for each in pending:
                each.result()
        self._ended.set()

    def _watch(self) -> None:
        """Ends the workers when the time is over."""
        left = min(max(self._deadline - time.time(), 0), threading.TIMEOUT_MAX)
        if not self._ended.wait(left):
            self._ended.set()
            with self._lock:
                for worker in self._workers:
                    worker.kill()

    def _work(self, queue: Queue) -> None:
        while not self._ended.is_set() and (command := queue.command()) is not None:
            template = self._folder / command.template
            worker = Worker(self._library, template, command.arguments, command.seconds)
            with self._lock:
                self._workers.add(worker)
            try:
                while not self._ended.is_set() and (shard := queue.take(command)) is not None:
                    if not self._try(worker, shard):
                        break  # it has ended
            finally:
                with self._lock:
                    self._workers.discard(worker)
                worker.close()

    def _try(self, worker: Worker, shard: Shard) -> bool:
        """Tries a shard; False if the worker ended meanwhile."""
        count, broken = 0, []
        began = time.time()
        is_done = False
        with contextlib.suppress(EOFError):
            for point in worker.points(FAULTS[shard.fault], first=shard.first, step=shard.command.shards):
                count += 1
                if point.problems:
                    broken.append(asdict(point))
            is_done = True
        result = {"command": shard.command.name, "fault": shard.fault, "points": count, "broken": broken}
        result |= {"seconds": round(time.time() - began, 1), "ended": not is_done and not self._ended.is_set()}
        with self._lock:
            self._lines.add(shard.name, result, done=is_done)
            self._tried += count
            self._broken += len(broken)
            text = f"{time.time() - self._began:.0f} s: {shard.name}: {count} points in {result['seconds']} s"
            print(f"{text}; {self._tried} in all, {self._broken} broken", file=sys.stderr, flush=True)
        return is_done


def _shards(arguments: argparse.Namespace) -> Iterator[Shard]:
    for command in COMMANDS:
        for fault in FAULTS:
            if command.name in (arguments.only or [command.name]) and fault in (arguments.faults or FAULTS):
                yield from (Shard(command, fault, first) for first in range(command.shards))


@contextlib.contextmanager
def _folder(named: Path | None) -> Iterator[Path]:
    if named is not None:
        named.mkdir(parents=True, exist_ok=True)
        yield named.resolve()
        return
    with tempfile.TemporaryDirectory() as temporary:
        yield Path(temporary)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, metavar="FILE", help="gets a line for each shard; continued if there")
    parser.add_argument("--minutes", type=float, default=math.inf, metavar="N", help="it ends after them")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="commands at a time")
    parser.add_argument("--only", nargs="*", metavar="COMMAND", help="commands of these names")
    parser.add_argument("--faults", nargs="*", metavar="FAULT", help="only these: ENOSPC, SIGTERM, …")
    parser.add_argument("--shards", type=int, metavar="N", help="only so many of those that are left")
    parser.add_argument("--folder", type=Path, help="keeps the model, its run and what was compiled: of the same tree")
    parser.add_argument("--table", action="store_true", help="only print the table of FILE")
    arguments = parser.parse_args()
    began = time.time()
    with _folder(arguments.folder) as folder:
        results = arguments.results or folder / "results.jsonl"
        lines = ShardsFile(results, measures=not arguments.table)
        if not arguments.table:
            make_templates(folder)
            library = commands.compile_library(folder)
            shards = {shard.name: shard for shard in _shards(arguments)}
            left = [shards[name] for name in lines.left(shards)[: arguments.shards]]
            bench = Bench(lines, library, folder, began + 60 * arguments.minutes)
            bench.run(Queue(left), arguments.jobs)
        return _report(lines.lines)


def _report(lines: Mapping[str, Line]) -> int:
    counts: Counter[tuple[str, str]] = Counter()
    worse: Counter[str] = Counter()
    done: Counter[str] = Counter()
    for line in lines.values():
        counts[line["command"], line["fault"]] += line["points"]
        worse[line["command"]] += len(line["broken"])
        done[line["command"]] += line[IS_DONE]
    rows = [
        [
            f"`{command.name}`",
            *(str(counts[command.name, fault]) for fault in FAULTS),
            str(worse[command.name]),
            f"{done[command.name]} of {command.shards * len(FAULTS)}",
        ]
        for command in COMMANDS
    ]
    markdown.table(["command", *FAULTS, "broken", "shards done"], rows)
    ended = [name for name, line in lines.items() if line["ended"]]
    seconds = sum(line["seconds"] for line in lines.values())
    print(f"{counts.total()} points, {worse.total()} broken; {seconds / 60:.1f} minutes, all jobs together")
    for line in lines.values():
        for point in line["broken"]:
            print(f"\n{point['command']}, {line['fault']}: {point['call']} ({point['number']}), exit {point['code']}")
            for problem in point["problems"]:
                print(f"  {problem}")
    for name in ended:
        print(f"\n{name}: the process that has calls fail ended by itself")
    return 1 if worse.total() or ended else 0


if __name__ == "__main__":
    sys.exit(main())
