"""The result of a minimisation, as lines of text and as one JSON object (docs/minify.schema.json)."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Any

from aoti_debug.base import wording
from aoti_debug.base.frozen import dataclass
from aoti_debug.runs.diagnosis import findings
from aoti_debug.runs.diagnosis.findings import Finding
from aoti_debug.triage.minify.script_results import ScriptTrial, ScriptVerdict, TriageAnswer, TriagedScript

FORMAT = 1
_MAX_OPERATORS = 6


@dataclass(frozen=True)
class Smallest:
    """The smallest part that shows the finding, as a script.

    Attributes:
        script: its path; files of inputs lie beside it.
        lines: how many it has.
        calls: how many operators it calls.
        among: how many those of its start are.
        start: "launch 0.3", "the program".
        operators: the names of these.
        observed: the finding as the script says it.
        fails_in_eager: a call of it ends the process, or raises an error, in eager, too.
        shown, runs: how often the script showed it, when it was run so many times in fresh processes; of a finding that
            does not show itself every time, how often within one process of the script.
        verdict: of a triage of the part as a program.
        program: that program; None if the part cannot be exported.
    """

    script: Path
    lines: int
    calls: int
    among: int
    start: str
    operators: tuple[str, ...]
    observed: str
    fails_in_eager: bool
    shown: int
    runs: int
    verdict: ScriptVerdict
    program: Path | None = None


@dataclass(frozen=True)
class Minified:
    """A finding, and the smallest script that shows it.

    Attributes:
        trials: all scripts that were run, those of an earlier, interrupted minimisation first.
        earlier: how many of them that were.
        smallest: the part that a triage confirmed, else the smallest of all; None if no script showed the finding, or
            there is none.
        refused: parts that a triage did not confirm, in order.
        notes: starts that could not be used, and why.
    """

    finding: Finding
    trials: tuple[ScriptTrial, ...]
    earlier: int
    smallest: Smallest | None = None
    refused: tuple[TriagedScript, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def is_clean(self) -> bool:
        """True if there was nothing to minimise."""
        return not self.finding.kind.is_fault

    @property
    def is_confirmed(self) -> bool:
        """True if there is a script that a triage confirmed."""
        return self.smallest is not None and self.smallest.verdict.confirmation is TriageAnswer.YES


def document(found: Minified) -> dict[str, Any]:
    """The JSON object; times in seconds."""
    return {
        "format": FORMAT,
        "finding": findings.to_json(found.finding),
        "confirmed": found.is_confirmed,
        "smallest": None if found.smallest is None else _smallest_data(found.smallest),
        "refused": [{"name": item.name, "verdict": _verdict_data(item.verdict)} for item in found.refused],
        "trials": [asdict(trial) for trial in found.trials],
        "earlier": found.earlier,
        "notes": list(found.notes),
    }


def _smallest_data(smallest: Smallest) -> dict[str, Any]:
    return {
        **asdict(smallest),
        "script": str(smallest.script),
        "operators": list(smallest.operators),
        "verdict": _verdict_data(smallest.verdict),
        "program": None if smallest.program is None else str(smallest.program),
    }


def _verdict_data(verdict: ScriptVerdict) -> dict[str, Any]:
    return {"confirmation": verdict.confirmation.value, "text": verdict.text}


def _baseline_text(finding: Finding) -> str:
    """The line on a baseline that shows no fault."""
    if finding.kind == findings.UNFINISHED:
        return f"{finding.kind.heading} {finding.what}"
    reached = f" as far as compared: {finding.what}" if finding.kind == findings.INCOMPLETE else ""
    return f"NOTHING WRONG in the baseline{reached}"


def minified_lines(found: Minified) -> list[str]:
    """The finding, the smallest part that shows it, and how often its script does."""
    scripts = wording.pluralize(len(found.trials), "script")
    lines = [f"note: {note}" for note in found.notes]
    if found.earlier:
        lines.append(f"note: the first {wording.pluralize(found.earlier, 'script')} had been run before")
    if found.is_clean:
        is_over = found.finding.kind == findings.UNFINISHED
        return [
            *lines,
            _baseline_text(found.finding),
            *(f"hint: {command}" for command in found.finding.next if is_over),
            *(() if is_over else ("hint: pass the inputs, settings and --import that it is wrong with",)),
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
