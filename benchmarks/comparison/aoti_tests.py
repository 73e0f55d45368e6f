"""Takes the models of PyTorch's own AOTInductor tests through plain AOTI and through a build, bit for bit.

usage: python -m benchmarks.comparison.aoti_tests --tests CHECKOUT/test/inductor/test_aot_inductor.py
    [--device cpu|cuda] [--jobs N] [--seconds S] [--limit S] [--only REGEX] [--without REGEX] [--sample N]
    [--results FILE] [--keep DIR]

The file is that of a PyTorch checkout of the installed version; torch's wheels do not have it. Of the modules that it
imports from its folder, only test_control_flow.py is used, where it is there. Each model is compiled as plain AOTI does
it, then built for level 1 in the same environment, with the same cache of Inductor. Both packages are loaded twice and
called with the inputs of the test: the outputs, and inputs that are overwritten, must have the same bits. Kernels that
only one of the packages has are named. A model that torch cannot export, compile or call, or whose plain package does
not repeat its bits, does not count.

Results are written to FILE as they come, one JSON object a line; tests that are in FILE already are not run again.
Needs the package expecttest. Exit code 1: a model is refused, fails, or has other bits.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import queue
import re
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from benchmarks import checkout, markdown
from benchmarks.comparison.aoti_tests_results import Outcome, Result, finished, from_json, read
from benchmarks.models import operator_samples

_TESTS_OF_PROCESS = 12  # what a process has loaded stays in its memory
_STARTING = 120.0  # seconds until a process has imported the tests


@dataclass(frozen=True)
class Run:
    """How tests are run.

    Attributes:
        work: the folder for packages and caches.
        limit: seconds of one model.
        end: when all have to be over, on the clock of `time.monotonic`.
        threads: of Inductor's own, in each process.
    """

    tests: Path
    device: str
    work: Path
    limit: float
    end: float
    threads: int

    def command(self) -> list[str]:
        worker = [sys.executable, "-m", "benchmarks.comparison.aoti_tests_worker"]
        return [*worker, "--tests", str(self.tests), "--device", self.device, "--work", str(self.work)]

    @property
    def left(self) -> float:
        return self.end - time.monotonic()


@dataclass
class Results:
    """The results, in a file as well."""

    file: Path
    found: list[Result] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, result: Result) -> None:
        """Keeps a result; prints it."""
        with self._lock:
            self.found.append(result)
            if result.outcome is not Outcome.NOT_RUN:
                with self.file.open("a") as file:
                    file.write(result.to_json() + "\n")
                told = f"{result.case}: {result.outcome.value}: {result.said} ({result.seconds:.0f} s)"
                print(f"{len(self.found)} {told}", file=sys.stderr, flush=True)


class Worker:
    """A process that runs tests."""

    def __init__(self, run: Run, cache: Path) -> None:
        self.tests = 0
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  # closed by `close`
        threads = os.environ.get("TORCHINDUCTOR_COMPILE_THREADS", str(run.threads))
        environment = checkout.environment(TORCHINDUCTOR_CACHE_DIR=str(cache), TORCHINDUCTOR_COMPILE_THREADS=threads)
        self._process = subprocess.Popen(
            run.command(),
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,
        )
        self._rest = b""

    def start(self, test: str) -> None:
        self.tests += 1
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # what it said is read
            self._process.stdin.write(f"{test}\n".encode())
            self._process.stdin.flush()

    def line(self, seconds: float) -> str | None:
        """The next line; "" if the process ended; None if there is none within some seconds."""
        assert self._process.stdout is not None
        end = time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._rest:
                if not selector.select(max(0.0, end - time.monotonic())):
                    return None
                read = os.read(self._process.stdout.fileno(), 1 << 16)
                if not read:
                    return ""
                self._rest += read
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode()

    def ending(self) -> str:
        """How the process ended, with the last line of what it said."""
        code = self._process.wait()
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return f"{how}: {lines[-1].strip()}" if lines else how

    def close(self) -> None:
        """Ends the process and those that it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._errors):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()


def names(run: Run) -> list[str]:
    """The tests of the file.

    Raises:
        SystemExit: it cannot be imported.
    """
    done = subprocess.run(
        [*run.command(), "--list"],
        env=checkout.environment(),
        capture_output=True,
        check=False,
    )
    if done.returncode:
        print(done.stderr.decode(errors="replace").strip().splitlines()[-1], file=sys.stderr)
        raise SystemExit(2)
    listed: list[str] = json.loads(done.stdout)
    return listed


def take(run: Run, tests: queue.SimpleQueue[str], results: Results, cache: Path) -> None:
    """Runs tests until there are none left, in one process after the other."""
    cache.mkdir()
    worker: Worker | None = None
    try:
        while (test := _next(tests)) is not None:
            if run.left <= 0:
                results.add(Result(test, Outcome.NOT_RUN, "no time was left"))
                continue
            if worker is None:
                worker = Worker(run, cache)
            worker.start(test)
            is_usable = _follow(worker, test, run, results)
            if not is_usable or worker.tests >= _TESTS_OF_PROCESS:
                worker.close()
                worker = None
    finally:
        if worker is not None:
            worker.close()


