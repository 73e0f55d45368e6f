"""Non-finite values: NaN and unintended infinities. A run with statistics of every tensor shows them."""

from __future__ import annotations

from dataclasses import replace

from aoti_debug import wording
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
from aoti_debug.triage.nonfinite.nonfinite import NonFinite
from aoti_debug.triage.nonfinite.origin_trials import OriginTrials

KIND = NONFINITE
FOLDER = "origin"  # of the files that take the place of a run's own
_PROGRAM = "the program itself makes it"
_SAME = "eager computes the same from the same inputs"


def look(model: Investigation, first: RunResult) -> Suspicion | None:
    """The first harmful NaN or unintended infinity of a run with statistics, and where it came from."""
    wrong_value.begin(model, first)
    measured = model.measured
    if measured.verdict is not None:
        return fault.of_ended(model, measured)
    search = nonfinite.find(measured.diagnosed.dataflow, model.options.infinities)
    saved, finding = None, search.finding
    if finding is not None:
        saved = model.trials.tensors([measured.run.launch(id_) for id_ in search.needed])
        finding = _with_origin(model, search, saved.run)
    finding = finding or Finding(CLEAN, "outputs finite")
    warned = replace(finding, warnings=(*finding.warnings, *search.warnings))
    return Suspicion(warned, measured.diagnosed, needed=search.needed, saved=saved)


def confirm(model: Investigation, suspicion: Suspicion) -> Outcome:
    """Replays the launch alone: it has to produce the same values; saved tensors explain the cause."""
    saved = suspicion.saved
    if saved is None:
        return Outcome(suspicion.finding, suspicion.run)
    finding = _with_operator(model, nonfinite.explain(suspicion.finding, saved.run), saved.run)
    outcome = replay.same_values(model, Suspicion(finding, saved.diagnosed))
    where = finding.where
    if where is None or not where.launch or not model.options.compare or wrong_value.reason_against(model, saved.run):
        return outcome
    right = _SAME if finding.origin is not None and finding.origin.input else _PROGRAM
    proved = proof(model, model.first.run, (where.launch,), right)
    return replace(outcome, finding=replace(outcome.finding, evidence=(*outcome.finding.evidence, *proved)))


def _with_origin(model: Investigation, search: NonFinite, saved: RunDir) -> Finding | None:
    """The finding of the first case whose root a run without its values does not refute; None if all are refuted."""
    run = model.measured.run
    trials = OriginTrials(run, saved, lambda files: model.trials.with_files(files).run, model.repro.parent / FOLDER)
    with model.steps.step("try without its values") as note:
        found = trials.first_that_holds(search.cases)
        note.text = "nothing that is not finite does harm" if found is None else wording.comma_separated(found.tried)
    return None if found is None else nonfinite.finding_of(model.measured.diagnosed.dataflow, found)


def _with_operator(model: Investigation, finding: Finding, run: RunDir) -> Finding:
    """The finding with the operator that made its element, where the package holds the graph of its kernels."""
    where = finding.where
    if where is None or not where.launch or where.element is None:
        return finding
    element = TracedElement(where.launch, where.argument, where.element)
    return with_graph(
        model, finding, run, "trace the element", lambda scope, folder: trace(run, element, scope, folder), with_origin
    )
