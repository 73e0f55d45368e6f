"""Wrong values: a launch computes something else than its program says. A run with all tensors shows them."""

from __future__ import annotations

import contextlib
import shlex
import shutil
from collections.abc import Iterator
from dataclasses import replace

from aoti_debug.base import wording
from aoti_debug.base.errors import AotiDebugError
from aoti_debug.compare import stored_comparison
from aoti_debug.compare.compare_run import (
    Scope,
    compare_run,
    exported_of,
    has_exported_alone,
    has_reference,
    lowered_otherwise,
)
from aoti_debug.compare.comparison import NO_PROGRAM, Comparison
from aoti_debug.compare.measure.output_errors import is_exact
from aoti_debug.compare.measure.verdicts import LaunchVerdict
from aoti_debug.compare.outcome import DIFFERS, WRONG_VALUE, incomplete_text
from aoti_debug.compare.precision_setting import with_setting
from aoti_debug.compare.protocol import messages
from aoti_debug.compare.protocol.measurement import EXPORTED_EAGER
from aoti_debug.package.manifest import PackageOrigin
from aoti_debug.package.pt2 import archive
from aoti_debug.package.pt2.archive import ArtifactKind
from aoti_debug.runs.diagnosis import suggested_commands
from aoti_debug.runs.diagnosis.findings import INCOMPLETE, Finding
from aoti_debug.runs.run.runner import RunResult
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.triage.checks import faults
from aoti_debug.triage.investigation import confirm_by_repro as replay
from aoti_debug.triage.investigation.confirm_by_repro import proof
from aoti_debug.triage.investigation.investigation import Check, Investigation, Outcome, Suspicion, deeper
from aoti_debug.triage.investigation.triage_runs import SMALL, fits_beside
from aoti_debug.triage.results import wrong_value_finding
from aoti_debug.triage.results.wrong_value_finding import AS_RECORDED

LARGEST = 16 << 30  # bytes of tensors that are saved without being asked for
MAX_LAUNCHES = 5000  # that are compared without being asked for


def look(investigation: Investigation) -> Suspicion | None:
    """The first launch of a run with all tensors that differs from the program by more than rounding explains."""
    first = investigation.first
    if not investigation.options.compare:
        return _not_compared("--no-compare", first)
    if first.run.package is None:
        return _not_compared("a run whose package is gone", first)
    if reason := reason_against(investigation, first.run):
        return _not_compared(reason, first, _difference(investigation, first.run))
    saved = investigation.runs.all_tensors()
    if saved.verdict is not None:
        return faults.of_ended(investigation, saved)
    try:
        with _returned_outputs(investigation):
            comparison = _compared(investigation, saved)
            if any(is_exact(error.dtype) for error in comparison.differing_outputs):  # rounding may decide them
                comparison = _compared(investigation, saved, inherited=True)
            if has_reference(saved.run):
                comparison = _with_setting(investigation, comparison)
        stored_comparison.keep_in_run(comparison, investigation.steps)
    except AotiDebugError as error:
        return _not_compared(wording.first_line(str(error)), saved)
    suspicion = _suspicion(comparison, saved)
    if has_reference(saved.run):
        return suspicion
    finding, difference = suspicion.finding, lowered_otherwise(saved.run)
    if finding.kind.is_fault:
        finding = replace(finding, evidence=(*finding.evidence, difference))
    else:
        finding = replace(finding, warnings=(*finding.warnings, difference))
    commands = (*finding.next, *_difference(investigation, saved.run))
    return replace(suspicion, finding=replace(finding, next=commands))


def begin(investigation: Investigation) -> None:
    """Begins the process that evaluates the run with all tensors beside the next run, and that run itself.

    On a GPU both only for a small package, where all of them fit. On a CPU the process just imports its modules.
    """
    first = investigation.first
    package, device = first.run.package, first.run.manifest.device
    if not investigation.options.compare or package is None or reason_against(investigation, first.run):
        return
    has_room = fits_beside(package, device) and bytes_of_tensors(first.run) <= SMALL
    if has_room or device == "cpu":
        investigation.runs.prepare_evaluation(device, investigation.repro.parent)
    if has_room:
        investigation.runs.begin_all_tensors()