def _next(tests: queue.SimpleQueue[str]) -> str | None:
    try:
        return tests.get_nowait()
    except queue.Empty:
        return None


def _follow(worker: Worker, test: str, run: Run, results: Results) -> bool:
    """Reads what a process says of a test, until it has ended; False if the process is of no use any more."""
    began, case, step = time.monotonic(), test, ""
    end = began + run.limit + (_STARTING if worker.tests == 1 else 0.0)
    while True:
        line = worker.line(min(end, run.end) - time.monotonic())
        if line:
            row = json.loads(line)
            if "ended" in row:
                return True
            if "begun" in row:
                case, step = row["begun"], row["step"]
                if step == "export":
                    began = time.monotonic()
                    end = began + run.limit
            else:
                results.add(from_json(line))
                step = ""
                end = time.monotonic() + run.limit
            continue
        seconds = time.monotonic() - began
        if line is None and run.left <= 0:
            results.add(Result(case, Outcome.NOT_RUN, "no time was left", seconds))
        else:
            said = f"no end within {run.limit:.0f} s" if line is None else worker.ending()
            outcome = {"ours": Outcome.FAILED, "": Outcome.NO_MODEL}.get(step, Outcome.TORCH)
            at = f"at {step}: " if step else "between models: "
            results.add(Result(case, outcome, f"the process ended {at}{said}", seconds))
        return False


def chosen(listed: Sequence[str], options: argparse.Namespace) -> Iterator[str]:
    """The tests that are asked for, so many of them as asked for, evenly spread."""
    wanted = [name for name in listed if re.search(options.only, name)]
    wanted = [name for name in wanted if not options.without or not re.search(options.without, name)]
    count = min(options.sample or len(wanted), len(wanted))
    yield from (wanted[number * len(wanted) // count] for number in range(count))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tests", type=Path, required=True, metavar="FILE", help="test_aot_inductor.py of PyTorch")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--jobs", type=int, metavar="N", default=1, help="processes at once")
    parser.add_argument("--seconds", type=float, metavar="S", help="for all; the rest is not run, which is said")
    parser.add_argument("--limit", type=float, metavar="S", default=300, help="for one model")
    parser.add_argument("--only", metavar="REGEX", default="", help="only tests whose names match")
    parser.add_argument("--without", metavar="REGEX", default="", help="no tests whose names match")
    parser.add_argument("--sample", type=int, metavar="N", help="only so many tests, evenly spread")
    parser.add_argument("--results", type=Path, metavar="FILE", default=Path("aoti_tests.jsonl"))
    parser.add_argument("--keep", type=Path, metavar="DIR", help="leave the packages of what is wrong there")
    return parser.parse_args()


def main() -> int:
    options = _options()
    began = time.monotonic()
    if missing := operator_samples.missing_package():
        print(f"{missing} is not installed; torch.testing._internal needs it: pip install {missing}", file=sys.stderr)
        return 2
    with contextlib.ExitStack() as stack:
        own = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="aoti-debug-tests-")))
        work = options.keep or own / "packages"
        work.mkdir(parents=True, exist_ok=True)
        end = began + options.seconds if options.seconds else float("inf")
        threads = max(1, (os.cpu_count() or 1) // options.jobs)
        run = Run(options.tests.resolve(), options.device, work.resolve(), options.limit, end, threads)
        earlier = read(options.results)
        done = finished(earlier)
        results, tests = Results(options.results.resolve(), earlier), queue.SimpleQueue[str]()
        for name in chosen(names(run), options):
            if name not in done:
                tests.put(name)
        print(f"{tests.qsize()} tests, results of {len(earlier)} models from before", file=sys.stderr, flush=True)
        jobs = [
            threading.Thread(target=take, args=(run, tests, results, own / f"inductor-{number}"))
            for number in range(options.jobs)
        ]
        for job in jobs:
            job.start()
        for job in jobs:
            job.join()
    _print(results.found)
    print(f"{time.monotonic() - began:.0f} s")
    return int(any(result.outcome.is_wrong for result in results.found))


def _print(results: Sequence[Result]) -> None:
    count = Counter(result.outcome for result in results)
    markdown.table(("models", "number"), [(outcome.value, str(count[outcome])) for outcome in Outcome])
    for outcome in Outcome:
        if outcome is not Outcome.EQUAL and outcome is not Outcome.NOT_RUN:
            for result in results:
                if result.outcome is outcome:
                    print(f"{outcome.value}: {result.case}: {result.said}")
    counting = [result for result in results if result.outcome.counts]
    equal = sum(result.outcome.is_equal for result in counting)
    print(f"\n{equal} of {len(counting)} models that count are equal bit for bit")


if __name__ == "__main__":
    sys.exit(main())
