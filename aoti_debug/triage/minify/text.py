"""A minimisation as lines of text."""

from __future__ import annotations

import shlex

from aoti_debug.base import wording
from aoti_debug.triage.minify.minified import Minified, Smallest

_MAX_OPERATORS = 6


def minified_lines(found: Minified) -> list[str]:
    """The finding, the smallest part that shows it, and how often its script does."""
    scripts = wording.pluralize(len(found.trials), "script")
    lines = [f"note: {note}" for note in found.notes]
    if found.earlier:
        lines.append(f"note: the first {wording.pluralize(found.earlier, 'script')} had been run before")
    if found.is_clean:
        return [
            *lines,
            "NOTHING WRONG in the baseline",
            "hint: pass the inputs, settings and --import that it is wrong with",
        ]
    where = found.finding.where
    place = f" in {where.launch} {where.kernel}" if where is not None and where.launch else ""
    lines.append(f"{found.finding.kind.heading} {wording.first_line(found.finding.what)}{place}")
    if found.smallest is None:
        return [*lines, f"NOT SHOWN by a script that needs only torch; {scripts}"]
    return [*lines, *_smallest(found.smallest), *_refused(found), f"  tried    {scripts}"]


def _refused(found: Minified) -> list[str]:
    """The smaller parts that were not confirmed; that it was not either, and what else was triaged."""
    others = [f"  refused  {item.name}: {item.verdict.line}" for item in found.refused]
    if found.is_confirmed or not others:
        return others
    return [*others[1:], f"  note     none of {wording.pluralize(len(others), 'part')} was confirmed by a triage"]


def _smallest(found: Smallest) -> list[str]:
    in_eager = ["  note     it fails in eager, too"] if found.fails_in_eager else []
    operators = wording.join_truncated(list(found.operators), _MAX_OPERATORS)
    calls = f"{wording.pluralize(found.calls, 'call')} of {found.among} of {found.start}"
    times = "every time" if found.shown == found.runs else "FLAKY: not every time"
    return [
        f"SMALLEST {calls}: {operators}",
        f"  observed {found.observed}",
        f"  verdict  {found.verdict.line}",
        *in_eager,
        f"  shown    in {found.shown} of {wording.pluralize(found.runs, 'run')}, {times}",
        f"  script   {found.script}, {wording.pluralize(found.lines, 'line')}",
        f"  next     {shlex.join(['python', str(found.script)])}",
    ]
