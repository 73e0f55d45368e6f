"""The triage of a script: it runs, then the whole procedure looks into the call of a package that failed in it."""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from aoti_debug.app.execute import operator_modules
from aoti_debug.app.execute.execute import ExecutedScript, execute
from aoti_debug.app.execute.failed_call import MAX_CAUGHT, FailedCall
from aoti_debug.app.execute.script_finding import (
    Unseen,
    call_text,
    frozen_text,
    is_of_own_operator,
    unseen_of,
    with_direction,
    with_earlier,
    with_unseen,
    with_what_was_seen,
)
from aoti_debug.base import wording
from aoti_debug.base.errors import AotiDebugError, ArtifactError, TargetError
from aoti_debug.base.machine import torch_settings
from aoti_debug.base.machine.processes.child_process import changed_environment
from aoti_debug.base.machine.steps import Step, StepListener
from aoti_debug.package.launch_traits import writes_shared_memory
from aoti_debug.package.pt2 import archive
from aoti_debug.runs.diagnosis.findings import CLEAN, INCOMPLETE, UNFINISHED, Finding
from aoti_debug.runs.diagnosis.suggested_commands import word_of
from aoti_debug.runs.diagnosis.verdict import Verdict
from aoti_debug.runs.diagnosis.verdict_text import finding_of
from aoti_debug.runs.run.options import RunOptions, Shown
from aoti_debug.runs.run.script_process import UserScript
from aoti_debug.runs.run.supervise import Observer
from aoti_debug.triage.investigation.investigation import Outcome
from aoti_debug.triage.investigation.triage_runs import TriageOptions
from aoti_debug.triage.results import triage_directory
from aoti_debug.triage.results.triage_directory import TriageDir
from aoti_debug.triage.session import recorded, triage

STEP = "script"
_UNREAD = "could not be looked into"
_MOST_CALLS = 100  # before one that failed, that are made once more
_FEW_CALLS = 3  # before one in which nothing was seen


def triage_script(
    script: UserScript,
    options: TriageOptions,
    observer: Observer,
    listener: StepListener,
    *,
    command: Sequence[str] = (),
) -> TriageDir:
    """Runs a script with every call of its packages kept, then finds out what is wrong with the call that failed.

    That is the call with a fault, or else the first one with results that are not finite, or else the last call of each
    package, until something is found in one or the time is over.

    Args:
        options: of the triage; the model and its inputs are those of the call.
        observer: receives what the script writes.
        command: the words of the command line, for the record.

    Raises:
        UsageError, ArtifactError, ToolchainError, TargetError: as of `execute` and `triage`; TargetError also where the
            script has called no package that was recorded.
    """
    began = time.monotonic()
    recorded = RunOptions(Path(script.target), level=3, shown=Shown.NOTHING, stall=options.stall)
    executed = execute(script, recorded, observer, chooses_call=True)
    step = Step(STEP, time.monotonic() - began, _outcome(executed))
    listener.finished(step)
    failed = executed.failed
    if failed is None:
        end = executed.killed or f"exit code {executed.exit_code}"
        raise TargetError(
            f"no call of an AOTInductor package was recorded of {script.target}: {end}",
            hint=_hint(script, began, is_failed=bool(executed.exit_code)),
        )
    script_folder = () if script.is_module else (Path(script.target).resolve().parent,)
    operator_modules.find_in(failed.package.parent, *script_folder)
    unseen = unseen_of(executed, failed, script)
    return triage_failed_call(
        failed, executed.verdict, options, listener, before=(step,), command=command, unseen=unseen
    )


