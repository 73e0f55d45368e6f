"""What became of operators of PyTorch's database: lines of a file, tables, and known bugs of torch that stop some."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from enum import Enum
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import torch

from benchmarks import markdown, rows_file
from benchmarks.models.operator_samples import Target
from benchmarks.rows_file import DEVICE, TORCH


class Outcome(str, Enum):
    """What became of an operator."""

    GOOD = "good"
    NO_EXPORT = "torch.export cannot"
    NO_AOTI = "plain AOTI cannot"
    UNSTEADY = "not deterministic in plain"
    KNOWN = "known bug of torch"
    FAILED = "FAILED"
    OTHER_BITS = "OTHER BITS"
    COMPARED = "COMPARED OTHERWISE"
    REPLAYED = "REPRO DIFFERS"

    @property
    def is_unexplained(self) -> bool:
        return self in (Outcome.FAILED, Outcome.OTHER_BITS, Outcome.COMPARED, Outcome.REPLAYED)

    @property
    def counts(self) -> bool:
        """True if plain AOTI can do it, so that the instrumented package has to as well."""
        return self in (Outcome.GOOD, Outcome.KNOWN) or self.is_unexplained


@dataclass(frozen=True)
class Result:
    """What became of an operator.

    Attributes:
        said: the reason, in the words of whoever gives it; of a good one what was compared and replayed.
    """

    operator: str
    outcome: Outcome
    said: str

    @property
    def text(self) -> str:
        return f"{self.operator}: {self.outcome.value}: {self.said}"


@dataclass(frozen=True)
class Row:
    """A result with what it was measured on.

    Attributes:
        torch: the version.
    """

    target: Target
    result: Result
    torch: str = torch.__version__

    @property
    def data(self) -> dict[str, Any]:
        """The row as a line of a file holds it."""
        place = {TORCH: self.torch, DEVICE: self.target.device}
        return {**asdict(self.result), **place, "target": asdict(self.target)}

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Row:
        """The row of a line."""
        result = Result(row["operator"], Outcome(row["outcome"]), row["said"])
        return cls(Target(**row["target"]), result, row[TORCH])


class Rows:
    """Results in a file, one a line, which grows as they come; those of each torch and device are kept apart."""

    def __init__(self, file: Path) -> None:
        self._file, self._lock = file, threading.Lock()
        self.rows = [Row.of(row) for row in rows_file.lines(file)]
        mine = (row for row in self.rows if row.torch == torch.__version__)
        self._known = {self._key(row.target, row.result.operator) for row in mine}

    def has(self, target: Target, operator: str) -> bool:
        """True if there is a result of this torch."""
        return self._key(target, operator) in self._known

    def add(self, row: Row) -> None:
        """Keeps a result; prints one that is not good."""
        with self._lock:
            self.rows.append(row)
            self._known.add(self._key(row.target, row.result.operator))
            rows_file.append(self._file, row.data)
            if row.result.outcome is not Outcome.GOOD:
                print(f"{row.target.label} {row.result.text}", file=sys.stderr, flush=True)

    @staticmethod
    def _key(target: Target, operator: str) -> tuple[str, str, str]:
        return target.device, target.label, operator


@dataclass(frozen=True)
class KnownBug:
    """A bug of torch that makes an operator come out otherwise than it should.

    Attributes:
        operator, dtype, device: patterns.
        outcome: what it looks like here.
        reason: what is wrong in torch.
    """

    operator: str
    dtype: str
    device: str
    outcome: Outcome
    reason: str


NO_REPRO = "cannot be replayed"  # how the words of a good operator begin where no launch of it can
REPLAYED = " replayed"  # how they end after a launch that was
UNDEFINED = frozenset(  # operators that return memory which nothing has written
    (
        "empty",
        "empty_like",
        "empty_permuted",
        "empty_strided",
        "new_empty",
        "new_empty_strided",
        "resize_",
        "resize_as_",
    )
)
KNOWN_BUGS = (
    KnownBug(
        "expm1",
        "float32",
        "cpu",
        Outcome.COMPARED,
        "Inductor's vectorised expm1 is 130 ULP off near zero on the CPU",
    ),
)


def explained(result: Result, target: Target) -> Result:
    """The result; one that a known bug of torch explains names it."""
    for bug in KNOWN_BUGS:
        is_meant = result.outcome is bug.outcome and fnmatchcase(result.operator, bug.operator)
        if is_meant and fnmatchcase(target.dtype, bug.dtype) and fnmatchcase(target.device, bug.device):
            return Result(result.operator, Outcome.KNOWN, f"{bug.reason} ({result.said})")
    return result


def print_tables(rows: Iterable[Row]) -> int:
    """Prints a table for each torch and device, and what is not good; 1 if something of it is unexplained."""
    parts: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        parts.setdefault((row.torch, row.target.device), []).append(row)
    for (version, device), part in sorted(parts.items()):
        print(f"torch {version}, {device}\n")
        _print_table(part)
    return int(any(row.result.outcome.is_unexplained for part in parts.values() for row in part))


def _print_table(rows: list[Row]) -> None:
    of_label: dict[str, list[Result]] = {}
    for row in sorted(rows, key=lambda row: (row.target.label, row.result.operator)):
        of_label.setdefault(row.target.label, []).append(row.result)
    shown = [outcome for outcome in Outcome if not outcome.is_unexplained]
    cells = []
    for label, results in of_label.items():
        count = Counter(result.outcome for result in results)
        unexplained = sum(result.outcome.is_unexplained for result in results)
        replayed = sum(REPLAYED in result.said for result in results if result.outcome is Outcome.GOOD)
        numbers = (len(results), *(count[outcome] for outcome in shown), replayed, unexplained)
        cells.append((label, *map(str, numbers)))
    header = ("dtype", "operators", *(outcome.value for outcome in shown), "of the good replayed", "unexplained")
    markdown.table(header, cells)
    for outcome in Outcome:
        if outcome is not Outcome.GOOD:
            for label, results in of_label.items():
                for result in results:
                    if result.outcome is outcome:
                        print(f"{label} {result.text}")
    everything = [result for results in of_label.values() for result in results]
    counting = [result for result in everything if result.outcome.counts]
    right = sum(not result.outcome.is_unexplained for result in counting)
    share = 100 * right / len(counting) if counting else 0.0
    print(f"\n{right} of {len(counting)} operators that count are right or explained: {share:.1f} %")
    for label, results in of_label.items():
        for result in results:
            if result.outcome is Outcome.GOOD and REPLAYED not in result.said:
                print(f"{label} {result.operator}: nothing replayed: {result.said}")
