"""Takes the operators of PyTorch's own database (its OpInfo tests, higher-order operators as well) through aoti-debug.

usage: python -m benchmarks.comparison.operators [--device cpu|cuda] [--dtypes float32,bfloat16+dynamic,…]
    [--only NAME ...] [--sample N] [--jobs N] [--minutes M] [--results FILE]
       python -m benchmarks.comparison.operators --table FILE ...

Every operator is exported and compiled as plain AOTI does it, then built for level 1. The outputs of the two packages
must have the same bits, `compare` must find every launch right, and the repro of one of its launches must give the
recorded bits. An operator that torch.export or plain AOTI cannot do, or whose plain package is not deterministic, does
not count; the reason is that of torch. A dtype with `+dynamic` has symbols for sizes wherever an operator allows it.

The programs come in an order that is shuffled, always the same way: what is done when the time is over is a sample of
all operators and dtypes. Each result is appended to FILE when it is known, one JSON object a line; what is in FILE for
this torch and device is not run again. On several GPUs the processes are spread over them. `--table` prints what files
hold. SIGTERM ends it as if the time were over. Exit code 1: something is wrong that no known bug of torch
(operator_results.py) explains.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import queue
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import torch

from benchmarks import checkout
from benchmarks.comparison import operator_results
from benchmarks.comparison.operator_results import Outcome, Result, Row, Rows, explained
from benchmarks.models import operator_samples
from benchmarks.models.operator_samples import Target

DTYPES = ("float32", "float32+dynamic", "bfloat16", "float16", "int64", "complex64", "bool")
_SEED = 4511


@dataclass(frozen=True)
class Batch:
    """Some operators that are one program."""

    target: Target
    names: tuple[str, ...]


class Bench:
    """Processes that take batches, and what they have found.

    Attributes:
        rows: also those of earlier calls.
    """

    def __init__(self, options: argparse.Namespace, work: Path, rows: Rows) -> None:
        self.rows = rows
        self._work = work
        self._seconds: float = options.seconds
        self._end = time.monotonic() + 60 * options.minutes if options.minutes else float("inf")
        self._threads = max(1, (os.cpu_count() or 1) // options.jobs)
        self._running = set[_Process]()
        self._places = queue.SimpleQueue[str]()
        devices = _gpus() if options.device == "cuda" else [""]
        for number in range(options.jobs):
            self._places.put(devices[number % len(devices)])

    @property
    def left(self) -> float:
        """Seconds that a process which starts now may take."""
        return min(self._seconds, self._end - time.monotonic())

    def stop(self, *_: object) -> None:
        """Ends the processes, and starts no other."""
        self._end = time.monotonic()
        for process in tuple(self._running):
            process.expire()

    def take(self, batch: Batch) -> None:
        """Finds out what becomes of some operators; keeps and prints it at once."""
        place = self._places.get()
        began, taken = time.monotonic(), 0
        try:
            for result in self._processed(batch, place):
                self.rows.add(Row(batch.target, explained(result, batch.target)))
                taken += 1
        finally:
            self._places.put(place)
        if taken:
            seconds = time.monotonic() - began
            print(f"{batch.target.label}: {', '.join(batch.names)}: {seconds:.0f} s", file=sys.stderr, flush=True)

    def _processed(self, batch: Batch, place: str) -> Iterator[Result]:
        """The results of a process; those operators that it left open are tried again, half of them at once."""
        if self.left <= 0:
            return
        told, how = set[str](), ""
        with _Process(self._command(batch), self._environment(place), self.left) as process:
            self._running.add(process)
            for result in process.results():
                told.add(result.operator)
                yield result
            how = process.ending()
            self._running.discard(process)
        rest = tuple(name for name in batch.names if name not in told)
        if len(rest) == 1 and len(batch.names) == 1 and self.left > 0:
            yield Result(rest[0], Outcome.FAILED, f"the process ended: {how}")
            return
        middle = (len(rest) + 1) // 2
        for part in filter(None, (rest[:middle], rest[middle:])):
            yield from self._processed(Batch(batch.target, part), place)

    def _command(self, batch: Batch) -> list[str]:
        target = batch.target
        command = [sys.executable, "-m", "benchmarks.comparison.operator_batch", *batch.names]
        command += ["--work", tempfile.mkdtemp(dir=self._work), "--device", target.device, "--dtype", target.dtype]
        return [*command, "--samples", str(target.samples), *(["--dynamic"] if target.dynamic else [])]

    def _environment(self, place: str) -> dict[str, str]:
        variables = checkout.environment(TORCHINDUCTOR_CACHE_DIR=str(self._work / "inductor"))
        for name in ("OMP_NUM_THREADS", "TORCHINDUCTOR_COMPILE_THREADS"):
            variables.setdefault(name, str(self._threads))
        return variables | ({"CUDA_VISIBLE_DEVICES": place} if place else {})


class _Process:
    """A process that prints results, ended with all that it has started when its time is over."""

    def __init__(self, command: Sequence[str], environment: dict[str, str], seconds: float) -> None:
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  # closed at the end of the context
        self._seconds, self._is_over = seconds, False
        self._process = subprocess.Popen(
            command,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        self._timer = threading.Timer(seconds, self.expire)
        self._timer.start()

    def __enter__(self) -> _Process:
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        self._kill()
        self._process.communicate()
        self._errors.close()

    def results(self) -> Iterator[Result]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith('{"operator"') and line.endswith("\n"):
                row = json.loads(line)
                yield Result(row["operator"], Outcome(row["outcome"]), row["said"])

    def ending(self) -> str:
        """How it ended, with the last line that it said."""
        code = self._process.wait()
        if self._is_over:
            return f"no end within {self._seconds:.0f} s"
        self._errors.seek(0)
        last = (self._errors.read().strip().splitlines() or [""])[-1]
        return f"exit code {code}: {last}"

    def expire(self) -> None:
        """Ends it as if its time were over."""
        self._is_over = True
        self._kill()

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)


def _gpus() -> list[str]:
    """The GPUs that may be used, as CUDA_VISIBLE_DEVICES names them.

    Raises:
        SystemExit: there is none.
    """
    if given := os.environ.get("CUDA_VISIBLE_DEVICES"):
        return given.split(",")
    if not (count := torch.cuda.device_count()):
        print("torch finds no CUDA device", file=sys.stderr)
        raise SystemExit(2)
    return [str(number) for number in range(count)]


def batches(targets: Sequence[Target], options: argparse.Namespace, done: Rows) -> list[Batch]:
    """The programs that are left to do, in an order that is the same for each call."""
    drawn, found = random.Random(_SEED), []
    for target in targets:
        names = operator_samples.names(target)
        drawn.shuffle(names)
        if options.only:
            names = [name for name in names if name in options.only]
        names = [name for name in names[: options.sample] if not done.has(target, name)]
        found += [Batch(target, tuple(names[at : at + options.batch])) for at in range(0, len(names), options.batch)]
    drawn.shuffle(found)
    return found


def targets(options: argparse.Namespace) -> list[Target]:
    """The dtypes that are asked for.

    Raises:
        SystemExit: torch has none of this name.
    """
    found = []
    for name in options.dtypes.split(","):
        dtype, plus, how = name.partition("+")
        if not isinstance(getattr(torch, dtype, None), torch.dtype) or (plus and how != "dynamic"):
            print(f"no dtype {name}: --dtypes takes float32, bfloat16+dynamic, …", file=sys.stderr)
            raise SystemExit(2)
        found.append(Target(options.device, dtype, bool(plus), options.samples))
    return found


def main() -> int:
    options = _options()
    if options.table:
        return operator_results.print_tables([row for file in options.table for row in Rows(file).rows])
    operator_samples.stand_in()
    if unknown := operator_samples.unknown(options.only or ()):
        print(f"the database has no operator {', '.join(unknown)}", file=sys.stderr)
        return 2
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="aoti-debug-operators-", ignore_cleanup_errors=True) as work:
        bench = Bench(options, Path(work), Rows(options.results))
        left = batches(targets(options), options, bench.rows)
        operators = sum(len(batch.names) for batch in left)
        print(f"{operators} operators to do, {len(bench.rows.rows)} done before", file=sys.stderr, flush=True)
        signal.signal(signal.SIGTERM, bench.stop)
        with ThreadPoolExecutor(options.jobs) as pool:
            list(pool.map(bench.take, left))
    code = operator_results.print_tables(bench.rows.rows)
    chosen = sum(not bench.rows.has(batch.target, name) for batch in left for name in batch.names)
    print(f"{time.monotonic() - began:.0f} s" + (f"; {chosen} were not run: no time was left" if chosen else ""))
    return code


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--dtypes", metavar="NAMES", default=",".join(DTYPES), help="comma-separated; all of these")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="only these operators")
    parser.add_argument("--sample", type=int, metavar="N", help="only so many operators of each dtype")
    parser.add_argument("--samples", type=int, metavar="N", default=2, help="calls of each operator")
    parser.add_argument("--batch", type=int, metavar="N", default=6, help="operators in one program")
    parser.add_argument("--jobs", type=int, metavar="N", default=1, help="processes at once")
    parser.add_argument("--seconds", type=float, metavar="S", default=600, help="for one process")
    parser.add_argument("--minutes", type=float, metavar="M", help="for all; the rest is not run, which is said")
    parser.add_argument("--results", type=Path, metavar="FILE", default=Path("operators.jsonl"))
    parser.add_argument("--table", nargs="+", type=Path, metavar="FILE", help="print the table of these results alone")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