def triage_failed_call(
    failed: FailedCall,
    verdict: Verdict | None,
    options: TriageOptions,
    listener: StepListener | None = None,
    *,
    before: Sequence[Step] = (),
    command: Sequence[str] = (),
    unseen: Unseen | None = None,
) -> TriageDir:
    """Finds out what is wrong with a call that was seen in another process.

    Args:
        verdict: of its run.
        options: of the triage; the model and its inputs are those of the call.
        before: steps that led to it.
        command: the words of the command line, for the record.
        unseen: of the script; None if it is not known.

    Raises:
        UsageError, ArtifactError, ToolchainError, TargetError: as of `triage`, where nothing was seen of the call
            and no other one could be looked into.
    """
    listener = listener or StepListener()
    began, earlier = time.monotonic(), sum(step.seconds for step in before)
    found: TriageDir | None = None
    steps, looked_into = list(before), list[tuple[FailedCall, Finding]]()
    try:
        found = _triage(failed, verdict, options, listener, command, unseen)
        steps += [step.later(earlier) for step in found.record.steps]
    except AotiDebugError as caught:
        error = caught
        step = Step(failed.package.name, time.monotonic() - began, f"{_UNREAD}: {wording.first_line(str(error))}")
        listener.finished(step)
        steps.append(step.later(earlier))
    for other in [other for other in failed.others if other.inputs is not None]:
        passed = time.monotonic() - began
        if (found is not None and found.finding.kind.is_fault) or passed >= options.time_limit:
            break
        step, one = _triage_other(other, replace(options, time_limit=options.time_limit - passed), listener, command)
        steps.append(step.later(earlier + passed))
        if one is None:
            continue
        if one.finding.kind.is_fault:
            recorded_as = f"where it was recorded, {other.why}"
            notes = (recorded_as,) if found is not None else (recorded_as, _error_note(failed, error))
            fault = _of_call(replace(one.finding, warnings=(*notes, *one.finding.warnings)), other)
            found = replace(one, record=replace(one.record, finding=fault))
            steps += [step.later(earlier + passed) for step in one.record.steps]
        looked_into.append((other, one.finding))
    if found is None:
        if verdict is None and not failed.is_not_finite and not looked_into:
            raise error
        seen = Outcome(_seen(failed, verdict, error), failed.run)
        found = recorded(options, None, command, lambda *_: seen)
    finding = found.finding if failed.packages == 1 or found.finding.package else _of_call(found.finding, failed)
    finding = _with_caught(_with_other_packages(finding, failed.others, looked_into), failed)
    finding = with_unseen(with_direction(finding, failed), unseen)
    record = replace(found.record, finding=finding, steps=tuple(steps))
    triage_directory.write(found.path, record)
    return replace(found, record=record)


def _triage(
    failed: FailedCall,
    verdict: Verdict | None,
    options: TriageOptions,
    listener: StepListener | None,
    command: Sequence[str],
    unseen: Unseen | None = None,
) -> TriageDir:
    """Triages a call alone; its finding says what was seen of it in the script, too."""
    options, began = replace(options, model=failed.package, inputs=failed.inputs), time.monotonic()
    environment = torch_settings.environment(failed.run.info.torch_settings)
    with changed_environment(environment):
        found = triage(options, listener, command=command)
        is_seen = verdict is not None or failed.is_not_finite
        before = _calls_before(failed)
        calls = options.calls + (before if is_seen else min(before, _FEW_CALLS))
        left = options.time_limit - (time.monotonic() - began)
        if calls > options.calls and left > 0 and found.finding.kind in (CLEAN, INCOMPLETE):
            further = replace(options, calls=calls, time_limit=left)
            found = _triage_with_calls(further, listener, command, before=found, passed=options.time_limit - left)
    for repro in {one.repro for one in (found.finding, *found.finding.also) if one.repro}:
        operator_modules.copy_beside(Path(repro), failed.package.parent)
    finding = with_what_was_seen(found.finding, failed, verdict, unseen)
    run = found.record.run if finding == found.finding else str(failed.run.path)
    if failed.earlier is not None and is_of_own_operator(finding):
        again = replace(options, inputs=failed.earlier.inputs, calls=1)
        alone = again.recorded(failed.earlier.package, found.path / triage_directory.RUNS)
        with changed_environment(environment):
            finding = with_earlier(
                finding, failed, call=call_text(failed), run=replace(alone, level=3, stall=options.stall)
            )
    return replace(found, record=replace(found.record, finding=finding, run=run))


