"""Hangs: no launch begins or ends any more. The run that had to be killed shows it."""

from __future__ import annotations

from aoti_debug.runs.diagnosis.findings import HANG
from aoti_debug.runs.run.runner import RunResult
from aoti_debug.runs.rundir.run_json import ExitKind
from aoti_debug.triage.checks import fault
from aoti_debug.triage.investigation import confirm_by_repro as replay
from aoti_debug.triage.investigation.investigation import Investigation, Outcome, Suspicion

KIND = HANG


def look(investigation: Investigation, first: RunResult) -> Suspicion | None:
    """The hang of a first run that had to be killed."""
    return fault.of_ended(investigation, first) if first.run.state is ExitKind.TIMEOUT else None


def confirm(investigation: Investigation, suspicion: Suspicion) -> Outcome:
    """Replays the launch alone: it has to hang again."""
    launch = suspicion.launch
    if launch is None:
        return Outcome(suspicion.finding, suspicion.run)
    confirmation = replay.confirm(investigation, suspicion.diagnosed, launch, replay.EXACT, investigation.options.stall)
    return Outcome(replay.of_hang(suspicion.finding, confirmation), suspicion.run)
