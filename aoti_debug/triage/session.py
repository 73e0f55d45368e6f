"""The procedure of a triage: build, run, check, run again with more recorded, replay the guilty launch, explain."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from aoti_debug.base import wording
from aoti_debug.base.errors import ArtifactError, InputMismatch, ToolchainError, UsageError
from aoti_debug.base.machine import cache
from aoti_debug.base.machine.compiler import find_torch, installed_versions
from aoti_debug.base.machine.files import stamped_directories
from aoti_debug.base.machine.processes import python_process
from aoti_debug.base.machine.steps import OutOfTime, Step, StepListener, Steps, time_limit
from aoti_debug.base.version import __version__
from aoti_debug.compare.outcome import incomplete_text
from aoti_debug.instrument.builder import compare_kernels, join_program
from aoti_debug.instrument.builder.build import BuildSummary, manifest_of, require_inputs
from aoti_debug.instrument.builder.compare_kernels import KernelComparison
from aoti_debug.instrument.wrapper import model_variables
from aoti_debug.package.inputs.random_inputs import RANDOM_INPUTS_NOTE
from aoti_debug.package.launch_traits import overlap_remark
from aoti_debug.package.manifest import Constant, Manifest, PackageOrigin
from aoti_debug.package.pt2 import archive, extract
from aoti_debug.package.pt2.archive import Artifact, ArtifactKind
from aoti_debug.runs.diagnosis.findings import CLEAN, INCOMPLETE, Finding, FindingKind
from aoti_debug.runs.diagnosis.verdict_text import finding_of, with_coordinates
from aoti_debug.runs.run.protocol import PRELOADED
from aoti_debug.runs.run.runner import RunResult
from aoti_debug.runs.show.verdict import argument_sentences
from aoti_debug.triage.build_failures.build_without import BuiltWithout, build_without
from aoti_debug.triage.build_failures.finding import all_failures, with_failures
from aoti_debug.triage.checks import buffers, faults, nonfinite, races, wrong_value
from aoti_debug.triage.contracts import contracts
from aoti_debug.triage.investigation.investigation import Check, Investigation, Outcome, SoFar, Suspicion, deeper
from aoti_debug.triage.investigation.triage_runs import TriageOptions, TriageRuns
from aoti_debug.triage.results import triage_directory
from aoti_debug.triage.results.triage_directory import Record, TriageDir

_MAX_FILES = 16  # the newest .pt2 files of the folder


def with_remark(finding: Finding, options: TriageOptions, built: BuildSummary) -> Finding:
    """The finding with a remark on a compiled package of the program; of one with other kernels also its triage.

    Where nothing is wrong with these kernels, the headline says that such a package was not run, and its triage comes
    first, then the difference of both.

    Args:
        options: of the triage of an exported program.
        built: of the package that was run.
    """
    compared = next(_compared(options.model, built), None)
    if compared is None:
        return finding
    name = compared.package.name
    others = [f"{kernel.kernel}: {kernel.reason}" for kernel in compared.different]
    others += [f"{kernel}: only in {name}" for kernel in compared.missing]
    remark = f"{compared}{f' ({others[0]})' if others else ''}"
    package, exported = str(compared.package), str(options.model)
    more = (shlex.join(["aoti-debug", "triage", package, "--exported", exported, *options.calling]),) if others else ()
    if finding.kind.is_fault:
        commands = (*finding.next, *more)
    else:
        has_known_inputs = bool(more) and options.random_inputs is None
        difference = shlex.join(["aoti-debug", "diff", exported, package, *options.calling])
        commands = (*more, *((difference,) if has_known_inputs else ()), *finding.next)
    if others and not finding.kind.is_fault:
        unseen = f"{name}, which lies beside the program with other kernels, was not run"
        finding = replace(finding, what=f"{unseen}; {finding.what}")
    return replace(finding, warnings=(*finding.warnings, remark), next=commands)


def _compared(program: Path, built: BuildSummary) -> Iterator[KernelComparison]:
    """Yields the comparisons with the packages of the program, the newest first.

    They have its inputs, and one of its weights or of its kernels: some settings pack weights.
    """
    inputs, weights = built.manifest.inputs, _weights(built.manifest.constants)
    for package in _packages(program.absolute()):
        model = package.models[0]
        try:
            text = "".join(package.read(name).decode(errors="replace") for name in package.wrapper_sources(model))
            if model_variables.inputs(text) != inputs:
                continue
            with cache.scratch() as directory:
                kernels = compare_kernels.read_kernels(package, model, directory, find_torch())
        except (ArtifactError, ToolchainError):  # damaged, or of a torch that writes other files
            continue
        compared = compare_kernels.compare(package.path, built.kernels, kernels)
        if weights & _weights(model_variables.constants(text)) or len(compared.different) < compared.kernels:
            yield compared


def _packages(program: Path) -> Iterator[Artifact]:
    """Yields the compiled packages of one model in the folder of a program, the newest first."""
    files = [path for path in program.parent.glob("*.pt2") if path.is_file() and path != program]
    for path in sorted(files, key=lambda path: path.stat().st_mtime, reverse=True)[:_MAX_FILES]:
        try:
            package = archive.inspect(path)
        except ArtifactError:
            continue
        if package.kind is ArtifactKind.PACKAGE and len(package.models) == 1:
            yield package


def _weights(constants: Iterable[Constant]) -> set[tuple[str, str, tuple[int, ...]]]:
    """The names, dtypes and shapes of weights and buffers."""
    return {(constant.fqn, constant.dtype, constant.shape) for constant in constants if constant.fqn}


PACKAGE = "package.pt2"
# In the order in which a triage looks: first what the first run shows, then what takes more runs.
CHECKS: tuple[Check, ...] = (
    buffers.CONTRACT_CHECK,
    faults.HANG_CHECK,
    faults.FAULT_CHECK,
    races.CHECK,
    buffers.OVERRUN_CHECK,
    buffers.UNINITIALISED_CHECK,
    nonfinite.CHECK,
    wrong_value.CHECK,
    races.OF_THREADS,
)


def investigate(options: TriageOptions, folder: Path, steps: Steps) -> Outcome:
    """Finds out what is wrong with a model, or with the parts of its build, within the time limit of the options.

    Args:
        folder: of the triage; the package, the runs and the repro go there.

    Raises:
        UsageError, ArtifactError, ToolchainError, TargetError: the model could not be built or started.
    """
    return limited(_investigated, options, folder, steps, SoFar())


def limited(
    work: Callable[[TriageOptions, Path, Steps, SoFar], Outcome],
    options: TriageOptions,
    folder: Path,
    steps: Steps,
    so_far: SoFar,
) -> Outcome:
    """The outcome of the work of a triage, or what is known when its time is over."""
    try:
        with time_limit(options.time_limit):
            return work(options, folder, steps, so_far)
    except OutOfTime:
        return so_far.outcome(options, steps)


def _investigated(options: TriageOptions, folder: Path, steps: Steps, so_far: SoFar) -> Outcome:
    with python_process.forking_from(PRELOADED, options.user_code.imports) as server:
        server.preload()  # while the package is built
        built = _package(options, folder, steps)
        if built.failures and not built.left_out:
            return Outcome(_with_notes(all_failures(built.failures), built.notes), None)
        runs = TriageRuns(folder / PACKAGE, folder / triage_directory.RUNS, options, steps)
        with contextlib.closing(runs):
            try:
                found = _outcome(options, runs, steps, folder, so_far)
            except OutOfTime:  # what the build has shown is told all the same
                found = so_far.outcome(options, steps)
            outcome = _with_remarks(found, options)
    if server.failure:
        steps.add(Step("fork server", 0.0, f"new processes were started instead: {server.failure}"))
    finding = races.also(outcome.finding, outcome.run)
    finding = finding if outcome.run is None else with_coordinates(finding, outcome.run)
    if built.summary is not None and built.summary.manifest.source is PackageOrigin.EXPORTED and not built.left_out:
        finding = with_remark(finding, options, built.summary)
    if built.failures:
        finding = with_failures(finding, built.failures, built.left_out)
    return replace(outcome, finding=_with_notes(finding, built.notes), opened=runs.opened)


def _with_notes(finding: Finding, notes: tuple[str, ...]) -> Finding:
    return replace(finding, warnings=(*finding.warnings, *notes))


def _package(options: TriageOptions, folder: Path, steps: Steps) -> BuiltWithout:
    """Makes the package of a triage, unless it was given one."""
    found = archive.inspect(options.model)
    if options.name and found.models:
        archive.resolve_model(found, options.name)
    output = folder / PACKAGE
    stripped = found.is_stripped(options.name)
    if stripped and options.exported is not None:
        raise UsageError(
            f"{options.model} holds no source that --exported could tell model lines of",
            hint=extract.UNCHANGED_PACKAGE_HINT,
        )
    if stripped or found.kind is ArtifactKind.INSTRUMENTED:
        output.symlink_to(options.model.resolve())
        return BuiltWithout(None, (), "")
    built = build_without(options.building(found, output), folder, steps, lambda summary: _built(summary.manifest))
    made = built.summary
    if made is not None and options.inputs is None and options.random_inputs is None:
        require_inputs(options.model, made)
    return built


def _built(manifest: Manifest) -> str:
    same = f"; {manifest.sameness}" if manifest.sameness else ""
    where = f"{wording.pluralize(len(manifest.sites), 'launch site')}, {manifest.device}"
    return f"{where}, from {wording.article(manifest.source.value)}{same}"


def check_of(kind: FindingKind, found_by: Check) -> Check:
    """The check that confirms findings of a kind: its own, or else the one that found it."""
    return next((check for check in CHECKS if kind == check.kind), found_by)


def _outcome(options: TriageOptions, runs: TriageRuns, steps: Steps, folder: Path, so_far: SoFar) -> Outcome:
    """The outcome of the first run and of the checks."""
    try:
        first = runs.names()
    except InputMismatch as error:
        return Outcome(contracts.input_finding(error), None)
    if first.run.manifest.without_source:
        return Outcome(_from_outside(first), first.run)
    so_far.run = first.run
    if first.verdict is not None:
        seen = finding_of(first.run, first.verdict, argument_sentences(first.verdict))
        so_far.suspicion = Suspicion(seen, first.diagnosed)
    return _checked(Investigation(options, runs, steps, folder / triage_directory.REPRO, first), so_far)


def _checked(investigation: Investigation, so_far: SoFar) -> Outcome:
    """The outcome of the checks: of the first that finds a fault."""
    warnings: tuple[str, ...] = ()
    so_far.seen = seen = investigation.seen
    so_far.left = [check.kind.title for check in CHECKS]
    open_: Finding | None = None
    for check in CHECKS:
        with investigation.steps.work(f"check: {check.kind.value}"):
            suspicion = check.look(investigation)
        so_far.left.remove(check.kind.title)
        if suspicion is None:
            continue
        so_far.warnings = warnings = (*warnings, *suspicion.finding.warnings)
        if suspicion.finding.kind == INCOMPLETE:
            what = suspicion.finding.what
            open_ = suspicion.finding if open_ is None else replace(open_, what=f"{open_.what}; {what}")
            so_far.open.append(what)
        elif suspicion.finding.what:
            seen.append(suspicion.finding.what)
        if suspicion.finding.kind.is_fault:
            finding = replace(suspicion.finding, warnings=warnings)
            so_far.suspicion = replace(suspicion, finding=finding)
            with investigation.steps.work(f"confirm: {finding.kind.value}"):
                return check_of(finding.kind, check).confirm(investigation, replace(suspicion, finding=finding))
    measured = investigation.run_measured().run
    calls = wording.pluralize(investigation.options.calls, "call")
    what = f"{wording.pluralize(len(measured.launches), 'launch')} in {calls}: {', '.join(seen)}"
    further = deeper(investigation.options, measured.manifest)
    if open_ is not None:
        return Outcome(replace(open_, evidence=(what,), warnings=warnings, next=(*open_.next, *further)), measured)
    return Outcome(Finding(CLEAN, what, warnings=warnings, next=further), measured)


def _with_remarks(found: Outcome, options: TriageOptions) -> Outcome:
    """The outcome with what takes something away from it: made-up inputs, no model lines, kernels kept apart, tuned."""
    if not found.finding.kind.is_fault:
        apart = overlap_remark(found.run.manifest) if found.run is not None else ""
        notes = tuple(filter(None, (apart, options.tuning)))
        return replace(found, finding=_with_notes(found.finding, notes)) if notes else found
    made_up = [RANDOM_INPUTS_NOTE] if options.random_inputs is not None else []
    lacking = found.run is not None and join_program.lacks_model_lines(found.run.manifest)
    lines = [f"model lines: {join_program.NO_MODEL_LINES}"] if lacking and options.exported is None else []
    return replace(found, finding=replace(found.finding, warnings=(*found.finding.warnings, *made_up, *lines)))


def _from_outside(result: RunResult) -> Finding:
    """What can be said where launches are seen, and neither their values nor how to repeat one of them."""
    warning = f"{result.run.manifest.without_source}: {extract.UNCHANGED_PACKAGE_HINT}"
    if result.verdict is not None:
        found = finding_of(result.run, result.verdict, argument_sentences(result.verdict))
        return replace(found, warnings=(*found.warnings, warning))
    calls = wording.pluralize(len(result.run.timeline.calls), "call")
    launches = wording.pluralize(len(result.run.launches), "launch")
    what = incomplete_text(f"0 of {launches}", ("values, which were not looked at",))
    return Finding(INCOMPLETE, what, evidence=(f"{launches} in {calls}: no fault",), warnings=(warning,))


def triage(options: TriageOptions, listener: StepListener | None = None, *, command: Sequence[str] = ()) -> TriageDir:
    """Finds out why a model crashes, hangs or computes what is not finite.

    Args:
        listener: told of the begin and end of every step.
        command: the words of the command line, for the record.

    Returns:
        The triage's directory; its finding is of kind CLEAN if nothing is wrong.

    Raises:
        UsageError, ArtifactError, ToolchainError, TargetError: the model could not be built or started; no directory is
            left then.
    """
    return recorded(options, listener, command, investigate)


def triage_races(
    options: TriageOptions, listener: StepListener | None = None, *, command: Sequence[str] = ()
) -> TriageDir:
    """Looks for races between the streams of a model, in its generated code alone: it is neither compiled nor run.

    With threads it is built as well, and called from these.

    Returns and raises as `triage` does.
    """
    return recorded(options, listener, command, _read_races)


def _read_races(options: TriageOptions, folder: Path, steps: Steps) -> Outcome:
    unread = "the generated code was not read to its end"
    so_far = SoFar(unread if options.threads is None else "races were not looked for to the end", ("--races",))
    return limited(_statically, options, folder, steps, so_far)


def _statically(options: TriageOptions, folder: Path, steps: Steps, _: SoFar) -> Outcome:
    found = archive.inspect(options.model)
    if found.is_stripped(options.name):
        raise UsageError(
            f"{options.model} holds no generated code to look for races in",
            hint=extract.UNCHANGED_PACKAGE_HINT,
        )
    if options.threads is not None:
        return _raced(options, folder, steps)
    if found.kind is ArtifactKind.INSTRUMENTED:
        return Outcome(races.statically(found.manifest()), None)
    with steps.step("generated code") as note:
        manifest = manifest_of(options.building(found, folder / PACKAGE))
        note.text = _built(manifest)
    return Outcome(races.statically(manifest), None)


def _raced(options: TriageOptions, folder: Path, steps: Steps) -> Outcome:
    """The races in the generated code, and of calls from threads."""
    assert options.threads is not None
    with python_process.forking_from(PRELOADED, options.user_code.imports) as server:
        server.preload()
        built = _package(options, folder, steps)
        if built.failures and not built.left_out:
            return Outcome(_with_notes(all_failures(built.failures), built.notes), None)
        with contextlib.closing(TriageRuns(folder / PACKAGE, folder / triage_directory.RUNS, options, steps)) as runs:
            called = runs.from_threads(options.threads)
    run = called.result.run
    both = races.joined(races.statically(run.manifest), races.finding_of_calls(called))
    return Outcome(_with_notes(both, built.notes), run, opened=runs.opened)


def recorded(
    options: TriageOptions,
    listener: StepListener | None,
    command: Sequence[str],
    work: Callable[[TriageOptions, Path, Steps], Outcome],
) -> TriageDir:
    """The directory of a triage, with the outcome of its work.

    Args:
        listener, command: as of `triage`.
        work: from the options, the directory, and the steps that it adds to.
    """
    base_is_new = not options.out.exists()
    folder = triage_directory.create(options.out)
    steps = Steps(listener)
    try:
        outcome = work(options, folder, steps)
    except BaseException:
        if not (folder / triage_directory.RUNS).exists():
            stamped_directories.remove(folder, options.out if base_is_new else None)
        raise
    package = folder / PACKAGE
    record = Record(
        finding=outcome.finding,
        steps=tuple(steps.done),
        versions={
            "aoti-debug": __version__,
            **installed_versions("torch", "triton", "safetensors"),
        },
        command=tuple(command),
        package=str(package) if package.exists() else "",
        run="" if outcome.run is None else str(outcome.run.path),
        between=steps.between,
    )
    triage_directory.write(folder, record)
    return TriageDir(folder, record, outcome.opened)