def _triage_other(
    other: FailedCall, options: TriageOptions, listener: StepListener, command: Sequence[str]
) -> tuple[Step, TriageDir | None]:
    """Triages a call of another package in one step; None where it could not be done: the step says why."""
    began = time.monotonic()
    listener.began(other.package.name)
    try:
        found = _triage(other, None, options, None, command)
        outcome = f"{found.finding.kind.heading} {found.finding.what}"
    except AotiDebugError as error:
        found, outcome = None, f"{_UNREAD}: {error}"
    step = Step(other.package.name, time.monotonic() - began, wording.first_line(outcome))
    listener.finished(step)
    return step, found


def _seen(failed: FailedCall, verdict: Verdict | None, error: AotiDebugError) -> Finding:
    """What its run has shown of a call whose triage has ended in an error."""
    note = _error_note(failed, error)
    if verdict is not None:
        return _with_note(finding_of(failed.run, verdict), note)
    results = "had results that are not finite, and was" if failed.is_not_finite else "was"
    return Finding(
        INCOMPLETE, f"{call_text(failed)} of {failed.package.name} {results} not looked into", warnings=(note,)
    )


def _of_call(finding: Finding, failed: FailedCall) -> Finding:
    """A finding of a script that calls several packages; a fault says of which it is."""
    return replace(finding, package=failed.package.name, call=failed.number) if finding.kind.is_fault else finding


def _error_note(failed: FailedCall, error: AotiDebugError) -> str:
    hint = f" ({error.hint})" if error.hint else ""
    return f"{call_text(failed)} of {failed.package.name} {_UNREAD}: {wording.first_line(str(error))}{hint}"


def _with_note(finding: Finding, note: str) -> Finding:
    return replace(finding, warnings=(note, *finding.warnings))


def _calls_before(failed: FailedCall) -> int:
    """How many calls of a model that overwrites weights or buffers had been made before the one that failed."""
    number = failed.number or 0
    return number if number <= _MOST_CALLS and writes_shared_memory(failed.run.manifest) else 0


def _triage_with_calls(
    options: TriageOptions, listener: StepListener | None, command: Sequence[str], *, before: TriageDir, passed: float
) -> TriageDir:
    """A triage of as many calls as the script had made, all with the inputs of the one that failed.

    That of the call alone where the time was over before anything was found, or where an error ended it.

    Args:
        before: the triage of that call alone, which has found nothing.
        passed: seconds since that one began.
    """
    calls = f"{options.calls} calls, all with its inputs,"
    try:
        found = triage(options, listener, command=command)
    except AotiDebugError as error:
        note = f"{calls} {_UNREAD}: {wording.first_line(str(error))}"
        return replace(before, record=replace(before.record, finding=_with_note(before.finding, note)))
    steps = (*before.record.steps, *(step.later(passed) for step in found.record.steps))
    if found.finding.kind == UNFINISHED:
        finding = _with_note(before.finding, f"{calls} were not looked into to the end")
        return replace(before, record=replace(before.record, finding=finding, steps=steps))
    shown = f"; {calls} show this" if found.finding.kind.is_fault else ""
    alone = f"one call, on the buffers of the package, shows no fault{shown}"
    return replace(found, record=replace(found.record, finding=_with_note(found.finding, alone), steps=steps))


def _hint(script: UserScript, began: float, *, is_failed: bool) -> str:
    """The command for the newest program or package that was written into this folder meanwhile; else what else helps.

    Args:
        began: when the script was started, as of `time.monotonic`.
        is_failed: its exit code is not 0.
    """
    since = time.time() - (time.monotonic() - began)
    times = {path.name: path.stat().st_mtime for path in Path.cwd().glob("*.pt2") if _is_model(path)}
    written = [name for name in sorted(times, key=lambda name: times[name]) if times[name] >= since]
    stderr = "what it wrote to stderr may say why"
    if not written:
        if script.torch_compile:
            return stderr
        graphs = f"if it uses torch.compile: {shlex.join(['aoti-debug', 'triage', '--torch-compile', *script.words])}"
        return f"{stderr}; {graphs}" if is_failed else f"{graphs}; otherwise {stderr}"
    meanwhile = f"{written[-1]} was written meanwhile: aoti-debug triage {shlex.quote(written[-1])}"
    return f"{stderr}; {meanwhile}" if is_failed else meanwhile


