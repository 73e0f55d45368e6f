"""Faults: a launch crashed, threw an exception, or caused a device error. The run that ended in it shows it."""

from __future__ import annotations

from aoti_debug.compare.locate_operator import LocatedOperand, trace_fault
from aoti_debug.instrument.wrapper.launches.launch_traits import traits_of
from aoti_debug.runs.diagnosis.findings import FAULT, Finding
from aoti_debug.runs.run.runner import RunResult
from aoti_debug.triage.checks import overrun
from aoti_debug.triage.investigation import confirm_by_repro as replay
from aoti_debug.triage.investigation import reproduce_fault
from aoti_debug.triage.investigation.changed_inputs import with_changed_inputs
from aoti_debug.triage.investigation.graph_trace import with_graph
from aoti_debug.triage.investigation.investigation import Investigation, Outcome, Suspicion
from aoti_debug.triage.memory_errors.explain_access import best_access, explain
from aoti_debug.triage.memory_errors.explain_operand import with_operand

KIND = FAULT
_GENERATED = ("cpp", "triton")  # kernels that compute each element by itself: an element can be to blame


def look(investigation: Investigation, first: RunResult) -> Suspicion | None:
    """The fault that the first run ended in, if it did."""
    return None if first.verdict is None else of_ended(investigation, first)


def of_ended(investigation: Investigation, ended: RunResult) -> Suspicion:
    """The suspicion about a run that faulted or hung: a launch, or the damage that an earlier launch did."""
    if investigation.options.guards or reproduce_fault.may_be_damage(ended):
        damage = overrun.of_guarded(investigation)
        if damage is not None:
            return damage
    return reproduce_fault.investigate(ended, investigation.runs, investigation.options.tries)


def confirm(investigation: Investigation, suspicion: Suspicion) -> Outcome:
    """Replays the launch alone, exactly, with bounds checks and under a sanitizer, and explains the access."""
    launch = suspicion.launch
    if launch is None:
        return Outcome(suspicion.finding, suspicion.run)
    confirmation = replay.confirm(investigation, suspicion.diagnosed, launch, replay.FAULT)
    finding = replay.of_fault(suspicion.finding, confirmation)
    flow = suspicion.diagnosed.dataflow
    explained = explain(finding, flow, launch, confirmation.evidence)
    run = suspicion.run
    operands: list[LocatedOperand] = []

    def with_located(finding: Finding, operand: LocatedOperand) -> Finding:
        operands.append(operand)
        return with_operand(finding, operand)

    located = with_graph(
        investigation,
        explained,
        run,
        "trace the operand",
        lambda scope, folder: trace_fault(run, launch, scope, folder),
        with_located,
    )
    is_open = all(operand.bad.source is not None and not operand.input for operand in operands)
    if is_open and (located.origin is None or not located.origin.input):
        access = best_access(confirmation.evidence)
        if access is not None or traits_of(launch.site.kind).replay in _GENERATED:
            index = None if access is None else access.index
            located = with_changed_inputs(investigation, located, flow, launch, "" if index is None else index.argument)
    return Outcome(located, run)
