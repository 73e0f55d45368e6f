"""Faults and hangs, which a run ends in."""

from __future__ import annotations

import shlex
from dataclasses import replace

from aoti_debug.base import wording
from aoti_debug.base.abi import NoteCode, Phase, SaveStatus
from aoti_debug.base.errors import TargetError, ToolchainError
from aoti_debug.base.machine.compiler import find_program
from aoti_debug.compare.locate_operator import LocatedOperand, called_in_eager, trace_fault
from aoti_debug.package.launch_traits import traits_of
from aoti_debug.repro.operators import is_of_torch
from aoti_debug.repro.repro import missing_inputs
from aoti_debug.runs.diagnosis.diagnose import DEATHS
from aoti_debug.runs.diagnosis.diagnosed_run import DiagnosedRun
from aoti_debug.runs.diagnosis.findings import FAULT, HANG, Finding, place_of
from aoti_debug.runs.diagnosis.verdict import ASYNCHRONOUS, Proof
from aoti_debug.runs.diagnosis.verdict_text import finding_of
from aoti_debug.runs.run.runner import RunResult
from aoti_debug.runs.rundir import run_directory
from aoti_debug.runs.rundir.launch import Launch, LaunchStatus
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.runs.rundir.run_json import ExitKind
from aoti_debug.runs.show.verdict import argument_sentences
from aoti_debug.triage.checks import buffers
from aoti_debug.triage.investigation import confirm_by_repro as replay
from aoti_debug.triage.investigation import gpu_core
from aoti_debug.triage.investigation.changed_inputs import with_changed_inputs
from aoti_debug.triage.investigation.graph_trace import with_eager_call, with_graph, with_operand
from aoti_debug.triage.investigation.investigation import Check, Investigation, Outcome, Suspicion, deeper
from aoti_debug.triage.investigation.triage_runs import NO_CACHING, TriageRuns
from aoti_debug.triage.memory_errors.explain_access import best_access, explain, makers

_MAX_OPERATORS = 4  # that are replayed, or named
_OF_TOOLS = ("inductor", "aoti_debug")  # namespaces of operators that are nobody's model's
_GENERATED = ("cpp", "triton")  # kernels that compute each element by itself: an element can be to blame


def _look_for_fault(investigation: Investigation) -> Suspicion | None:
    """The fault that the first run ended in, if it did."""
    return None if investigation.first.verdict is None else of_ended(investigation, investigation.first)


def _look_for_hang(investigation: Investigation) -> Suspicion | None:
    """The hang of a first run that had to be killed."""
    is_hang = investigation.first.run.state is ExitKind.TIMEOUT
    return of_ended(investigation, investigation.first) if is_hang else None


def of_ended(investigation: Investigation, ended: RunResult) -> Suspicion:
    """The suspicion about a run that faulted or hung: a launch, or the damage that an earlier launch did."""
    if investigation.options.guards or may_be_damage(ended):
        damage = buffers.of_guarded(investigation)
        if damage is not None:
            return damage
    return reproduced(ended, investigation.runs, investigation.options.tries)


def _confirm_fault(investigation: Investigation, suspicion: Suspicion) -> Outcome:
    """Replays the launch alone, exactly, with bounds checks and under a sanitizer, and explains the access."""
    launch = suspicion.launch
    if launch is None:
        found = _with_gpu_core(investigation, suspicion.finding, suspicion.run)
        if suspicion.run.info.exit.signal in DEATHS:
            return _of_own_operators(investigation, found, suspicion.run)
        return Outcome(_with_eager(investigation, found, suspicion.run), suspicion.run)
    source = suspicion.with_inputs
    confirmation = replay.confirm(investigation, source, source.run.launch(launch.id), replay.FAULT)
    finding = replay.of_fault(suspicion.finding, confirmation)
    if not finding.confirmed_by:
        finding = _with_gpu_core(investigation, finding, suspicion.run)
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
    if is_open and run.can_be_repeated and (located.origin is None or not located.origin.input):
        access = best_access(confirmation.evidence)
        if access is not None or traits_of(launch.site.kind).replay in _GENERATED:
            index = None if access is None else access.index
            located = with_changed_inputs(investigation, located, flow, launch, "" if index is None else index.argument)
    is_contradicted = bool(located.contradicted_by) and not located.confirmed_by
    if is_contradicted:  # an earlier launch may have damaged its memory
        further = deeper(investigation.options, run.manifest)
        located = replace(located, next=(*located.next, *further))
    if suspicion.run.info.exit.signal == "SIGILL":
        elsewhere = ": what is compiled here of the same source does not stop there" if is_contradicted else ""
        of_cpu = f"{_OF_CPU}{elsewhere}"
        located = replace(located, possible=(of_cpu, *located.possible))
    return Outcome(located, run)


