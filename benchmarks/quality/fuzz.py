"""Sends damaged contents to every reader of untrusted input, for as long as it is told.

usage: python -m benchmarks.quality.fuzz [--minutes M] [--only READER ...] [--seed N]

Contents that fail are written to tests/fuzz/corpus, where the suite reads them from then on. A failure is an exit code
that is no error, an unclear line, a file outside, more than 10 s or more than 1 GiB of memory. Prints a Markdown table;
exits with 1 after a failure.
"""

from __future__ import annotations

import argparse
import itertools
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from hashlib import sha256
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings

from benchmarks.checkout import ROOT
from tests.fuzz import changed, readers

CORPUS = ROOT / "tests" / "fuzz" / "corpus"
BATCH = 200  # cases
PATIENCE = 10  # seconds that a case may take
MEMORY = 1 << 30  # bytes that a case may take


class TooSlowError(Exception):
    """A case took too long."""


class Failures:
    """The failures of a reader, one for each place in the code."""

    def __init__(self, reader: readers.Reader) -> None:
        self.reader = reader
        self.cases = 0
        self.places: dict[str, str] = {}

    def run_batch(self, folder: Path, number: int) -> None:
        """Sends a batch of contents; a failure ends none of them."""
        numbers = itertools.count()

        @seed(number)
        @settings(
            max_examples=BATCH,
            database=None,
            deadline=None,
            phases=(Phase.generate,),
            suppress_health_check=list(HealthCheck),
        )
        @given(data=changed.contents(self.reader))
        def send(data: bytes) -> None:
            inner = folder / str(next(numbers))
            inner.mkdir()
            self._send(data, inner)
            shutil.rmtree(inner)

        send()

    def _send(self, data: bytes, folder: Path) -> None:
        self.cases += 1
        signal.alarm(PATIENCE)
        try:
            readers.check(self.reader, data, folder)
        except Exception as error:  # noqa: BLE001 - each is a failure that is written down
            self._keep(data, error)
        finally:
            signal.alarm(0)

    def _keep(self, data: bytes, error: Exception) -> None:
        place = _place(error)
        if place in self.places:
            return
        self.places[place] = f"{type(error).__name__}: {str(error)[:300]}"
        path = CORPUS / self.reader.name / sha256(data).hexdigest()[:12]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        print(f"{self.reader.name}: {place}: {self.places[place]}\n  {path.relative_to(ROOT)}", flush=True)


def _place(error: Exception) -> str:
    """Where in the code an error was raised; a command tells it in its line."""
    told = re.search(r"\((\w+\.py:\d+)\)", str(error))
    if told:
        return told.group(1)
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "aoti_debug" in f.filename]
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else type(error).__name__


def _too_slow(_: int, __: object) -> None:
    raise TooSlowError(f"more than {PATIENCE} s")


def _limit_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [reader.name for reader in readers.readers()]
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=time.time_ns())
    parser.add_argument("--only", nargs="*", choices=names, default=names)
    arguments = parser.parse_args()
    signal.signal(signal.SIGALRM, _too_slow)
    states = [Failures(reader) for reader in readers.readers() if reader.name in arguments.only]
    with tempfile.TemporaryDirectory() as folder:
        for state in states:  # imports what the readers import late
            state.run_batch(_fresh(Path(folder)), 0)
        _limit_memory()
        deadline = time.monotonic() + 60 * arguments.minutes
        for number in itertools.count(arguments.seed):
            for state in states:
                if time.monotonic() < deadline:
                    state.run_batch(_fresh(Path(folder)), number)
            if time.monotonic() >= deadline:
                break
    print("\n| reader | cases | failures |\n|---|---|---|")
    for state in states:
        print(f"| {state.reader.name} | {state.cases} | {len(state.places)} |")
    failures = sum(len(state.places) for state in states)
    print(f"| all | {sum(state.cases for state in states)} | {failures} |")
    return 1 if failures else 0


def _fresh(base: Path) -> Path:
    return Path(tempfile.mkdtemp(dir=base))


if __name__ == "__main__":
    sys.exit(main())
