"""The cases of a benchmark, each in a process of its own: several at once, each result in a file when it is there.

`python -m benchmarks.NAME --jobs 16 --results FILE` appends one JSON object a line to FILE; cases that are in it are
not run again, so that a run that was cut off goes on. FILE is of one torch and one device: rows_file.py. `--table`
prints the table of what is in FILE, and runs nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path
from typing import Any

from benchmarks import checkout
from benchmarks.rows_file import Row, RowsFile

_THREADS = ("OMP_NUM_THREADS", "TORCHINDUCTOR_COMPILE_THREADS")  # of each process, if there are several
_LINE = 300  # characters of an error
_RAISED = re.compile(r"[\w.]*(?:Error|Exception)\b")
_SAID = 40  # lines of it that are kept


def add_options(parser: argparse.ArgumentParser, *, limit: float) -> None:
    """Adds the options of `run`.

    Args:
        limit: seconds of a case, by default.
    """
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="cases at once")
    parser.add_argument("--limit", type=float, default=limit, metavar="S", help="seconds of one case")
    parser.add_argument("--minutes", type=float, metavar="M", help="of all; cases that are not done then have no row")
    parser.add_argument("--results", type=Path, metavar="FILE", help="rows are appended there, and read from there")
    parser.add_argument("--table", action="store_true", help="run nothing: the table of what --results holds")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    parser.add_argument("--answer", type=Path, help=argparse.SUPPRESS)


def run(names: Sequence[str], given: argparse.Namespace, one: Callable[[str], Mapping[str, Any]]) -> list[Row]:
    """The rows of cases, in the order of their names; those that are not done have none.

    A row holds what `one` returns, and "case", "seconds", "machine"; "failure" in its place where the process ended
    otherwise or took too long. In the process of a case this prints nothing and exits.

    Args:
        given: the options of `add_options`, and of the benchmark itself: the process of a case is given all of them.
        one: runs a case and returns its row, of JSON data.
    """
    if given.case is not None:
        given.answer.write_text(json.dumps(one(given.case)))
        raise SystemExit(0)
    file = RowsFile(given.results, None if given.table else getattr(given, "device", "cpu"))
    left = [] if given.table else [name for name in names if name not in file.rows]
    with tempfile.TemporaryDirectory(prefix="aoti-debug-cases-") as work:
        processes = _Processes(given, file, Path(work))
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, processes.stop)
        with ThreadPoolExecutor(given.jobs) as pool:
            list(pool.map(processes.run, left))
    return [file.rows[name] for name in names if name in file.rows]


class _Processes:
    """The processes of cases."""

    def __init__(self, given: argparse.Namespace, file: RowsFile, work: Path) -> None:
        self._given, self._file, self._work = given, file, work
        self._end = time.monotonic() + 60 * given.minutes if given.minutes else float("inf")
        self._running: set[int] = set()
        self._devices = _devices(given)
        self._machine = _machine(given)
        self._stopped = threading.Event()

    def stop(self, *_: Any) -> None:
        """Ends the cases that run, and begins no other."""
        self._stopped.set()
        for group in tuple(self._running):
            os.killpg(group, signal.SIGKILL)

    def run(self, name: str) -> None:
        """Runs a case and keeps its row, if there is time left for it."""
        left = self._end - time.monotonic()
        if left <= 0 or self._stopped.is_set():
            return
        device = self._devices.get()
        load = round(os.getloadavg()[0], 1)
        began = time.monotonic()
        try:
            answer = self._answer(name, min(self._given.limit, left), device)
        finally:
            self._devices.put(device)
        is_over = answer is None and time.monotonic() >= self._end
        if self._stopped.is_set() or is_over:
            return
        seconds = time.monotonic() - began
        found = {"failure": f"no end within {self._given.limit:.0f} s"} if answer is None else answer
        self._file.add(name, {"seconds": round(seconds, 1), "load": load, "machine": self._machine, **found})
        print(f"{name}: {seconds:.0f} s {found.get('failure', '')}", file=sys.stderr, flush=True)

    def _answer(self, name: str, limit: float, device: str | None) -> Row | None:
        """What the process of a case returns; None if it does not end."""
        module = sys.modules["__main__"].__spec__
        assert module is not None, "a benchmark is called as python -m"
        folder = Path(tempfile.mkdtemp(dir=self._work))
        answer, said = folder / "answer.json", folder / "said.txt"
        words = [sys.executable, "-m", module.name, *sys.argv[1:], "--case", name, "--answer", str(answer)]
        with said.open("w") as file:
            process = subprocess.Popen(
                words,
                env=checkout.environment(**self._variables(device, folder)),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._running.add(process.pid)
        try:
            code = process.wait(limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return None
        finally:
            self._running.discard(process.pid)
        if answer.exists():
            found: Row = json.loads(answer.read_text())
            return found
        lines = [line for line in said.read_text(errors="replace").splitlines() if line.strip()]
        return {"failure": f"exit code {code}: {_error(lines)[:_LINE]}", "said": lines[-_SAID:]}

    def _variables(self, device: str | None, folder: Path) -> dict[str, str]:
        variables = {"TMPDIR": str(folder)}
        if self._given.jobs > 1:
            threads = max(2, len(os.sched_getaffinity(0)) // self._given.jobs)
            variables |= {name: str(threads) for name in _THREADS if name not in os.environ}
        if device is not None:
            variables["CUDA_VISIBLE_DEVICES"] = device
        return variables


def _error(lines: Sequence[str]) -> str:
    """The first line of the last exception that is printed, else the last line of all."""
    raised = [line for line in lines if _RAISED.match(line)]
    return (raised or lines or [""])[-1]


def _devices(given: argparse.Namespace) -> queue.SimpleQueue[str | None]:
    """The GPU of each of the cases at a time, in turn; None without."""
    found: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    names: Sequence[str | None] = [None]
    if getattr(given, "device", "") == "cuda" and not given.table:
        import torch

        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        names = visible.split(",") if visible else [str(number) for number in range(torch.cuda.device_count())]
    for number in range(given.jobs):
        found.put(names[number % len(names)])
    return found


def _machine(given: argparse.Namespace) -> str:
    """The torch, the machine, and how many cases run at once."""
    gpu = ""
    if getattr(given, "device", "") == "cuda" and not given.table:
        import torch

        gpu = torch.cuda.get_device_name()
    cores = f"{len(os.sched_getaffinity(0))} cores"
    return ", ".join(filter(None, (f"torch {metadata.version('torch')}", gpu, cores, f"--jobs {given.jobs}")))
