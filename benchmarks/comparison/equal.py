"""Asks `aoti-debug equal` of public reports and of ordinary models: bug, switch or rounding?

usage: python -m benchmarks.comparison.equal [--models] [--device cpu|cuda] [--builds N] [--pairs N]
    [--jobs N] [--limit S] [--results FILE [--table]] [NAME ...]

The programs are those of equal_reports.py, with the kind of answer that is expected; with `--models` those of
benchmarks/models/ordinary_models.py, where the kind must not be a bug, and an end without a kind needs a reason.
Prints a Markdown table, and how many are right. Exit code 1: fewer than nine of ten are.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from aoti_debug.base.errors import AotiDebugError
from aoti_debug.compare.bisect.equal import EqualOptions, find_equal
from aoti_debug.compare.bisect.equal_result import EqualEnd, EqualSearch
from benchmarks import cases
from benchmarks.comparison.equal_reports import REPORTS, Called
from benchmarks.markdown import table
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


def reports(device: str) -> Iterator[Case]:
    for name, report in REPORTS.items():
        yield Case(
            f"{name} ({report.issue})",
            (report.kind_on(device),),
            lambda report=report: Called(report.call, **report.parts()),  # type: ignore[misc]
            report.inputs,
        )


def models() -> Iterator[Case]:
    for name, example in ordinary_models.ordinary().items():
        if example.dtype is torch.float32 and example.dynamic is None and not example.imports:
            yield Case(name, ("", "switch", "rounding"), example.module, example.inputs)


def on(case: Case, device: str) -> Case:
    """The case with its module and its inputs on a device."""
    if device == "cpu":
        return case
    return replace(
        case,
        module=lambda: case.module().to(device),
        inputs=lambda: pytree.tree_map_only(Tensor, lambda x: x.to(device), case.inputs()),
    )


def asked(case: Case, folder: Path, builds: int, pairs: int) -> EqualSearch:
    torch.manual_seed(0)
    program = folder / "program.pt2"
    with torch.no_grad():
        inputs = case.inputs()
        torch.export.save(torch.export.export(case.module().eval(), inputs), program)
    return find_equal(EqualOptions(program=program, out=folder / "out", max_builds=builds, pairs=pairs))


def is_right(case: Case, one: Mapping[str, Any]) -> bool:
    """True if the kind is expected; of an answer without a kind, if it is equal already or draws random numbers."""
    if "failure" in one:
        return False
    has_reason = one["end"] == EqualEnd.ALREADY.name.lower() or "random numbers" in one["reason"]
    return one["kind"] in case.expected and (bool(one["kind"]) or has_reason)


def row(case: Case, builds: int, pairs: int) -> dict[str, Any]:
    """What is said of a program, as JSON data."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            found = asked(case, Path(folder), builds, pairs)
        except AotiDebugError as error:
            return {"failure": str(error)}
    price = found.price
    return {
        "kind": found.kind,
        "end": found.end.name.lower(),
        "lines": found.lines,
        "reason": found.reason,
        "price": None if price is None else [price.ratio, price.low, price.high, price.before, price.after],
        "builds": len(found.trials),
    }


def cells(case: Case, one: Mapping[str, Any]) -> tuple[str, ...]:
    expected = " or ".join(kind or "equal" for kind in case.expected)
    if "failure" in one:
        return (case.name, expected, "", "no", one["failure"], "", "", "", f"{one['seconds']:.0f}")
    lines = "; ".join(f"`{line}`" for line in one["lines"])
    price = "" if one["price"] is None else "{:.2f} ({:.2f} to {:.2f})".format(*one["price"][:3])
    kind, right = one["kind"] or one["end"], "yes" if is_right(case, one) else "no"
    return (case.name, expected, kind, right, one["end"], lines, price, str(one["builds"]), f"{one['seconds']:.0f}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="how the names of programs begin")
    parser.add_argument("--models", action="store_true")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--builds", type=int, default=25)
    parser.add_argument("--pairs", type=int, default=0)
    cases.add_options(parser, limit=1200)
    given = parser.parse_args()
    chosen = {
        case.name: case
        for case in (models() if given.models else reports(given.device))
        if case.name.startswith(tuple(given.names) or "")
    }
    rows = cases.run(list(chosen), given, lambda name: row(on(chosen[name], given.device), given.builds, given.pairs))
    header = ("program", "expected", "kind", "right", "end", "changes", "time, all together", "builds", "seconds")
    table(header, [cells(chosen[one["case"]], one) for one in rows])
    right = sum(is_right(chosen[one["case"]], one) for one in rows)
    print(f"{right} of {len(rows)} are right")
    return 0 if right >= _ENOUGH * len(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
