"""Investigates a run that ended in a fault or a hang: finds the launch, saves its inputs, reproduces the fault."""

from __future__ import annotations

from dataclasses import dataclass, replace

from aoti_debug import wording
from aoti_debug.abi import Phase, SaveStatus
from aoti_debug.diagnosis.dataflow import Dataflow
from aoti_debug.diagnosis.findings import Finding, FindingKind, place_of
from aoti_debug.diagnosis.verdict import DEATHS, Proof, Verdict
from aoti_debug.errors import TargetError
from aoti_debug.run.runner import RunResult
from aoti_debug.rundir.run_directory import RunDir
from aoti_debug.rundir.run_json import ExitKind
from aoti_debug.rundir.timeline import Launch
from aoti_debug.show.fault import argument_lines
from aoti_debug.triage.memory.walk_back import makers
from aoti_debug.triage.trials import NO_CACHING, Trials


@dataclass(frozen=True)
class Case:
    """A fault with the run that shows it best.

    Attributes:
        launch: the guilty one, of `run`; None where none can be named.
        run: the run that holds its inputs, and those of the launches that computed its indices.
    """

    finding: Finding
    launch: Launch | None
    run: RunDir


def investigate(first: RunResult, trials: Trials, tries: int) -> Case:
    """Finds the guilty launch of a fault and saves its inputs.

    Args:
        first: a run that ended in a fault.
        tries: runs to attempt to reproduce the fault.
    """
    assert first.verdict is not None
    result, verdict = first, first.verdict
    if verdict.proof is Proof.RANGE:
        waiting = trials.blocking()
        if waiting.verdict is not None and waiting.verdict.launch is not None:
            result, verdict = waiting, waiting.verdict
    finding = finding_of(result.run, verdict)
    launch = verdict.launch
    if launch is None:
        return Case(finding, None, result.run)
    if result.run.state is ExitKind.TIMEOUT:
        return Case(finding, launch, result.run)
    return _again(finding, launch, result.run, trials, tries)


def may_be_damage(result: RunResult) -> bool:
    """True if the host died of a signal outside of any launch: an earlier launch may have damaged its memory."""
    verdict = result.verdict
    return verdict is not None and verdict.launch is None and result.run.info.exit.signal in DEATHS


def finding_of(run: RunDir, verdict: Verdict) -> Finding:
    """The verdict on a run as a finding."""
    evidence = [verdict.why]
    launch = verdict.launch
    if verdict.surfaced is not None:
        evidence.append(f"it was noticed in {verdict.surfaced.id} {verdict.surfaced.kernel}, which is a victim")
    if launch is None and verdict.suspects:
        names = ", ".join(f"{x.id} {x.kernel}" for x in verdict.suspects[:6])
        evidence.append(f"one of {wording.count(len(verdict.suspects), 'launch')}: {names}")
    evidence += [f"in {frame}" for frame in verdict.frames]
    if launch is not None and launch.loops:
        evidence.append(f"in iteration {', '.join(map(str, launch.loops))} of the loop, counted from 0")
    hang = run.state is ExitKind.TIMEOUT
    if hang and launch is not None:
        evidence += [line.strip() for line in argument_lines(launch, 100)]
    return Finding(
        kind=FindingKind.HANG if hang else FindingKind.FAULT,
        what=verdict.what.partition("\n")[0],
        where=place_of(launch) if launch is not None else None,
        evidence=tuple(evidence),
        next=verdict.next_commands,
    )


def _again(finding: Finding, launch: Launch, run: RunDir, trials: Trials, tries: int) -> Case:
    """Runs the package until the fault comes again, saving the tensors of the launches that led to it."""
    saved_launches = [launch, *makers(Dataflow(run), launch)]
    environment = NO_CACHING if run.manifest.device == "cuda" else {}
    how = " with the caching allocator off" if environment else ""
    for attempt in range(1, tries + 1):
        try:
            result = trials.tensors(saved_launches, environment)
        except TargetError as error:
            return _kept(replace(finding, warnings=(*finding.warnings, f"the second run: {error}")), launch, run)
        guilty = result.verdict.launch if result.verdict is not None else None
        if guilty is not None and (guilty.key, guilty.site.id) == (launch.key, launch.site.id):
            if attempt > 1:
                frequency = f"it came in 2 of {attempt + 1} runs{how}"
                finding = replace(finding, evidence=(*finding.evidence, frequency))
            return Case(finding, guilty, result.run)
        if guilty is not None:
            other = (
                f"another run failed in {guilty.id} {guilty.kernel}: {result.verdict.what if result.verdict else ''}"
            )
            finding = replace(finding, evidence=(*finding.evidence, other.partition("\n")[0]))
    frequency = (
        f"it came in 1 of {wording.count(tries + 1, 'run')}{how}: the inputs are those of the run in which it came"
    )
    return _kept(replace(finding, evidence=(*finding.evidence, frequency)), launch, run)


def _kept(finding: Finding, launch: Launch, run: RunDir) -> Case:
    """The case with the inputs that the flight recorder kept of the first run."""
    kept = [a for a in launch.args if (s := a.files.get(Phase.BEFORE)) and s.status is not SaveStatus.SKIPPED]
    if not kept:
        finding = replace(finding, warnings=(*finding.warnings, "the flight recorder kept none of its inputs"))
    return Case(finding, launch, run)
