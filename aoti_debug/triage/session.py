"""The procedure of a triage: build, run, check, run again with more recorded, replay the guilty launch, explain."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from aoti_debug import wording
from aoti_debug.builder import build as builder
from aoti_debug.builder import join_provenance
from aoti_debug.builder.build import BuildOptions
from aoti_debug.diagnosis.dataflow import Dataflow
from aoti_debug.diagnosis.findings import Finding, FindingKind
from aoti_debug.errors import InputMismatch, UsageError
from aoti_debug.inputs import files
from aoti_debug.inputs.random_inputs import MADE_UP
from aoti_debug.manifest import Manifest
from aoti_debug.pt2 import archive, extract
from aoti_debug.pt2.archive import ArtifactKind
from aoti_debug.repro.evidence import Evidence
from aoti_debug.run import target
from aoti_debug.run.runner import RunResult
from aoti_debug.rundir.run_directory import RunDir
from aoti_debug.rundir.timeline import Launch
from aoti_debug.triage import confirm, faults, triage_directory
from aoti_debug.triage.contracts import contracts
from aoti_debug.triage.memory import overruns, uninitialised
from aoti_debug.triage.memory.explain_access import explain, explain_overrun
from aoti_debug.triage.memory.walk_back import makers
from aoti_debug.triage.nonfinite import nonfinite
from aoti_debug.triage.options import TriageOptions
from aoti_debug.triage.steps import Steps
from aoti_debug.triage.trials import Trials

POISONS = (0xFF, 0x3B)  # NaN and -1; a small number in every float format
PACKAGE = "package.pt2"


@dataclass(frozen=True)
class Outcome:
    """The finding of a triage, and the run behind it.

    Attributes:
        run: the run that shows it best; None where the model was never called.
    """

    finding: Finding
    run: RunDir | None


def investigate(options: TriageOptions, folder: Path, steps: Steps) -> Outcome:
    """Finds out what is wrong with a model.

    Args:
        folder: of the triage; the package, the runs and the repro go there.

    Raises:
        UsageError, ArtifactError, ToolchainError, TargetError: the model could not be built or started.
    """
    package = _package(options, folder, steps)
    return _Session(options, folder, steps, Trials(package, folder / triage_directory.RUNS, options, steps)).outcome()


def _package(options: TriageOptions, folder: Path, steps: Steps) -> Path:
    found = archive.inspect(options.model)
    output = folder / PACKAGE
    stripped = target.is_stripped(found, options.name)
    if stripped and options.exported is not None:
        raise UsageError(
            f"{options.model} holds no source that --exported could tell model lines of", hint=extract.AS_COMPILED
        )
    if stripped or found.kind is ArtifactKind.INSTRUMENTED:
        output.symlink_to(options.model.resolve())
        return output
    with steps.step("build") as note:
        built = builder.build_report(
            BuildOptions(
                program=found,
                output=output,
                inductor_configs=options.inductor_configs,
                imports=options.imports,
                libraries=tuple(str(path) for path in options.libraries),
                model=options.name,
                exported=options.exported,
            )
        )
        note.text = _built(built.manifest)
    if built.without_inputs and options.inputs is None and options.random_inputs is None:
        raise files.missing(str(options.model), built.inputs)
    return output


def _built(manifest: Manifest) -> str:
    same = f"; {manifest.sameness}" if manifest.sameness else ""
    where = f"{wording.count(len(manifest.sites), 'launch site')}, {manifest.device}"
    return f"{where}, from {wording.article(manifest.source.value)}{same}"


class _Session:
    def __init__(self, options: TriageOptions, folder: Path, steps: Steps, trials: Trials) -> None:
        self._options = options
        self._folder = folder
        self._steps = steps
        self._trials = trials

    def outcome(self) -> Outcome:
        found = self._outcome()
        if found.finding.kind is FindingKind.CLEAN:
            return found
        made_up = [MADE_UP] if self._options.random_inputs is not None else []
        lacking = found.run is not None and join_provenance.lacks_lines(found.run.manifest)
        lines = [f"model lines: {join_provenance.NO_LINES}"] if lacking and self._options.exported is None else []
        return replace(found, finding=replace(found.finding, warnings=(*found.finding.warnings, *made_up, *lines)))

    def _outcome(self) -> Outcome:
        try:
            first = self._trials.names()
        except InputMismatch as error:
            return Outcome(contracts.input_finding(error), None)
        if first.run.manifest.without_source:
            return Outcome(_from_outside(first), first.run)
        broken = contracts.check(first.run)
        if broken:
            return self._contract(broken, first)
        if first.verdict is not None:
            return self._fault(first)
        return self._guards(first) or self._values(first)

    def _contract(self, broken: Sequence[Finding], first: RunResult) -> Outcome:
        finding = broken[0]
        if first.verdict is not None:
            launch = first.verdict.launch
            where = f" in launch {launch.id} {launch.kernel}" if launch is not None else ""
            ended = f"the run ended in {first.verdict.what.partition(chr(10))[0]}{where}"
            finding = replace(finding, evidence=(*finding.evidence, ended))
        finding = replace(finding, warnings=(*finding.warnings, *(other.what for other in broken[1:])))
        return self._same_again(finding, first.run)

    def _fault(self, first: RunResult) -> Outcome:
        if self._options.guards or faults.may_be_damage(first):
            damaged = self._overrun()
            if damaged is not None:
                return damaged
        case = faults.investigate(first, self._trials, self._options.tries)
        if case.launch is None:
            return Outcome(case.finding, case.run)
        if case.finding.kind is FindingKind.HANG:
            confirmation = self._confirm(case.run, case.launch, confirm.EXACT, self._options.stall)
            return Outcome(confirm.of_hang(case.finding, confirmation), case.run)
        confirmation = self._confirm(case.run, case.launch, confirm.FAULT)
        finding = confirm.of_fault(case.finding, confirmation)
        seen: list[Evidence] = [trial.evidence for trial in confirmation.trials]
        return Outcome(explain(finding, case.run, case.launch, seen), case.run)

    def _guards(self, first: RunResult) -> Outcome | None:
        if not self._options.guards:
            return None
        damaged = self._overrun()
        if damaged is not None:
            return damaged
        one, other = (self._trials.poisoned(poison) for poison in POISONS)
        finding = uninitialised.find(one.run, other.run)
        if finding is not None:  # unless the launch in question is not the same twice anyway
            finding = uninitialised.find(one.run, other.run, self._trials.poisoned(POISONS[0]).run)
        return (
            None
            if finding is None
            else self._suspected(finding, first.run, confirm.UNINITIALISED, self._trials.tensors)
        )

    def _overrun(self) -> Outcome | None:
        run = self._trials.guarded().run
        finding = overruns.find(run)
        return None if finding is None else self._suspected(finding, run, confirm.OVERRUN, self._trials.guarded_tensors)

    def _values(self, first: RunResult) -> Outcome:
        measured = self._trials.values()
        if measured.verdict is not None:
            return self._fault(measured)
        seen = nonfinite.find(measured.run, self._options.infinities)
        if seen.finding is None:
            calls = wording.count(self._options.calls, "call")
            what = f"{wording.count(len(measured.run.launches), 'launch')} in {calls}: no fault, outputs finite"
            return Outcome(Finding(FindingKind.CLEAN, what, warnings=seen.warnings), measured.run)
        finding = replace(seen.finding, warnings=(*seen.finding.warnings, *seen.warnings))
        wanted = [measured.run.launch(id_) for id_ in seen.needed]
        if not wanted:
            return Outcome(finding, measured.run)
        saved = self._trials.tensors(wanted).run
        finding = nonfinite.explain(finding, saved)
        return self._same_again(finding, saved)

    def _same_again(self, finding: Finding, run: RunDir) -> Outcome:
        """A finding of values or layouts: the launch alone has to make them again."""
        launch = _launch(finding, run)
        if launch is None:
            return Outcome(finding, run)
        saved = run if launch.args and any(a.files for a in launch.args) else self._trials.tensors([launch]).run
        repro, refused = confirm.write(
            saved, saved.launch(launch.id), self._folder / triage_directory.REPRO, self._steps
        )
        if repro is None:
            return Outcome(replace(finding, warnings=(*finding.warnings, refused)), run)
        confirmation = confirm.run(repro, launch, run, confirm.EXACT, self._steps)
        return Outcome(confirm.of_values(finding, confirmation), run)

    def _suspected(
        self, finding: Finding, run: RunDir, ways: Collection[str], save: Callable[[Sequence[Launch]], RunResult]
    ) -> Outcome:
        """A finding of memory: the checks of the repro show it or do not.

        Args:
            save: runs the model and saves the tensors of some launches.
        """
        launch = _launch(finding, run)
        if launch is None:
            return Outcome(finding, run)
        saved = save([launch, *makers(Dataflow(run), launch)]).run
        launch = saved.launch(launch.id)
        confirmation = self._confirm(saved, launch, ways)
        finding = confirm.of_fault(finding, confirmation)
        if finding.kind is FindingKind.OVERRUN:
            finding = explain_overrun(finding, saved, launch, [trial.evidence for trial in confirmation.trials])
        return Outcome(finding, run)

    def _confirm(
        self, run: RunDir, launch: Launch, ways: Collection[str], seconds: float = confirm.SECONDS
    ) -> confirm.Confirmation:
        repro, refused = confirm.write(run, launch, self._folder / triage_directory.REPRO, self._steps)
        if repro is None:
            return confirm.Confirmation(None, (), (refused,))
        return confirm.run(repro, launch, run, ways, self._steps, seconds)


def _from_outside(result: RunResult) -> Finding:
    """What can be said where launches are seen, and neither their values nor how to repeat one of them."""
    warning = f"{result.run.manifest.without_source}: {extract.AS_COMPILED}"
    if result.verdict is not None:
        found = faults.finding_of(result.run, result.verdict)
        return replace(found, warnings=(*found.warnings, warning))
    calls = wording.count(len(result.run.timeline.calls), "call")
    what = f"{wording.count(len(result.run.launches), 'launch')} in {calls}: no fault; values were not looked at"
    return Finding(FindingKind.CLEAN, what, warnings=(warning,))


def _launch(finding: Finding, run: RunDir) -> Launch | None:
    if finding.where is None or not finding.where.launch:
        return None
    return run.launch(finding.where.launch)
