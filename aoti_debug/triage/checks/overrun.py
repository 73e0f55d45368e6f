"""Out-of-bounds writes: a launch wrote outside of its buffers. A run with guard zones around them shows it."""

from __future__ import annotations

from aoti_debug.runs.run.runner import RunResult
from aoti_debug.triage.investigation import confirm_by_repro as replay
from aoti_debug.triage.investigation.investigation import Investigation, Outcome, Suspicion
from aoti_debug.triage.memory_errors import overruns
from aoti_debug.triage.memory_errors.explain_access import explain_overrun

KIND = overruns.OVERRUN


def look(investigation: Investigation, first: RunResult) -> Suspicion | None:
    """The first out-of-bounds write in a run with guards, if --guards asks for one."""
    return of_guarded(investigation) if investigation.options.guards else None


def of_guarded(investigation: Investigation) -> Suspicion | None:
    """The first out-of-bounds write that one more run, with guards, shows."""
    guarded = investigation.runs.guarded()
    finding = overruns.find(guarded.run)
    return None if finding is None else Suspicion(finding, guarded.diagnosed)


def confirm(investigation: Investigation, suspicion: Suspicion) -> Outcome:
    """Replays the launch alone with bounds checks, and explains the access."""
    launch = suspicion.launch
    if launch is None:
        return Outcome(suspicion.finding, suspicion.run)
    saved, confirmation = replay.with_indices(
        investigation, suspicion.diagnosed, launch, replay.OVERRUN, investigation.runs.guarded_tensors
    )
    finding = replay.of_fault(suspicion.finding, confirmation)
    saved_launch = saved.run.launch(launch.id)
    return Outcome(explain_overrun(finding, saved.dataflow, saved_launch, confirmation.evidence), suspicion.run)
