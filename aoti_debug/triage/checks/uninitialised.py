"""Uninitialised reads: a launch read memory that no launch had written. Two runs with different poisons show it."""

from __future__ import annotations

from aoti_debug.runs.run.runner import RunResult
from aoti_debug.triage.investigation import confirm_by_repro as replay
from aoti_debug.triage.investigation.investigation import Investigation, Outcome, Suspicion
from aoti_debug.triage.memory_errors import uninitialised

KIND = uninitialised.UNINITIALISED
POISONS = (0xFF, 0x3B)  # NaN and -1; a small number in every float format


def look(investigation: Investigation, first: RunResult) -> Suspicion | None:
    """The first launch whose result depends on what fills new buffers, if --guards asks for it."""
    if not investigation.options.guards:
        return None
    first_poison, second_poison = (investigation.runs.poisoned(poison) for poison in POISONS)
    flow = first_poison.diagnosed.dataflow
    finding = uninitialised.find(flow, second_poison.run)
    if finding is not None:  # a third run tells it from a launch whose results vary anyway
        finding = uninitialised.find(flow, second_poison.run, investigation.runs.poisoned(POISONS[0]).run)
    return None if finding is None else Suspicion(finding, first.diagnosed)


def confirm(investigation: Investigation, suspicion: Suspicion) -> Outcome:
    """Replays the launch alone with different poisons."""
    launch = suspicion.launch
    if launch is None:
        return Outcome(suspicion.finding, suspicion.run)
    _, confirmation = replay.with_indices(
        investigation, suspicion.diagnosed, launch, replay.UNINITIALISED, investigation.runs.tensors
    )
    return Outcome(replay.of_fault(suspicion.finding, confirmation), suspicion.run)