_OF_CPU = "the package may have been compiled for another CPU, with instructions that this one does not have"


def _of_own_operators(investigation: Investigation, finding: Finding, run: RunDir) -> Outcome:
    """A crash in no launch, with the first operator of the user's own that crashes alone as well.

    Guards do not see what such an operator writes around the tensors that it makes.
    """
    first = {launch.kernel: launch for launch in reversed(run.launches) if _is_own_operator(launch)}
    own = sorted(first.values(), key=lambda launch: launch.key)
    ended = f"{run.info.exit.signal} of the process, after it had returned"  # maybe before its results were saved
    for number, launch in enumerate(own[:_MAX_OPERATORS]):
        try:
            saved = investigation.runs.tensors([launch])
        except TargetError as error:
            return Outcome(replace(finding, warnings=(*finding.warnings, f"the second run: {error}")), run)
        again = saved.run.find_launch(launch.id)
        folder = investigation.repro.with_name(f"{investigation.repro.name}{number or ''}")
        repro = None if again is None else replay.write(saved.diagnosed, again, folder, investigation.steps, ended)[0]
        if again is None or repro is None:
            continue
        confirmation = replay.run_repeatedly(repro, investigation.steps)
        if any(evidence.outcome == "fault" and evidence.what in DEATHS for evidence in confirmation.evidence):
            times = f"launched up to {replay.TIMES[-1]} times with its inputs"
            said = f"{again.id} {again.kernel} crashes alone, too, {times}"
            possible = (*finding.possible, "alone, it may lack what its process had set up for it")
            found = replace(finding, where=place_of(again), evidence=(said, *finding.evidence), possible=possible)
            command = shlex.join(["python", str(repro / "repro.py"), *replay.TIMES])
            return Outcome(replace(replay.of_fault(found, confirmation), next=(command,)), saved.run)
    if not own:
        return Outcome(finding, run)
    names = wording.join_truncated([launch.kernel for launch in own], _MAX_OPERATORS)
    said = f"{names} may have damaged memory: guards do not see writes around tensors that an operator itself makes"
    return Outcome(replace(finding, possible=(*finding.possible, said)), run)


def _is_own_operator(launch: Launch) -> bool:
    """True if the code of a launch that returned is an operator that is not torch's."""
    namespace, colons, _ = launch.kernel.partition("::")
    is_of_others = is_of_torch(launch.kernel) or namespace in _OF_TOOLS
    return bool(colons) and not is_of_others and launch.status is LaunchStatus.RETURNED


def _with_eager(investigation: Investigation, finding: Finding, run: RunDir) -> Finding:
    """An exception of no launch, such as an assertion between two, with what eager does with the same inputs."""
    of_launch = any(fault.launch is not None for fault in run.timeline.faults)
    if run.info.exit.signal or not run.info.exit.exception or of_launch or _is_of_device(run):
        return finding
    return with_graph(
        investigation,
        finding,
        run,
        "call the program in eager",
        lambda scope, folder: called_in_eager(run, scope, folder),
        with_eager_call,
    )


def _confirm_hang(investigation: Investigation, suspicion: Suspicion) -> Outcome:
    """Replays the launch alone: it has to hang again."""
    launch = suspicion.launch
    if launch is None:
        return Outcome(_with_gpu_core(investigation, suspicion.finding, suspicion.run), suspicion.run)
    source, stall = suspicion.with_inputs, investigation.options.stall
    confirmation = replay.confirm(investigation, source, source.run.launch(launch.id), replay.EXACT, stall)
    finding = replay.of_hang(suspicion.finding, confirmation)
    if launch.status is LaunchStatus.RETURNED:  # what hangs is its kernel, not the host
        finding = _with_gpu_core(investigation, finding, suspicion.run)
    return Outcome(finding, suspicion.run)


def _with_gpu_core(investigation: Investigation, finding: Finding, run: RunDir) -> Finding:
    """The finding of a kernel that failed on a GPU, or hangs there, with what a core dump of another run shows.

    Args:
        run: that shows the finding; of any other fault nothing is run again.
    """
    first = investigation.first.run
    if run.manifest.device != "cuda" or (finding.kind == FAULT and not any(map(_is_of_device, (first, run)))):
        return finding
    if find_program(gpu_core.READER) is None:
        said = f"{gpu_core.READER} was not found, which would read a core dump of the GPU"
        return replace(finding, warnings=(*finding.warnings, said))
    for environment in ({}, NO_CACHING):
        try:
            result = investigation.runs.with_gpu_core(environment)
        except TargetError as error:
            return replace(finding, warnings=(*finding.warnings, f"the run for a core dump of the GPU: {error}"))
        if (result.run.path / run_directory.GPU_CORE).exists():
            return _as_dumped(investigation, finding, result)
        if result.verdict is not None:
            ended = "hang" if result.run.state is ExitKind.TIMEOUT else "fault"
            said = f"the driver wrote no core dump of the GPU in a run that ended in a {ended}, too"
            return replace(finding, warnings=(*finding.warnings, said))
    said = "it did not come again in 2 runs in which the driver would have written a core dump of the GPU"
    return replace(finding, evidence=(*finding.evidence, said))


