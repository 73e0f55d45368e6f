"""The result of a minimisation."""

from __future__ import annotations

from pathlib import Path

from aoti_debug.base.lazy.dataclass import dataclass
from aoti_debug.runs.diagnosis.findings import Finding
from aoti_debug.triage.minify.scripts.script_results import ScriptTrial
from aoti_debug.triage.minify.scripts.triage_verdict import ScriptVerdict, TriageAnswer, TriagedScript


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
