"""Asks aoti-debug about programs after public reports, and holds each sentence of its answers against the truth.

usage: python -m benchmarks.triage.reports [--only GLOB ...] [--jobs N] [--work DIR] [--kept] [--truth] [--json FILE]

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
import json
import multiprocessing
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TypeVar

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from benchmarks.triage.public_reports import answers
from benchmarks.triage.public_reports.all_reports import REPORTS
from benchmarks.triage.public_reports.answers import Answer
from benchmarks.triage.public_reports.build import TRUTH, build, find_truth
from benchmarks.triage.public_reports.judge import Judgement, judge
from benchmarks.triage.public_reports.report import Report

ENOUGH = 0.9  # of the culprits
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["benchmarks.triage.public_reports.build"])


@dataclass(frozen=True)
class Row:
    report: Report
    answer: Answer
    judgement: Judgement


def main() -> int:
    options = _options()
    chosen = [r for r in REPORTS.values() if any(fnmatchcase(r.name, pattern) for pattern in options.only)]
    if not chosen:
        raise SystemExit(f"no such report; there are {', '.join(REPORTS)}")
    with tempfile.TemporaryDirectory(prefix="aoti-debug-reports-") as temporary:
        work = Path(options.work or temporary).resolve()
        if options.truth:
            return int(not all(_each(chosen, options.jobs, lambda report: _is_true(report, work / report.name))))
        if options.kept:
            chosen = [report for report in chosen if (work / report.name / answers.KEPT).exists()]
        ask = answers.kept_answer if options.kept else _asked
        rows = list(_each(chosen, options.jobs, lambda report: _row(report, ask(report, work / report.name))))
    console = Console(width=None if sys.stdout.isatty() else 180)
    console.print(_table(rows))
    wrong = [f"{row.report.name}: {text}" for row in rows for text in row.judgement.wrong]
    errors = [f"{row.report.name}: {row.answer.said}" for row in rows if row.answer.said]
    for text in (*wrong, *errors):
        console.print(escape(text), soft_wrap=True, highlight=False)
    faulty = [row for row in rows if row.judgement.wanted]
    named = sum(row.judgement.names_culprit for row in faulty)
    with_element = [row for row in faulty if "element" in row.judgement.wanted]
    elements = sum("element" in row.judgement.named for row in with_element)
    print(f"right verdicts: {sum(row.judgement.is_right for row in rows)} of {len(rows)}")
    print(f"culprit named: {named} of {len(faulty)}; its input element: {elements} of {len(with_element)}")
    print(f"wrong statements: {len(wrong)}, in {sum(bool(row.judgement.wrong) for row in rows)} of {len(rows)} answers")
    if options.json:
        plain = [{"report": r.report.name, "answer": asdict(r.answer), **asdict(r.judgement)} for r in rows]
        Path(options.json).write_text(json.dumps(plain, indent=1))
    return int(bool(wrong) or named < ENOUGH * len(faulty))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="GLOB", default=["*"], help="reports by number and part: '1836*'")
    parser.add_argument("--jobs", type=int, metavar="N", default=1, help="how many at once")
    parser.add_argument("--work", metavar="DIR", help="keep programs and answers there")
    parser.add_argument("--json", metavar="FILE", help="also write answers and judgements")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--kept", action="store_true", help="judge the answers in --work again")
    which.add_argument("--truth", action="store_true", help="only check what eager and the plain package do")
    return parser.parse_args()


Result = TypeVar("Result")


def _each(reports: list[Report], jobs: int, do: Callable[[Report], Result]) -> list[Result]:
    with ThreadPoolExecutor(jobs) as pool:
        return list(pool.map(do, reports))


def _row(report: Report, answer: Answer) -> Row:
    row = Row(report, answer, judge(report, answer))
    got = f"{'right' if row.judgement.is_right else 'OTHER'}, {len(row.judgement.wrong)} wrong statements"
    print(f"{report.name}: {answer.kind}, {got}, {answer.seconds:.0f} s", file=sys.stderr, flush=True)
    return row


def _asked(report: Report, folder: Path) -> Answer:
    if _in_process(build, report, folder):
        said = (folder / "build.log").read_text().strip().splitlines()
        return Answer("no program", (), (), (), (), 1, 0.0, "\n".join(said[-1:]))
    return answers.ask(report, folder)


def _is_true(report: Report, folder: Path) -> bool:
    """Whether eager and the plain package do what the report says; prints what they do."""
    code = _in_process(find_truth, report, folder)
    said = (folder / TRUTH).read_text() if code == 0 else (folder / "truth.log").read_text()[-600:]
    true = said.startswith(report.plain)
    print(f"{report.name}: {'true' if true else f'NOT TRUE, {report.plain} wanted'}: {said}", flush=True)
    return true


def _in_process(do: Callable[[str, Path], None], report: Report, folder: Path) -> int | None:
    """The exit code of a process, forked from one that has imported torch."""
    process = PROCESSES.Process(target=do, args=(report.name, folder))
    process.start()
    process.join()
    return process.exitcode


def _table(rows: list[Row]) -> Table:
    table = Table(title="public reports", title_justify="left")
    for name in ("report", "what", "command", "verdict", "", "culprit named", "wrong statements"):
        table.add_column(name, overflow="fold")
    table.add_column("seconds", justify="right")
    for row in rows:
        judged = row.judgement
        missing = [f"no {what}" for what in judged.wanted if what not in judged.named]
        named = ("yes" if judged.names_culprit else "NO") if judged.wanted else ""
        table.add_row(
            row.report.name,
            row.report.title,
            row.report.command,
            row.answer.kind,
            "right" if judged.is_right else f"other: {' or '.join(row.report.kinds)}",
            f"{named}{': ' if missing else ''}{', '.join(missing)}",
            str(len(judged.wrong)),
            f"{row.answer.seconds:.0f}",
        )
    return table


if __name__ == "__main__":
    sys.exit(main())
