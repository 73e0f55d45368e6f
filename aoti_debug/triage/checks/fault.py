"""Faults: a launch crashed, threw an exception, or caused a device error. The run that ended in it shows it."""

from __future__ import annotations

from dataclasses import replace

from aoti_debug.compare.compare_run import Scope, has_reference
from aoti_debug.compare.trace_fault import trace_fault
from aoti_debug.diagnosis.findings import FAULT, Finding
from aoti_debug.errors import AotiDebugError
from aoti_debug.run.runner import RunResult
from aoti_debug.rundir.run_directory import RunDir
from aoti_debug.rundir.timeline import Launch
from aoti_debug.triage import confirm as replay
from aoti_debug.triage import faults
from aoti_debug.triage.checks import overrun
from aoti_debug.triage.investigation import Investigation, Outcome, Suspicion
from aoti_debug.triage.memory.explain_access import explain
from aoti_debug.triage.memory.explain_operand import with_operand
from aoti_debug.wording import first_line

KIND = FAULT


def look(model: Investigation, first: RunResult) -> Suspicion | None:
    """The fault that the first run ended in, if it did."""
    return None if first.verdict is None else of_ended(model, first)


def of_ended(model: Investigation, ended: RunResult) -> Suspicion:
    """The suspicion about a run that faulted or hung: a launch, or the damage that an earlier launch did."""
    if model.options.guards or faults.may_be_damage(ended):
        damage = overrun.of_guarded(model)
        if damage is not None:
            return damage
    return faults.investigate(ended, model.trials, model.options.tries)


def confirm(model: Investigation, suspicion: Suspicion) -> Outcome:
    """Replays the launch alone, exactly, with bounds checks and under a sanitizer, and explains the access."""
    launch = suspicion.launch
    if launch is None:
        return Outcome(suspicion.finding, suspicion.run)
    confirmation = replay.confirm(model, suspicion.diagnosed, launch, replay.FAULT)
    finding = replay.of_fault(suspicion.finding, confirmation)
    explained = explain(finding, suspicion.diagnosed.dataflow, launch, confirmation.evidence)
    return Outcome(_with_operand(model, explained, suspicion.run, launch), suspicion.run)


def _with_operand(model: Investigation, finding: Finding, run: RunDir, launch: Launch) -> Finding:
    """The finding with the operator that failed, where the package holds the graph of its kernels."""
    if not has_reference(run):
        return finding
    scope = Scope(imports=model.options.imports, libraries=model.options.libraries)
    try:
        with model.steps.step("trace the operand") as note:
            found = trace_fault(run, launch, scope, model.repro.parent)
            note.text = "the graph does not show it" if found is None else found.bad.operator
    except AotiDebugError as error:
        return replace(finding, warnings=(*finding.warnings, f"the graph was not evaluated: {first_line(str(error))}"))
    return finding if found is None else with_operand(finding, found)