def reason_against(investigation: Investigation, run: RunDir) -> str:
    """The reason against comparing the launches of a run with the program without being asked; "" if there is none."""
    if not has_reference(run) and not has_exported_alone(run):
        is_compiled = run.manifest.source in (PackageOrigin.COMPILED, PackageOrigin.UNCOMPILED)
        is_alone = is_compiled and investigation.options.exported is None
        return NO_PROGRAM if is_alone else "a package that does not hold the graph that it was compiled from"
    if len(run.launches) > MAX_LAUNCHES:
        return f"{len(run.launches)} launches, which are many; aoti-debug compare does"
    needed, free = bytes_of_tensors(run), shutil.disk_usage(investigation.repro.parent).free
    if needed > min(LARGEST, free // 2):
        return f"{wording.byte_size(needed)} of tensors, which would be saved; aoti-debug compare does"
    return ""


def bytes_of_tensors(run: RunDir) -> int:
    """About how many bytes the same run at level 1 saves: of what is written each time, of what is only read once."""
    written, read = 0, {}
    for launch in run.launches:
        for argument in launch.args:
            if argument.layout is None or argument.tensor is None:
                continue
            if argument.written:
                written += argument.layout.bytes
            else:
                read[argument.tensor.data_ptr] = argument.layout.bytes
    return written + sum(read.values())


def _not_compared(reason: str, result: RunResult, commands: tuple[str, ...] = ()) -> Suspicion:
    launches = wording.pluralize(len(result.run.launches), "launch")
    finding = Finding(INCOMPLETE, incomplete_text(f"0 of {launches}", (reason,)), next=commands)
    return Suspicion(finding, result.diagnosed)


def _difference(investigation: Investigation, run: RunDir) -> tuple[str, ...]:
    """The command that compares a compiled package without its graph with a build of its program; () without one."""
    options = investigation.options
    if options.exported is None or options.random_inputs is not None or has_reference(run):
        return ()
    return (shlex.join(["aoti-debug", "diff", str(options.exported), str(options.model), *options.calling]),)


def confirm(investigation: Investigation, suspicion: Suspicion) -> Outcome:
    """Replays the launch alone: as it was compiled, and its source compiled or interpreted in another way.

    Where no launch is wrong (eager refuses the inputs, or returns something else), there is nothing to replay.
    """
    launch = suspicion.launch
    if suspicion.finding.kind == DIFFERS and investigation.options.inductor_configs:
        return Outcome(_with_settings(suspicion.finding, investigation, suspicion.run), suspicion.run)
    if suspicion.finding.kind != WRONG_VALUE:
        return Outcome(suspicion.finding, suspicion.run)
    if suspicion.finding.possible and not suspicion.needed:
        further = deeper(investigation.options, suspicion.run.manifest)
        return Outcome(replace(suspicion.finding, next=(*suspicion.finding.next, *further)), suspicion.run)
    if launch is None:
        is_search = suspicion.finding.where is None or not suspicion.finding.where.launch
        finding = suspicion.finding
        finding = with_search(finding, investigation, suspicion.run) if is_search else finding
        return Outcome(finding, suspicion.run)
    confirmation = replay.confirm(investigation, suspicion.diagnosed, launch, (*replay.EXACT, *replay.SOURCE))
    if confirmation.repro is not None:
        messages.move_to_repro(investigation.repro.parent, confirmation.repro)
    of_source = tuple(trial for trial in confirmation.trials if trial.mode.name in replay.SOURCE)
    exact = replace(confirmation, trials=tuple(t for t in confirmation.trials if t not in of_source))
    finding = replay.of_values(suspicion.finding, exact)
    outcomes = [trial.evidence.outcome for trial in of_source]
    stage = wrong_value_finding.stage(launch, outcomes, suspicion.undefined)
    if finding.origin is None and AS_RECORDED in outcomes:  # the lowering of one of several operators
        finding = with_search(finding, investigation, suspicion.run)
    seen = tuple(
        f"its source, replayed with checks: {replay.headline(trial.evidence)}"
        for trial in of_source
        if trial.evidence.outcome == "fault"
    )
    proved = proof(investigation, suspicion.run, suspicion.needed, "what is wrong does not reach them")
    return Outcome(replace(finding, evidence=(*seen, *finding.evidence, *stage, *proved)), suspicion.run)


def _with_settings(finding: Finding, investigation: Investigation, run: RunDir) -> Finding:
    """The finding with the settings that the build was asked for, and the command that builds without them."""
    asked = [f"{key}={value}" for key, value in investigation.options.inductor_configs.items()]
    possible = f"{wording.comma_separated(asked)}, which the build was asked for, may be why"
    return with_search(replace(finding, possible=(*finding.possible, possible)), investigation, run)


def with_search(finding: Finding, investigation: Investigation, run: RunDir) -> Finding:
    """The finding with the command that looks for the pass or the lowering, where there is a program to build.

    Args:
        run: that shows it.
    """
    options = investigation.options
    if archive.inspect(options.model).kind is not ArtifactKind.EXPORTED:
        return finding
    called = options if options.random_inputs is None else replace(options, inputs=run.inputs)
    command = suggested_commands.bisect_settings(options.model, called.words)
    return replace(finding, next=(*finding.next, command))


def with_program(investigation: Investigation) -> tuple[Comparison, Suspicion | None] | None:
    """The comparison with the program, for a finding of another kind, and its wrong launches if there are any.

    None where it is not compared, or ends in a fault.
    """
    if (
        not investigation.options.compare
        or investigation.first.run.package is None
        or reason_against(investigation, investigation.first.run)
    ):
        return None
    saved = investigation.runs.all_tensors()
    if saved.verdict is not None:
        return None
    with investigation.steps.step("compare with the program") as note, _returned_outputs(investigation):
        try:
            comparison = _compared(investigation, saved)
        except AotiDebugError as error:
            note.text = f"not known: {wording.first_line(str(error))}"
            return None
        suspicion = _suspicion(comparison, saved)
        note.text = f"{wording.pluralize(len(suspicion.needed), 'launch')} wrong"
    return comparison, suspicion if suspicion.needed else None


def _suspicion(comparison: Comparison, saved: RunResult) -> Suspicion:
    wrong = tuple(row.launch.id for row in comparison.rows if row.verdict is LaunchVerdict.WRONG)
    return Suspicion(
        wrong_value_finding.finding_of(comparison),
        saved.diagnosed,
        needed=wrong,
        undefined=tuple(operator.operator for operator in comparison.undefined),
    )


def _compared(investigation: Investigation, saved: RunResult, *, inherited: bool = False) -> Comparison:
    """The comparison of a run with all tensors.

    Args:
        inherited: also how far what launches read is from the whole program in eager.
    """
    options = investigation.options
    scope = Scope(
        inherited=inherited,
        user_code=options.user_code,
        exported=exported_of(options.model, options.exported),
        outputs=investigation.runs.outputs,
    )
    return compare_run(saved.run, scope, investigation.repro.parent, investigation.steps, investigation.runs.evaluation)


def _with_setting(investigation: Investigation, comparison: Comparison) -> Comparison:
    """The comparison with what the setting that makes kernels round as eager does makes of the outputs."""
    exported, folder = (
        exported_of(investigation.options.model, investigation.options.exported),
        investigation.repro.parent,
    )
    program = archive.inspect(exported) if exported is not None else None
    if program is None:
        return comparison
    building = investigation.options.building(program, folder / "package.pt2")
    return with_setting(
        comparison, building, investigation.runs.running, folder / EXPORTED_EAGER, folder, investigation.steps
    )


@contextlib.contextmanager
def _returned_outputs(investigation: Investigation) -> Iterator[None]:
    """Removes in the end what the model and the program returned."""
    try:
        yield
    finally:
        investigation.runs.remove_returned()


CHECK = Check(WRONG_VALUE, look, confirm)
