"""Uninitialised reads: a launch read what nothing had written. Runs that differ only in what fresh buffers begin with
show it."""

from __future__ import annotations

from aoti_debug.run.runner import RunResult
from aoti_debug.triage import confirm as replay
from aoti_debug.triage.investigation import Investigation, Outcome, Suspicion
from aoti_debug.triage.memory import uninitialised

KIND = uninitialised.UNINITIALISED
POISONS = (0xFF, 0x3B)  # NaN and -1; a small number in every float format


def look(model: Investigation, first: RunResult) -> Suspicion | None:
    if not model.options.guards:
        return None
    one, other = (model.trials.poisoned(poison) for poison in POISONS)
    flow = one.diagnosed.dataflow
    finding = uninitialised.find(flow, other.run)
    if finding is not None:  # unless the launch in question is not the same twice anyway
        finding = uninitialised.find(flow, other.run, model.trials.poisoned(POISONS[0]).run)
    return None if finding is None else Suspicion(finding, first.diagnosed)


def confirm(model: Investigation, suspicion: Suspicion) -> Outcome:
    launch = suspicion.launch
    if launch is None:
        return Outcome(suspicion.finding, suspicion.run)
    _, confirmation = replay.with_indices(
        model, suspicion.diagnosed, launch, replay.UNINITIALISED, model.trials.tensors
    )
    return Outcome(replay.of_fault(suspicion.finding, confirmation), suspicion.run)
