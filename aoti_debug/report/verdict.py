"""The verdict on a run as a finding, so that one page shows runs and triages."""

from __future__ import annotations

from aoti_debug import wording
from aoti_debug.diagnosis import commands
from aoti_debug.diagnosis.findings import Finding, FindingKind, place_of
from aoti_debug.diagnosis.verdict import Proof, Verdict, diagnose
from aoti_debug.rundir.run_directory import RunDir
from aoti_debug.rundir.run_json import ExitKind

_LISTED = 8  # suspects


def finding_of(run: RunDir) -> Finding:
    """The verdict on a run as a finding; of kind CLEAN for a clean run and for one that is still running."""
    verdict = diagnose(run)
    if verdict is None:
        launched = wording.count(len(run.launches), "launch")
        going_on = run.state is ExitKind.RUNNING
        what = f"still running: {launched} so far" if going_on else f"{launched}, no fault"
        return Finding(FindingKind.CLEAN, what, next=(commands.show(run),))
    kind = FindingKind.HANG if run.state is ExitKind.TIMEOUT else FindingKind.FAULT
    where = place_of(verdict.launch) if verdict.launch is not None else None
    return Finding(
        kind,
        wording.first_line(verdict.what),
        where,
        evidence=(verdict.why, *_more(verdict)),
        next=verdict.next_commands,
    )


def _more(verdict: Verdict) -> list[str]:
    found = []
    if verdict.proof is Proof.LIKELY:
        found.append("it was running; nothing says that it did wrong")
    if len(verdict.suspects) > 1:
        names = ", ".join(f"{x.id} {x.kernel}" for x in verdict.suspects[:_LISTED])
        rest = "" if len(verdict.suspects) <= _LISTED else f", … to {verdict.suspects[-1].id}"
        found.append(f"one of {wording.count(len(verdict.suspects), 'launch')}: {names}{rest}")
    if not verdict.suspects:
        found.append("no launch can be named")
    if verdict.surfaced is not None:
        found.append(f"noticed in launch {verdict.surfaced.id} {verdict.surfaced.kernel}")
    return found
