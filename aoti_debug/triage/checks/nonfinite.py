"""Non-finite values: NaN and unintended infinities. A run with statistics of every tensor shows them."""

from __future__ import annotations

from dataclasses import replace

from aoti_debug.compare.locate.origin import trace
from aoti_debug.compare.protocol.origin import TracedElement
from aoti_debug.diagnosis.findings import CLEAN, Finding
from aoti_debug.run.runner import RunResult
from aoti_debug.rundir.run_directory import RunDir
from aoti_debug.triage.checks import fault, wrong_value
from aoti_debug.triage.investigation import confirm_by_repro as replay
from aoti_debug.triage.investigation.graph_trace import with_graph
from aoti_debug.triage.investigation.investigation import Investigation, Outcome, Suspicion
from aoti_debug.triage.investigation.proof_by_replacement import proof
from aoti_debug.triage.nonfinite import nonfinite
from aoti_debug.triage.nonfinite.finding_text import NONFINITE
from aoti_debug.triage.nonfinite.graph_operator import with_origin

KIND = NONFINITE


def look(model: Investigation, first: RunResult) -> Suspicion | None:
    """The first harmful NaN or unintended infinity of a run with statistics."""
    wrong_value.begin(model, first)
    measured = model.measured
    if measured.verdict is not None:
        return fault.of_ended(model, measured)
    search = nonfinite.find(measured.diagnosed.dataflow, model.options.infinities)
    finding = search.finding or Finding(CLEAN, "outputs finite")
    return Suspicion(
        replace(finding, warnings=(*finding.warnings, *search.warnings)), measured.diagnosed, needed=search.needed
    )


def confirm(model: Investigation, suspicion: Suspicion) -> Outcome:
    """Replays the launch alone: it has to produce the same values; saved tensors explain the cause."""
    launches = [suspicion.run.launch(id_) for id_ in suspicion.needed]
    if not launches:
        return Outcome(suspicion.finding, suspicion.run)
    saved = model.trials.tensors(launches)
    finding = _with_operator(model, nonfinite.explain(suspicion.finding, saved.run), saved.run)
    outcome = replay.same_values(model, Suspicion(finding, saved.diagnosed))
    where = finding.where
    if where is None or not where.launch or not model.options.compare or wrong_value.reason_against(model, saved.run):
        return outcome
    proved = proof(model, model.first.run, (where.launch,), "the program itself makes it")
    return replace(outcome, finding=replace(outcome.finding, evidence=(*outcome.finding.evidence, *proved)))


def _with_operator(model: Investigation, finding: Finding, run: RunDir) -> Finding:
    """The finding with the operator that made its element, where the package holds the graph of its kernels."""
    where = finding.where
    if where is None or not where.launch or where.element is None:
        return finding
    element = TracedElement(where.launch, where.argument, where.element)
    return with_graph(
        model, finding, run, "trace the element", lambda scope, folder: trace(run, element, scope, folder), with_origin
    )