def _with_other_packages(
    finding: Finding, others: Sequence[FailedCall], looked_into: Sequence[tuple[FailedCall, Finding]]
) -> Finding:
    """A finding, where it is none, with what was found in the other packages, and commands for the rest.

    Args:
        others: the last call of each of them.
        looked_into: those that were triaged, each with its finding.
    """
    if finding.kind.is_fault or not others:
        return finding
    clean = [other for other, found in looked_into if found.kind == CLEAN]
    seen = [(other, found) for other, found in looked_into if found.kind != CLEAN]
    known = {other.package for other, _ in looked_into}
    left = [other for other in others if other.package not in known]
    notes = []
    if clean:
        notes.append(f"the last call of {wording.pluralize(len(clean), 'other package')}: clean")
    notes += [f"{other.package.name}: {found.kind.heading} {found.what}" for other, found in seen]
    if left:
        notes.append(f"{wording.pluralize(len(left), 'other package')}: not looked into")
    if unkept := [other.package.name for other in left if other.inputs is None]:
        notes.append(f"no inputs were kept of the calls of {wording.join_truncated(unkept, 3)}")
    if changed := [other.package.name for other in others if other.has_other_weights]:
        notes.append(
            f"the script had replaced weights of {wording.join_truncated(changed, 3)}, which were not kept: here they "
            "are those of the package"
        )
    notes += [f"{other.package.name}: {frozen_text(other.frozen)}" for other in others if other.frozen]
    commands = [
        shlex.join(["aoti-debug", "triage", word_of(other.package), "--inputs", word_of(other.inputs)])
        for other in (*[other for other, _ in seen], *left)
        if other.inputs is not None
    ]
    kind = INCOMPLETE if finding.kind == CLEAN and (seen or left) else finding.kind
    return replace(finding, kind=kind, warnings=(*notes, *finding.warnings), next=(*finding.next, *commands))


def _with_caught(finding: Finding, failed: FailedCall) -> Finding:
    """A finding with the refused calls whose exceptions the script caught, and the commands that look into them.

    Also with the call that returned what is not finite, where the finding is of one that raised.
    """
    finding = _with_other_not_finite(finding, failed.other_not_finite)
    if not failed.caught:
        return finding
    notes = [
        f"call {call.number} of {call.package.name} raised {call.error}; the script did not end with that"
        for call in failed.caught[:MAX_CAUGHT]
    ]
    if more := len(failed.caught[MAX_CAUGHT:]):
        calls = wording.pluralize(more, "more call")
        notes.append(f"{calls} raised before anything was launched; the script did not end with that")
    commands = [
        shlex.join(["aoti-debug", "triage", word_of(call.package), "--inputs", word_of(call.inputs)])
        for call in failed.caught
        if call.inputs is not None
    ]
    return replace(finding, warnings=(*notes, *finding.warnings), next=(*finding.next, *commands))


def _with_other_not_finite(finding: Finding, other: FailedCall | None) -> Finding:
    if other is None or other.inputs is None:
        return finding
    note = f"the results of {call_text(other)} of {other.package.name} are not finite: not looked into"
    command = shlex.join(["aoti-debug", "triage", word_of(other.package), "--inputs", word_of(other.inputs)])
    return replace(finding, warnings=(note, *finding.warnings), next=(*finding.next, command))


def _is_model(path: Path) -> bool:
    """False for a file that torch left behind when it could not save the program."""
    try:
        archive.inspect(path)
    except ArtifactError:
        return False
    return True


def _outcome(executed: ExecutedScript) -> str:
    """ "exit code 0; call 3 of serve.pt2: its results are not finite"."""
    failed = executed.failed
    end = executed.killed or f"exit code {executed.exit_code}"
    if failed is None:
        return end
    call = "a call" if failed.number is None else f"call {failed.number}"
    if failed.run.info.rank is not None:
        call = f"rank {failed.run.info.rank.number}, {call}"
    others = wording.pluralize(len(executed.others), "other run") if executed.others else ""
    return f"{end}; {call} of {failed.package.name}: {wording.first_line(failed.why)}" + (
        f"; {others}" if others else ""
    )
