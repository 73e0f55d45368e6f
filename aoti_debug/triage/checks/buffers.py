"""Buffers: tensors that are not as the graph promised; with guards, writes out of bounds and reads of unwritten memory.

The first is seen in any run. Guards, which are zones of known bytes around buffers, take more runs: `--guards`.
"""

from __future__ import annotations

from dataclasses import replace

from aoti_debug.triage.contracts import contracts
from aoti_debug.triage.investigation import confirm_by_repro as replay
from aoti_debug.triage.investigation.investigation import Check, Investigation, Outcome, Suspicion
from aoti_debug.triage.memory_errors import overruns, uninitialised
from aoti_debug.triage.memory_errors.explain_access import explain_overrun
from aoti_debug.triage.results.finding_kinds import CONTRACT, OVERRUN, UNINITIALISED

POISONS = (0xFF, 0x3B)  # NaN and -1; a small number in every float format


def _look_for_broken_contract(investigation: Investigation) -> Suspicion | None:
    """The first broken contract of the first run; the others are warnings."""
    first = investigation.first
    broken = contracts.check(first.diagnosed.dataflow)
    if not broken:
        return None
    finding = broken[0]
    if first.verdict is not None:
        launch = first.verdict.launch
        where = f" in launch {launch.id} {launch.kernel}" if launch is not None else ""
        ended = f"the run ended in {first.verdict.what.partition(chr(10))[0]}{where}"
        finding = replace(finding, evidence=(*finding.evidence, ended))
    return Suspicion(replace(finding, warnings=(*finding.warnings, *(one.what for one in broken[1:]))), first.diagnosed)


def _look_for_overrun(investigation: Investigation) -> Suspicion | None:
    """The first out-of-bounds write in a run with guards, if --guards asks for one."""
    return of_guarded(investigation) if investigation.options.guards else None


def of_guarded(investigation: Investigation) -> Suspicion | None:
    """The first out-of-bounds write that one more run, with guards, shows."""
    guarded = investigation.runs.guarded()
    finding = overruns.find(guarded.run)
    return None if finding is None else Suspicion(finding, guarded.diagnosed)


def _confirm_overrun(investigation: Investigation, suspicion: Suspicion) -> Outcome:
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


def _look_for_uninitialised(investigation: Investigation) -> Suspicion | None:
    """The first launch whose result depends on what fills new buffers, if --guards asks for it."""
    if not investigation.options.guards:
        return None
    first_poison, second_poison = (investigation.runs.poisoned(poison) for poison in POISONS)
    flow = first_poison.diagnosed.dataflow
    finding = uninitialised.find(flow, second_poison.run)
    if finding is not None:  # a third run tells it from a launch whose results vary anyway
        finding = uninitialised.find(flow, second_poison.run, investigation.runs.poisoned(POISONS[0]).run)
    return None if finding is None else Suspicion(finding, investigation.first.diagnosed)


def _confirm_uninitialised(investigation: Investigation, suspicion: Suspicion) -> Outcome:
    """Replays the launch alone with different poisons."""
    launch = suspicion.launch
    if launch is None:
        return Outcome(suspicion.finding, suspicion.run)
    _, confirmation = replay.with_indices(
        investigation, suspicion.diagnosed, launch, replay.UNINITIALISED, investigation.runs.tensors
    )
    return Outcome(replay.of_fault(suspicion.finding, confirmation), suspicion.run)


CONTRACT_CHECK = Check(CONTRACT, _look_for_broken_contract, replay.same_values)
OVERRUN_CHECK = Check(OVERRUN, _look_for_overrun, _confirm_overrun)
UNINITIALISED_CHECK = Check(UNINITIALISED, _look_for_uninitialised, _confirm_uninitialised)
