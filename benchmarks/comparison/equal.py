"""Asks `aoti-debug equal` of public reports and of ordinary models: bug, switch or rounding?

usage: python -m benchmarks.comparison.equal [--models] [--builds N] [--pairs N] [NAME ...]

The programs are those of equal_reports.py, with the kind of answer that is expected; with `--models` those of
benchmarks/models/ordinary_models.py, where the kind must not be a bug, and an end without a kind needs a reason.
Prints a row of a Markdown table for each when it is done, and how many are right. Exit code 1: fewer than nine of ten
are.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from aoti_debug.base.errors import AotiDebugError
from aoti_debug.compare.bisect.equal import EqualOptions, find_equal
from aoti_debug.compare.bisect.equal_result import EqualEnd, EqualSearch
from benchmarks.comparison.equal_reports import REPORTS, Called
from benchmarks.models import ordinary_models

_ENOUGH = 0.9


@dataclass(frozen=True)
class Case:
    """A program to ask about.

    Attributes:
        name: with the number of its issue.
        expected: the kinds that are right; "" for no difference.
        module: makes it.
        inputs: makes its inputs.
    """

    name: str
    expected: tuple[str, ...]
    module: Callable[[], nn.Module]
    inputs: Callable[[], tuple[Any, ...]]


def reports() -> Iterator[Case]:
    for name, report in REPORTS.items():
        yield Case(
            f"{name} ({report.issue})",
            (report.kind,),
            lambda report=report: Called(report.call, **report.parts()),  # type: ignore[misc]
            report.inputs,
        )


def models() -> Iterator[Case]:
    for name, example in ordinary_models.ordinary().items():
        if example.dtype is torch.float32 and example.dynamic is None and not example.imports:
            yield Case(name, ("", "switch", "rounding"), example.module, example.inputs)


def asked(case: Case, folder: Path, builds: int, pairs: int) -> EqualSearch:
    torch.manual_seed(0)
    program = folder / "program.pt2"
    with torch.no_grad():
        inputs = case.inputs()
        torch.export.save(torch.export.export(case.module().eval(), inputs), program)
    return find_equal(EqualOptions(program=program, out=folder / "out", max_builds=builds, pairs=pairs))


def is_right(case: Case, found: EqualSearch) -> bool:
    """True if the kind is expected; of an answer without a kind, if it is equal already or draws random numbers."""
    has_reason = found.end is EqualEnd.ALREADY or "random numbers" in found.reason
    return found.kind in case.expected and (bool(found.kind) or has_reason)


def row(case: Case, found: EqualSearch, seconds: float) -> str:
    expected = " or ".join(kind or "equal" for kind in case.expected)
    kind = found.kind or found.end.name.lower()
    lines = "; ".join(f"`{line}`" for line in found.lines)
    price = "" if found.price is None else f"{found.price.ratio:.2f} ({found.price.low:.2f} to {found.price.high:.2f})"
    cells = (case.name, expected, kind, "yes" if is_right(case, found) else "no", found.end.name.lower(), lines, price)
    return f"| {' | '.join(cells)} | {len(found.trials)} | {seconds:.0f} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--models", action="store_true")
    parser.add_argument("--builds", type=int, default=25)
    parser.add_argument("--pairs", type=int, default=0)
    given = parser.parse_args()
    chosen = [
        case for case in (models() if given.models else reports()) if case.name.startswith(tuple(given.names) or "")
    ]
    right = 0
    print("| program | expected | kind | right | end | changes | time, all together | builds | seconds |")
    print("|---|---|---|---|---|---|---|---|---|", flush=True)
    for case in chosen:
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            try:
                found = asked(case, Path(folder), given.builds, given.pairs)
            except AotiDebugError as error:
                print(f"| {case.name} | {' or '.join(case.expected)} | | no | {error} | | | | |", flush=True)
                continue
        right += is_right(case, found)
        print(row(case, found, time.monotonic() - began), flush=True)
    print(f"\n{right} of {len(chosen)} are right")
    return 0 if right >= _ENOUGH * len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main())
