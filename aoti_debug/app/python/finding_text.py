"""Findings as Python prints them and notebooks show them."""

from __future__ import annotations

import html
from collections.abc import Sequence

from aoti_debug.base import wording
from aoti_debug.runs.diagnosis.findings import Finding
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.runs.show.finding import place_text

WIDTH = 100  # columns of what is printed
TABLE_WIDTH = 200  # enough for all columns of a table
_FRAME = '<iframe style="width: 100%; height: 45em; border: 1px solid #ccc" srcdoc="{}"></iframe>'


def lines(finding: Finding, runs: Sequence[RunDir]) -> list[str]:
    """The finding, its place, what shows it, the runs, and what to type next, a line each.

    Args:
        runs: of several, each with its package.
    """
    found = [f"{finding.heading} {finding.what}"]
    if (where := finding.where) is not None:
        line = "" if where.frame is None else where.frame.place
        place = f"{where.launch} {where.kernel}" if where.launch else place_text(where)
        found.append(f"  at    {place}  {line}".rstrip())
    found += [f"  why   {sentence}" for sentence in finding.evidence]
    found += [f"  note  {sentence}" for sentence in finding.warnings]
    found += [f"  run   {run.path}{_package(run) if len(runs) > 1 else ''}" for run in runs]
    return [*found, *(f"  next  {command}" for command in finding.next)]


def _package(run: RunDir) -> str:
    package = "another package" if run.package is None else run.package.name
    return f"  {wording.pluralize(len(run.launches), 'launch')} of {package}"


def framed(page: str) -> str:
    """A page within the output of a notebook's cell."""
    return _FRAME.format(html.escape(page))
