"""Runs tests for aoti_tests.py: their names come on the standard input, JSON lines go to the standard output.

usage: python -m benchmarks.comparison.aoti_tests_worker --tests FILE --device cpu|cuda --work DIR [--list]

A line is {"begun": CASE, "step": STEP}, a result, or {"ended": TEST}.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
import unittest
import warnings
from collections.abc import Callable
from pathlib import Path

import torch

from benchmarks.comparison.aoti_tests_case import TorchFailedError, judged, said
from benchmarks.comparison.aoti_tests_file import Case, Compiled, TorchTests
from benchmarks.comparison.aoti_tests_results import Outcome, Result

Write = Callable[[str], None]


class Models:
    """The models of one test, taken one after the other.

    Attributes:
        count: those that were begun.
    """

    def __init__(self, test: str, work: Path, write: Write) -> None:
        self.count = 0
        self._test, self._work, self._write = test, work, write
        self._taken: dict[tuple[object, ...], tuple[Case, Compiled]] = {}  # with the case, whose model has its address
        self._finished: list[Path] = []

    def take(self, case: Case) -> Compiled:
        """Judges a model, writes the result, and returns what plain AOTI has made of it. Raises what torch raises."""
        if (key := case.key()) in self._taken:
            return self._taken[key][1]
        self.count += 1
        name = self._test if self.count == 1 else f"{self._test}#{self.count}"
        folder = Path(tempfile.mkdtemp(dir=self._work))
        began = time.monotonic()
        try:
            found = judged(case, folder, lambda step: self._write(json.dumps({"begun": name, "step": step})))
        except TorchFailedError as error:
            cause = error.__cause__
            assert cause is not None
            self._finished.append(folder)
            self._tell(Result(name, Outcome.TORCH, said(cause), time.monotonic() - began))
            raise cause from None
        self._tell(Result(name, found.outcome, found.said, time.monotonic() - began))
        self._taken[key] = case, found.compiled
        self._finished += [] if found.outcome.is_wrong else [folder]
        return found.compiled

    def remove(self) -> None:
        """Removes the packages, and what they have recorded, of the models that have nothing wrong."""
        for folder in self._finished:
            shutil.rmtree(folder, ignore_errors=True)

    def _tell(self, result: Result) -> None:
        self._write(result.to_json())


def run(tests: TorchTests, test: str, work: Path, write: Write) -> None:
    """Runs a test and writes its results."""
    models, why = Models(test, work, write), "it compiles no model that is known here"
    began = time.monotonic()
    torch._dynamo.reset()
    try:
        tests.run(test, models.take)
    except unittest.SkipTest as skipped:
        why = f"skipped: {skipped}"
    except Exception as error:  # noqa: BLE001  # the assertions of the test; torch's errors have a result
        why = said(error)
    models.remove()
    if not models.count:
        write(Result(test, Outcome.NO_MODEL, why, time.monotonic() - began).to_json())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tests", type=Path, required=True, metavar="FILE")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--work", type=Path, required=True, metavar="DIR")
    parser.add_argument("--list", action="store_true", help="print the names of the tests")
    options = parser.parse_args()
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what tests and kernels print
    warnings.simplefilter("ignore")

    def write(line: str) -> None:
        print(line, file=channel, flush=True)

    try:
        tests = TorchTests(options.tests.resolve(), options.device)
    except (ImportError, unittest.SkipTest) as error:
        print(f"{options.tests}: {said(error)}", file=sys.stderr)
        return 2
    if options.list:
        write(json.dumps(tests.names))
        return 0
    os.chdir(options.work)
    for line in sys.stdin:
        test = line.strip()
        run(tests, test, options.work, write)
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()  # ends the process if its GPU cannot be used any more
        write(json.dumps({"ended": test}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
