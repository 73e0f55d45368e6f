"""Investigates a run that ended in a fault or a hang: finds the launch, saves its inputs, reproduces the fault."""

from __future__ import annotations

from dataclasses import replace

from aoti_debug.base import wording
from aoti_debug.base.abi import Phase, SaveStatus
from aoti_debug.base.errors import TargetError
from aoti_debug.runs.diagnosis.diagnose import DEATHS
from aoti_debug.runs.diagnosis.diagnosed_run import DiagnosedRun
from aoti_debug.runs.diagnosis.findings import Finding
from aoti_debug.runs.diagnosis.run_findings import finding_of
from aoti_debug.runs.diagnosis.verdict import Proof
from aoti_debug.runs.run.runner import RunResult
from aoti_debug.runs.rundir.run_json import ExitKind
from aoti_debug.runs.rundir.timeline import Launch
from aoti_debug.runs.show.fault import argument_sentences
from aoti_debug.triage.investigation.investigation import Suspicion
from aoti_debug.triage.investigation.triage_runs import NO_CACHING, TriageRuns
from aoti_debug.triage.memory_errors.walk_back import makers


def investigate(first: RunResult, runs: TriageRuns, tries: int) -> Suspicion:
    """From the first fault to the guilty launch with its saved inputs.

    Args:
        first: a run that ended in a fault.
        tries: how often to run the package to see the fault again.

    Returns:
        The fault, in a run that holds the inputs of the launch and of those that made its indices.
    """
    assert first.verdict is not None
    result, verdict = first, first.verdict
    if verdict.proof is Proof.RANGE:
        waiting = runs.blocking()
        if waiting.verdict is not None and waiting.verdict.launch is not None:
            result, verdict = waiting, waiting.verdict
    finding = finding_of(result.run, verdict, argument_sentences(verdict))
    if verdict.launch is None or result.run.state is ExitKind.TIMEOUT:
        return Suspicion(finding, result.diagnosed)
    return _again(finding, verdict.launch, result.diagnosed, runs, tries)


def may_be_damage(result: RunResult) -> bool:
    """True if the host died of a signal outside of any launch: an earlier launch may have damaged its memory."""
    verdict = result.verdict
    return verdict is not None and verdict.launch is None and result.run.info.exit.signal in DEATHS


def _again(finding: Finding, launch: Launch, first: DiagnosedRun, runs: TriageRuns, tries: int) -> Suspicion:
    """Runs the package until the fault comes again, saving what led to it."""
    saved_launches = [launch, *makers(first.dataflow, launch)]
    environment = NO_CACHING if first.run.manifest.device == "cuda" else {}
    how = " with the caching allocator off" if environment else ""
    for attempt in range(1, tries + 1):
        try:
            result = runs.tensors(saved_launches, environment)
        except TargetError as error:
            return _kept(replace(finding, warnings=(*finding.warnings, f"the second run: {error}")), launch, first)
        guilty = result.verdict.launch if result.verdict is not None else None
        if guilty is not None and (guilty.key, guilty.site.id) == (launch.key, launch.site.id):
            if attempt > 1:
                said = f"it came in 2 of {attempt + 1} runs{how}"
                finding = replace(finding, evidence=(*finding.evidence, said))
            return Suspicion(finding, result.diagnosed)
        if guilty is not None:
            said = f"another run failed in {guilty.id} {guilty.kernel}: {result.verdict.what if result.verdict else ''}"
            finding = replace(finding, evidence=(*finding.evidence, said.partition("\n")[0]))
    said = (
        f"it came in 1 of {wording.pluralize(tries + 1, 'run')}{how}: the inputs are those of the run in which it came"
    )
    return _kept(replace(finding, evidence=(*finding.evidence, said)), launch, first)


def _kept(finding: Finding, launch: Launch, first: DiagnosedRun) -> Suspicion:
    """The fault with what the flight recorder kept of the first run."""
    kept = [a for a in launch.args if (s := a.files.get(Phase.BEFORE)) and s.status is not SaveStatus.SKIPPED]
    if not kept:
        finding = replace(finding, warnings=(*finding.warnings, "the flight recorder kept none of its inputs"))
    return Suspicion(finding, first)
