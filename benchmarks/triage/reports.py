"""Asks aoti-debug about programs after public reports, and holds each sentence of its answers against the truth.

usage: python -m benchmarks.triage.reports [--only GLOB ...] [--work DIR] [--kept | --truth]
    [--jobs N] [--limit S] [--results FILE [--table]]

Each program of public_reports is built in a process of its own, in which the fault of its report may be
planted. Then one command of aoti-debug is asked about it. A verdict is right if its kind is one of those that the
report allows; the culprit is named if the answer names its operator, its model line or its input element. Wrong
statements are counted, and listed below the table: values that an input does not have, origins that are none, faults
that are called clean, healthy models that are not, and what the report lists as false. --truth asks nothing: it runs
each program in eager and as a package that torch compiles alone. --kept judges the answers in --work again. Exit code
1: a statement is wrong, or less than 90 % of the culprits are named.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from benchmarks import cases
from benchmarks.rows_file import Row
from benchmarks.triage.public_reports import answers
from benchmarks.triage.public_reports.all_reports import REPORTS
from benchmarks.triage.public_reports.answers import Answer
from benchmarks.triage.public_reports.build import TRUTH, build, find_truth
from benchmarks.triage.public_reports.judge import judge
from benchmarks.triage.public_reports.report import Report

ENOUGH = 0.9  # of the culprits
LIMIT = 1600.0  # seconds of a report
PROCESSES = multiprocessing.get_context("spawn")  # the program may end its process in any way


def main() -> int:
    options = _options()
    chosen = {r.name: r for r in REPORTS.values() if any(fnmatchcase(r.name, pattern) for pattern in options.only)}
    if not chosen:
        raise SystemExit(f"no such report; there are {', '.join(REPORTS)}")
    if options.kept:
        chosen = {name: r for name, r in chosen.items() if (Path(options.work, name) / answers.KEPT).exists()}
    rows = cases.run(list(chosen), options, lambda name: _row(chosen[name], options))
    if options.truth:
        for row in rows:
            print(f"{row['case']}: {row.get('truth', row.get('failure'))}")
        return int(not all(row.get("is_true") for row in rows))
    return _judged([(chosen[row["case"]], row) for row in rows])


def _judged(rows: list[tuple[Report, Row]]) -> int:
    """Prints what was asked of reports, and what is wrong; the exit code."""
    console = Console(width=None if sys.stdout.isatty() else 180)
    console.print(_table(rows))
    for report, row in rows:
        for text in (*row.get("wrong", ()), *filter(None, (row.get("failure", row.get("said")),))):
            console.print(escape(f"{report.name}: {text}"), soft_wrap=True, highlight=False)
    judged = [row for _, row in rows if "failure" not in row]
    faulty = [row for row in judged if row["wanted"]]
    named = sum(bool(row["named"]) for row in faulty)
    with_element = [row for row in faulty if "element" in row["wanted"]]
    elements = sum("element" in row["named"] for row in with_element)
    wrong = [row for row in judged if row["wrong"]]
    print(f"right verdicts: {sum(row['is_right'] for row in judged)} of {len(rows)}")
    print(f"culprit named: {named} of {len(faulty)}; its input element: {elements} of {len(with_element)}")
    print(f"wrong statements: {sum(len(row['wrong']) for row in wrong)}, in {len(wrong)} of {len(judged)} answers")
    return int(bool(wrong) or len(judged) < len(rows) or named < ENOUGH * len(faulty))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="GLOB", default=["*"], help="reports by number and part: '1836*'")
    parser.add_argument("--work", metavar="DIR", help="keep programs and answers there")
    cases.add_options(parser, limit=LIMIT)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--kept", action="store_true", help="judge the answers in --work again")
    which.add_argument("--truth", action="store_true", help="only check what eager and the plain package do")
    options = parser.parse_args()
    if options.kept and not options.work:
        parser.error("--kept needs --work")
    return options


def _row(report: Report, options: argparse.Namespace) -> dict[str, Any]:
    """The answer about a report and the judgement, or the truth about it, as JSON data."""
    with tempfile.TemporaryDirectory(prefix="aoti-debug-reports-") as temporary:
        folder = Path(options.work or temporary).resolve() / report.name
        if options.truth:
            return _truth(report, folder)
        answer = answers.kept_answer(report, folder) if options.kept else _asked(report, folder)
        return {"answer": asdict(answer), "kind": answer.kind, "said": answer.said, **asdict(judge(report, answer))}


def _asked(report: Report, folder: Path) -> Answer:
    if _in_process(build, report, folder):
        said = (folder / "build.log").read_text().strip().splitlines()
        return Answer("no program", (), (), (), (), 1, 0.0, "\n".join(said[-1:]))
    return answers.ask(report, folder)


def _truth(report: Report, folder: Path) -> dict[str, Any]:
    """Whether eager and the plain package do what the report says, and what they do."""
    code = _in_process(find_truth, report, folder)
    said = (folder / TRUTH).read_text() if code == 0 else (folder / "truth.log").read_text()[-600:]
    is_true = said.startswith(report.plain)
    return {"is_true": is_true, "truth": f"{'true' if is_true else f'NOT TRUE, {report.plain} wanted'}: {said}"}


def _in_process(do: Callable[[str, Path], None], report: Report, folder: Path) -> int | None:
    """The exit code of a process, forked from one that has imported torch."""
    process = PROCESSES.Process(target=do, args=(report.name, folder))
    process.start()
    process.join()
    return process.exitcode


def _table(rows: list[tuple[Report, Row]]) -> Table:
    table = Table(title="public reports", title_justify="left")
    for name in ("report", "what", "command", "verdict", "", "culprit named", "wrong statements"):
        table.add_column(name, overflow="fold")
    table.add_column("seconds", justify="right")
    for report, row in rows:
        wanted, named = row.get("wanted", ()), row.get("named", ())
        missing = [f"no {what}" for what in wanted if what not in named]
        culprit = ("yes" if named else "NO") if wanted else ""
        table.add_row(
            report.name,
            report.title,
            report.command,
            row.get("kind", "failure"),
            "right" if row.get("is_right") else f"other: {' or '.join(report.kinds)}",
            f"{culprit}{': ' if missing else ''}{', '.join(missing)}",
            str(len(row.get("wrong", ()))),
            f"{row['seconds']:.0f}",
        )
    return table


if __name__ == "__main__":
    sys.exit(main())
