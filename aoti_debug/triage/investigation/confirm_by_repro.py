"""Proves that a launch is to blame: runs its repro in every mode that this machine has, and the model without it.

A launch that made a wrong value is replaced by what the program computes: are the outputs right then?
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from aoti_debug.base import wording
from aoti_debug.base.errors import AotiDebugError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.steps import Step, Steps
from aoti_debug.base.native.frames import without_compiled_folders
from aoti_debug.compare.measure.output_errors import OutputError
from aoti_debug.compare.what_if.replacements import ResultSource, Substitution
from aoti_debug.compare.what_if.substituted_run import ReplayOptions, ReplaySession, options_of
from aoti_debug.compare.what_if.what_if import Recovery, WhatIf, what_if
from aoti_debug.package.launch_traits import traits_of
from aoti_debug.repro.repro import ReproOptions, write_repro
from aoti_debug.repro.run_repro import FAILED, Evidence, Mode, gather, modes, this_machine
from aoti_debug.runs.diagnosis.diagnosed_run import DiagnosedRun
from aoti_debug.runs.diagnosis.findings import Finding
from aoti_debug.runs.run.runner import RunResult
from aoti_debug.runs.rundir.launch import Launch
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.triage.investigation.investigation import Investigation, Outcome, Suspicion
from aoti_debug.triage.memory_errors.explain_access import makers

FOLDER = "proof"  # of the runs with replaced results
_MAX_LAUNCHES = 4  # launches that are replaced: each takes a run of its own


def proof(
    investigation: Investigation, run: RunDir, launches: Sequence[str], right: str, recovered: str = ""
) -> tuple[str, ...]:
    """A sentence that says whether the outputs are right with the results of these launches replaced; none if unknown.

    Args:
        run: of the package; one that saved no tensors is repeated.
        right: the conclusion where the outputs are right without any replacement.
        recovered: a clause for outputs that are right with it.
    """
    if not 0 < len(launches) <= _MAX_LAUNCHES or run.package is None:
        return ()
    folder = investigation.repro.parent / FOLDER
    options = ReplayOptions(
        user_code=investigation.options.user_code,
    )
    substitutions = [Substitution(launch, ResultSource.EAGER) for launch in launches]
    with investigation.steps.step("proof") as note:
        try:
            session = ReplaySession(options_of(run, folder, options), folder, investigation.steps)
            found = what_if(session, run, substitutions)
        except AotiDebugError as error:
            note.text = f"no proof: {wording.first_line(str(error))}"
            return ()
        sentence = _sentence(found, right, recovered)
        note.text = sentence or f"no proof: {wording.comma_separated(found.notes)}"
    return (sentence,) if sentence else ()


def _sentence(found: WhatIf, right: str, recovered: str = "") -> str:
    outputs = found.outputs
    if not outputs.before or not outputs.after or found.after.refused:
        return ""
    names = wording.comma_separated([launch.id for launch in found.launches])
    results = "result" if len(found.launches) == 1 else "results"
    what = f"with the {results} of {names} replaced by what its graph gives in eager, the outputs"
    before, after = _largest(outputs.before), _largest(outputs.after)
    match outputs.recovery:
        case Recovery.RECOVERED:
            error = f"relative error {before} before, {after} after"
            return f"{what} are what the graph of the kernels gives: {error}{recovered and f'; {recovered}'}"
        case Recovery.RIGHT_BEFORE:
            if before == "0":
                return f"the outputs equal what the graph of the kernels gives in eager: {right}"
            return (
                f"the outputs have a relative error of {before} against what the graph of the kernels gives in eager: "
                "rounding in a whole model may make as much"
            )
        case Recovery.BROKEN:
            return f"{what} become wrong: relative error {before} before, {after} after"
        case _:
            return f"{what} stay wrong: relative error {before} before, {after} after"


def _largest(errors: Sequence[OutputError]) -> str:
    return f"{max(error.relative for error in errors):.2g}"


SECONDS = 120.0  # for one mode of a repro
_SLOWER, _LEAST_SECONDS = 4.0, 30.0  # a slow mode: times the longest other one, but at least so many seconds
TIMES = ("--repeat", "20")  # launches in one process
USAGE = 2  # exit code of a script that does not have the mode: the source of its kernel is incomplete

# Modes of a repro by what they can show.
EXACT = ("cubin", "native", "operator")
SOURCE = ("interpret", "checked")  # the kernel's source, interpreted or compiled with checks
FAULT = (*EXACT, "interpret", "checked", "memcheck", "address")
OVERRUN = ("poison", "memcheck", "address", "checked", "interpret")
UNINITIALISED = ("initcheck", "poison")
REDUNDANT = {"address": "checked"}  # slow modes, and the mode that sees the same accesses


@dataclass(frozen=True)
class ReproTrial:
    """One mode in which the repro was run, and its result.

    Attributes:
        began: seconds from the beginning of the triage.
    """

    mode: Mode
    evidence: Evidence
    seconds: float
    began: float = 0.0


@dataclass(frozen=True)
class Confirmation:
    """The results of running a repro.

    Attributes:
        repro: its folder; None where the launch cannot be replayed.
        refused: sentences: why it cannot be replayed, or which modes were not available.
    """

    repro: Path | None
    trials: tuple[ReproTrial, ...]
    refused: tuple[str, ...]

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        """The evidence of each trial, in order."""
        return tuple(trial.evidence for trial in self.trials)


def confirm(
    investigation: Investigation,
    diagnosed: DiagnosedRun,
    launch: Launch,
    ways: Collection[str],
    seconds: float = SECONDS,
) -> Confirmation:
    """Writes the repro of a launch and runs it in each of these ways that the machine has.

    Args:
        diagnosed: the run that saved the tensors of the launch.
    """
    repro, refused = write(diagnosed, launch, investigation.repro, investigation.steps)
    if repro is None:
        return Confirmation(None, (), (refused,))
    return run(repro, launch, diagnosed.run, ways, investigation.steps, seconds)


def with_indices(
    investigation: Investigation,
    diagnosed: DiagnosedRun,
    launch: Launch,
    ways: Collection[str],
    save: Callable[[Sequence[Launch]], RunResult],
) -> tuple[DiagnosedRun, Confirmation]:
    """`confirm` for a launch whose tensors are not saved yet; also returns the run that saved them.

    Args:
        save: runs the model and saves the tensors of some launches: this one, and those that made its indices.
    """
    saved = save([launch, *makers(diagnosed.dataflow, launch)]).diagnosed
    return saved, confirm(investigation, saved, saved.run.launch(launch.id), ways)


def same_values(investigation: Investigation, suspicion: Suspicion) -> Outcome:
    """Confirms a finding of values or layouts: the launch alone has to make them again."""
    finding, recorded, launch = suspicion.finding, suspicion.diagnosed, suspicion.launch
    if launch is None:
        return Outcome(finding, recorded.run)
    saved = recorded if any(a.files for a in launch.args) else investigation.runs.tensors([launch]).diagnosed
    repro, refused = write(saved, saved.run.launch(launch.id), investigation.repro, investigation.steps)
    if repro is None:
        return Outcome(replace(finding, warnings=(*finding.warnings, refused)), recorded.run)
    confirmation = run(repro, launch, recorded.run, EXACT, investigation.steps)
    return Outcome(of_values(finding, confirmation), recorded.run)


def write(
    diagnosed: DiagnosedRun, launch: Launch, folder: Path, steps: Steps, fault: str = ""
) -> tuple[Path | None, str]:
    """The repro's folder, or None and the reason why there is none.

    Args:
        fault: what the launch is taken to have ended in: then its results need not be saved; "" for what the run says.
    """
    with steps.step("repro") as note:
        if not traits_of(launch.site.kind).replay:
            note.text = f"launches of kind {launch.site.kind.value} cannot be replayed"
            return None, note.text
        try:
            written = write_repro(
                ReproOptions(launch.kernel, run=diagnosed, launch=launch.id, output=folder, trusted=True, fault=fault)
            )
        except AotiDebugError as error:
            note.text = f"no repro: {error}"
            return None, note.text
        note.text = f"{wording.pluralize(written.tensors, 'tensor')}, {wording.short_path(folder)}"
        return written.path, ""


def run(
    repro: Path, launch: Launch, recorded: RunDir, ways: Collection[str], steps: Steps, seconds: float = SECONDS
) -> Confirmation:
    """Runs a repro in those of the modes `ways` that the machine has, as many at once as it has cores.

    A mode of REDUNDANT is run only if the others leave something open, and for a few times as long as they took.
    """
    machine = this_machine(recorded.manifest.compiler, cuda=recorded.manifest.device == "cuda")
    requested = [mode for mode in modes(launch.site.kind, recorded.manifest.device, machine) if mode.name in ways]
    requested.sort(key=lambda mode: mode.name not in EXACT)
    possible = [mode for mode in requested if not mode.missing]
    first = [mode for mode in possible if REDUNDANT.get(mode.name) not in {other.name for other in possible}]
    finished = _run_trials(repro, first, seconds, steps)
    slow = [mode for mode in possible if mode not in first]
    if slow and not _is_shown(finished):
        longest = max((trial.seconds for trial in finished), default=seconds)
        finished += _run_trials(repro, slow, min(seconds, max(_LEAST_SECONDS, _SLOWER * longest)), steps)
    refused = [f"{mode.name}: {mode.missing}" for mode in requested if mode.missing]
    refused += [
        f"{trial.mode.name}: this repro does not have this mode" for trial in finished if _is_not_offered(trial)
    ]
    return Confirmation(repro, tuple(trial for trial in finished if not _is_not_offered(trial)), tuple(refused))


def run_repeatedly(repro: Path, steps: Steps) -> Confirmation:
    """Launches a repro many times in one process: memory that it damages may only be noticed when it is used again."""
    times = Mode(f"operator, {TIMES[-1]} times", TIMES)
    return Confirmation(repro, tuple(_run_trials(repro, [times], SECONDS, steps)), ())


def _is_shown(trials: Sequence[ReproTrial]) -> bool:
    """True if all trials show the fault, or those that could be run do, and say more than the signal that ended them.

    A kernel that throws (an assertion) does so before the access that a sanitizer would see.
    """
    ran = [trial.evidence for trial in trials if trial.evidence.outcome != FAILED]
    if not ran or any(evidence.outcome != "fault" for evidence in ran):
        return False
    return len(ran) == len(trials) or any(evidence.accesses or ": " in evidence.what for evidence in ran)


def _run_trials(repro: Path, modes_: Sequence[Mode], seconds: float, steps: Steps) -> list[ReproTrial]:
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        started = [pool.submit(_trial, repro, mode, seconds, steps) for mode in modes_]
        return [_record_trial(future, steps) for future in started]


def _is_not_offered(trial: ReproTrial) -> bool:
    return trial.evidence.code == USAGE


def _trial(repro: Path, mode: Mode, seconds: float, steps: Steps) -> ReproTrial:
    began = steps.now
    evidence = gather(repro, mode.words, seconds)
    return ReproTrial(mode, evidence, steps.now - began, began)


def _record_trial(future: Future[ReproTrial], steps: Steps) -> ReproTrial:
    trial = future.result()
    text = "this repro does not have this mode" if _is_not_offered(trial) else headline(trial.evidence)
    steps.add(Step(f"repro, {trial.mode.name}", trial.seconds, text, began=trial.began))
    return trial


def of_fault(finding: Finding, confirmation: Confirmation) -> Finding:
    """The finding with the trials that show the fault, and those that do not."""
    return _with(finding, confirmation, "fault")


def of_values(finding: Finding, confirmation: Confirmation) -> Finding:
    """The finding with the trials that reproduce the recorded values, and those that do not."""
    return _with(finding, confirmation, "as recorded")


def of_hang(finding: Finding, confirmation: Confirmation) -> Finding:
    """The finding with the trials that hung, which confirm it, and those that ended."""
    hung = [t for t in confirmation.trials if t.evidence.outcome == FAILED and t.evidence.what.startswith("no end")]
    ended = [t for t in confirmation.trials if t not in hung]
    return replace(
        finding,
        confirmed_by=tuple(_line(t) for t in hung),
        contradicted_by=tuple(_line(t) for t in ended),
        **_repro(confirmation),
        warnings=(*finding.warnings, *_refusals(confirmation)),
    )


def _with(finding: Finding, confirmation: Confirmation, expected: str) -> Finding:
    ran = [trial for trial in confirmation.trials if trial.evidence.outcome != FAILED]
    failed = [trial for trial in confirmation.trials if trial.evidence.outcome == FAILED]
    return replace(
        finding,
        confirmed_by=tuple(_line(t) for t in ran if t.evidence.outcome == expected),
        contradicted_by=tuple(_line(t) for t in ran if t.evidence.outcome != expected),
        **_repro(confirmation),
        warnings=(*finding.warnings, *(_line(t) for t in failed), *_refusals(confirmation)),
    )


def _refusals(confirmation: Confirmation) -> tuple[str, ...]:
    """The reasons why there is no repro; none where there is one."""
    return confirmation.refused if confirmation.repro is None else ()


def _repro(confirmation: Confirmation) -> dict[str, Any]:
    """The fields of a finding that name the repro."""
    if confirmation.repro is None:
        return {}
    return {"repro": str(confirmation.repro), "next": (shlex.join(["python", str(confirmation.repro / "repro.py")]),)}


def _line(trial: ReproTrial) -> str:
    return f"{trial.mode.name}: {headline(trial.evidence)}"


def headline(evidence: Evidence) -> str:
    """The result of a repro in one line."""
    if evidence.sanitize and evidence.accesses and len(evidence.lines) > 1:
        return evidence.lines[1].strip()
    outcome = "it reproduces the recorded values" if evidence.outcome == "as recorded" else evidence.outcome
    return without_compiled_folders(evidence.what.partition("\n")[0]) or outcome