def _is_of_device(run: RunDir) -> bool:
    """True if a kernel on a GPU failed: by what its launches have reported, or by the error of the process."""
    return run.info.exit.code in ASYNCHRONOUS or any(fault.code in ASYNCHRONOUS for fault in run.timeline.faults)


def _as_dumped(investigation: Investigation, finding: Finding, result: RunResult) -> Finding:
    path = result.run.path / run_directory.GPU_CORE
    with investigation.steps.step("core dump of the GPU") as note:
        try:
            core = gpu_core.read(path)
        except ToolchainError as error:
            note.text = wording.first_line(str(error))
            return replace(finding, warnings=(*finding.warnings, note.text))
        note.text = f"{core.exception or 'no exception'} in {core.kernel or 'an unknown kernel'}"
    return gpu_core.added_to(finding, core, result.diagnosed)


def reproduced(first: RunResult, runs: TriageRuns, tries: int) -> Suspicion:
    """The guilty launch of a first fault or hang, with its saved inputs.

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
    if verdict.launch is None:
        return Suspicion(finding, result.diagnosed)
    if result.run.state is ExitKind.TIMEOUT and not missing_inputs(result.diagnosed, verdict.launch):
        return Suspicion(finding, result.diagnosed)  # it need not hang once more
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
    quiet: DiagnosedRun | None = None  # in which the launch did not fail, and saved its inputs
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
            return _more_complete(finding, guilty, result.diagnosed, launch, first)
        if guilty is not None:
            said = f"another run failed in {guilty.id} {guilty.kernel}: {result.verdict.what if result.verdict else ''}"
            finding = replace(finding, evidence=(*finding.evidence, said.partition("\n")[0]))
        same = result.run.find_launch(launch.id)
        is_same = same is not None and same.site.id == launch.site.id and same.status is LaunchStatus.RETURNED
        if same is not None and is_same and not missing_inputs(result.diagnosed, same):
            quiet = result.diagnosed
    return _unrepeated(finding, f"it came in 1 of {wording.pluralize(tries + 1, 'run')}{how}", launch, first, quiet)


def _unrepeated(
    finding: Finding, came: str, launch: Launch, first: DiagnosedRun, quiet: DiagnosedRun | None
) -> Suspicion:
    """The fault that came once, with the inputs of that run or, where it has not all, of one in which it did not come.

    Args:
        came: in how many runs, as a sentence.
        quiet: such a run that has all of them; None without any.
    """
    missing = missing_inputs(first, launch)
    reasons = "; ".join([*missing, *(n.text for n in first.run.timeline.notes if n.code == NoteCode.FLIGHT_OFF)])
    if not missing:
        said = f"{came}: the inputs are those of the run in which it came"
    elif quiet is None:
        said = f"{came}; no run has all inputs of the launch: {reasons}"
    else:
        said = (
            f"{came}; the inputs of the repro are those of a run in which this launch did not fail, and may differ: "
            f"the run in which it came has not all of them: {reasons}"
        )
    finding = replace(finding, evidence=(*finding.evidence, said))
    return Suspicion(finding, first, quiet=quiet) if missing and quiet is not None else _kept(finding, launch, first)


def _more_complete(
    finding: Finding, guilty: Launch, second: DiagnosedRun, launch: Launch, first: DiagnosedRun
) -> Suspicion:
    """The fault in the second run; in the first one if only the flight recorder has all inputs of the launch."""
    missing = missing_inputs(second, guilty)
    if not missing or missing_inputs(first, launch):
        return Suspicion(finding, second)
    said = f"the second run has not all of its inputs, the flight recorder has: {'; '.join(missing)}"
    return Suspicion(replace(finding, warnings=(*finding.warnings, said)), first)


def _kept(finding: Finding, launch: Launch, first: DiagnosedRun) -> Suspicion:
    """The fault with what the flight recorder kept of the first run."""
    kept = [a for a in launch.args if (s := a.files.get(Phase.BEFORE)) and s.status is not SaveStatus.SKIPPED]
    if not kept:
        finding = replace(finding, warnings=(*finding.warnings, "the flight recorder kept none of its inputs"))
    return Suspicion(finding, first)


FAULT_CHECK = Check(FAULT, _look_for_fault, _confirm_fault)
HANG_CHECK = Check(HANG, _look_for_hang, _confirm_hang)
