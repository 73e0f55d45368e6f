"""The finding of a script: that of a call alone, with what the script has shown of it, and what is not looked into."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace

from aoti_debug.app.execute.execute import ExecutedScript
from aoti_debug.app.execute.failed_call import FailedCall
from aoti_debug.app.execute.replacements import COMPILED
from aoti_debug.app.torch_compile import cached_build
from aoti_debug.app.torch_compile.cached_build import GRAPHS, PROGRAM
from aoti_debug.base import wording
from aoti_debug.base.abi import CallKind
from aoti_debug.base.errors import AotiDebugError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.native import crash_stacks
from aoti_debug.base.native.frames import is_of_openmp
from aoti_debug.repro.operators import is_of_torch
from aoti_debug.runs.diagnosis.findings import CLEAN, FAULT, HANG, INCOMPLETE, NONFINITE, UNFINISHED, Finding
from aoti_debug.runs.diagnosis.suggested_commands import word_of
from aoti_debug.runs.diagnosis.verdict import Verdict
from aoti_debug.runs.diagnosis.verdict_text import finding_of
from aoti_debug.runs.run import runner
from aoti_debug.runs.run.options import RunOptions
from aoti_debug.runs.run.script_process import UserScript
from aoti_debug.triage.results.finding_kinds import CONTRACT


@dataclass(frozen=True)
class Unseen:
    """The parts of a script that the triage of one of its calls does not look into.

    Attributes:
        parts: that a clean triage leaves open.
        commands: that look into them.
        possible: a sentence on what may make a process of the script hang; "" without one.
        recording: the command that runs the script once more and names the launch which first makes NaN or an infinity.
    """

    parts: tuple[str, ...]
    commands: tuple[str, ...]
    possible: str = ""
    recording: str = ""


def unseen_of(executed: ExecutedScript, failed: FailedCall, script: UserScript) -> Unseen:
    """The parts that one call says nothing about: the script's own end, graphs of `torch.compile` without a package."""
    parts, commands = [], []
    if executed.verdict is None and executed.exit_code and not (executed.killed or executed.ended_by):
        parts.append(f"why the script ended with exit code {executed.exit_code} (it may have written it to stderr)")
    run = failed.run.path if executed.result is None else executed.result.run.path
    for file in sorted((run / COMPILED).resolve().glob(f"*/{GRAPHS}")):
        for graph in () if file.parent.is_symlink() else cached_build.read_graphs(file.parent):
            if graph.eager:
                parts.append(f"the graph of {graph.line}, which ran in eager: {graph.eager}")
                if graph.name:
                    commands.append(shlex.join(["aoti-debug", "triage", word_of(file.parent / graph.name / PROGRAM)]))
    return Unseen(tuple(parts), tuple(commands), _of_fork(executed, failed), _recording(script))


def _of_fork(executed: ExecutedScript, failed: FailedCall) -> str:
    """A sentence on a process that waits for OpenMP where another one had called a model; "" elsewhere."""
    if executed.killed and any(run.info.pid != failed.run.info.pid for run in executed.others):
        caught = crash_stacks.read(failed.run.path)
        if caught is not None and any(is_of_openmp(stack.frames) for stack in caught.stacks):
            return "the process may be a fork of one that had called a model: then it has none of the threads of OpenMP"
    return ""


def with_unseen(finding: Finding, unseen: Unseen | None) -> Finding:
    """A finding, where it is none, with what was not looked into; a hang with what may be its reason."""
    if unseen is not None and unseen.possible and finding.kind == HANG:
        return replace(finding, possible=(*finding.possible, unseen.possible))
    if finding.kind.is_fault or unseen is None or not unseen.parts:
        return finding
    left = tuple(f"not looked into: {part}" for part in unseen.parts)
    kind = INCOMPLETE if finding.kind == CLEAN else finding.kind
    return replace(finding, kind=kind, warnings=(*left, *finding.warnings), next=(*unseen.commands, *finding.next))


def _recording(script: UserScript) -> str:
    graphs = ("--torch-compile",) if script.torch_compile else ()
    watch = ("--watch", "*: nan or inf", "--on-hit", "save")
    return shlex.join(["aoti-debug", "exec", *graphs, *watch, *script.words])


def is_of_own_operator(finding: Finding) -> bool:
    """True if a finding says that an operator which is not torch's ended in a crash, an exception or not at all."""
    operator = finding.where.operator if finding.where is not None else ""
    return finding.kind in (FAULT, HANG) and "::" in operator and not is_of_torch(operator)


def only_alone(finding: Finding, failed: FailedCall, call: str, unseen: Unseen | None) -> Finding:
    """The rest of a fault of an operator that a call shows alone, and did not show where it was recorded.

    There the call returned: the operator may use what that process had set up, so that the fault is none of the call.

    Args:
        finding: of the call alone.
        call: "call 3".
        unseen: of the script; None if it is not known.
    """
    operator = finding.where.operator if finding.where is not None else ""
    alone = f"{call} returned where it was recorded; alone, in a process of its own: {finding.what}"
    may = (
        f"{operator} may need what the process had set up before, and what the process of the triage does not have; "
        "--import of a module that sets it up may help"
    )
    left = replace(finding, possible=(may, *finding.possible))
    if not failed.is_not_finite:
        return replace(
            left, kind=INCOMPLETE, what=f"{call} could not be repeated alone", warnings=(alone, *left.warnings)
        )
    return replace(
        left,
        kind=NONFINITE,
        what=f"the results of {call} are not finite where it was recorded; the launch that makes them so is not known",
        where=None,
        origin=None,
        evidence=(alone,),
        stack=(),
        signal="",
        confirmed_by=(),
        repro="",
        next=(unseen.recording,) if unseen is not None and unseen.recording else (),
    )


def with_earlier(finding: Finding, failed: FailedCall, call: str, run: RunOptions) -> Finding:
    """A fault of an operator with what a call does alone that returned before it, and the threads of both.

    Where that one fails alone in the same operator, the fault says little about the inputs.

    Args:
        finding: of the call alone.
        call: "call 3".
        run: makes the earlier call.
    """
    earlier = failed.earlier
    assert earlier is not None
    assert finding.where is not None
    operator = finding.where.operator
    thread = _first_of_its_thread(failed, call)
    evidence = (*finding.evidence, *([thread] if thread else []))
    before = f"call {earlier.number}, which returned where it was recorded,"
    try:
        verdict = runner.run(run).verdict
    except AotiDebugError as error:
        note = f"{before} could not be made alone: {wording.first_line(str(error))}"
        return replace(finding, evidence=evidence, warnings=(*finding.warnings, note))
    if verdict is None or all(launch.kernel != operator for launch in verdict.suspects):
        return replace(finding, evidence=(*evidence, f"{before} has no fault in {operator} alone"))
    same = f"{before} ends in {operator} alone, too: {wording.first_line(verdict.what)}"
    may = (
        f"the inputs may not be the reason: {operator} may need what its process or its thread had set up before, and "
        "alone it may fail for want of that"
    )
    return replace(finding, evidence=(*evidence, same), possible=(may, *finding.possible))


def _first_of_its_thread(failed: FailedCall, call: str) -> str:
    """A sentence on the call that a run ended in, if all calls before it were made by other threads; "" elsewhere.

    "" too where several calls were open: it is not known which of them is the one that failed.
    """
    calls = [one for one in failed.run.timeline.calls if one.kind is CallKind.MODEL]
    if len(calls) < 2 or any(one.thread == calls[-1].thread or not one.ended for one in calls[:-1]) or calls[-1].ended:
        return ""
    name = failed.package.name
    return f"{call} was the first call of {name} in its thread: those before it were made by other threads"


def with_direction(finding: Finding, failed: FailedCall) -> Finding:
    """A fault in the backward graph of `torch.compile`, which says so: its model lines are of the forward pass.

    The graph may compute values of the forward pass again, beside gradients.
    """
    package = failed.package.resolve()
    folder = package.parent.parent
    if not finding.kind.is_fault or not (folder / GRAPHS).is_file():
        return finding
    graph = next((one for one in cached_build.read_graphs(folder) if one.name == package.parent.name), None)
    if graph is None or graph.kind != "backward":
        return finding
    found = replace(finding, what=f"in the backward pass: {finding.what}")
    if finding.where is None or finding.where.frame is None:
        return found
    lines = "the model line is one of the forward pass, whose gradient or value the launch may compute"
    return replace(found, evidence=(*finding.evidence, lines))


def call_text(failed: FailedCall) -> str:
    """ "call 3", "the last call"."""
    return "the last call" if failed.number is None else f"call {failed.number}"


def with_what_was_seen(
    finding: Finding, failed: FailedCall, verdict: Verdict | None, unseen: Unseen | None = None
) -> Finding:
    """A finding, where it is none, with what its run has shown: the call alone need not fail in the same way."""
    if failed.has_other_weights:
        others = "the script had replaced weights, which were not kept: here the model has those of its package"
        finding = replace(finding, warnings=(*finding.warnings, others))
    if failed.given:
        finding = replace(finding, warnings=(*finding.warnings, _given_text(failed)))
    if failed.frozen:
        finding = replace(finding, warnings=(*finding.warnings, frozen_text(failed.frozen)))
    call = call_text(failed)
    if failed.has_returned and verdict is None and is_of_own_operator(finding):
        return only_alone(finding, failed, call, unseen)
    if finding.kind.is_fault:
        if finding.kind != CONTRACT or verdict is None:
            return finding
        return replace(finding, evidence=(*finding.evidence, f"in the script, {call} ended with: {_ended(verdict)}"))
    is_over = finding.kind == UNFINISHED
    if verdict is not None:
        seen = finding_of(failed.run, verdict)
        result = "was not looked into to the end" if is_over else "has no fault"
        alone = f"{call} alone, in a process of its own, {result}: {finding.what}"
        following = (*seen.next, *finding.next) if is_over else seen.next
        return replace(seen, warnings=(*seen.warnings, alone, *finding.warnings), next=following)
    if not failed.is_not_finite:
        return finding
    result = "it was not looked into to the end" if is_over else "it has none"
    alone = f"{call} had results that are not finite where it was recorded; alone, in a process of its own, {result}"
    kind = INCOMPLETE if finding.kind == CLEAN else finding.kind
    return replace(finding, kind=kind, warnings=(alone, *finding.warnings))


def _ended(verdict: Verdict) -> str:
    """ "index out of bounds: 0 <= tmp2 < 50L in 0.0 cpp_fused_embedding_0"."""
    launches = [f"{launch.id} {launch.kernel}" for launch in verdict.suspects]
    return wording.first_line(verdict.what) + (f" in {wording.join_truncated(launches, 1)}" if launches else "")


def frozen_text(names: Sequence[str]) -> str:
    """Says that replaced weights may have been computed into constants that stayed as they were."""
    listed = wording.join_truncated(names, 3)
    return (
        f"the script had replaced weights, but not {listed}: going by the name, torch computed it from weights when it "
        "compiled the package (freezing), and it may be of the weights before"
    )


def _given_text(failed: FailedCall) -> str:
    """Says that weights are those of the script, and how to compare them with others."""
    names = failed.given
    listed = f"{wording.pluralize(len(names), 'weight')} ({wording.join_truncated(names, 3)})"
    inputs = "" if failed.inputs is None else f", with {shlex.join(['--inputs', word_of(failed.inputs)])}"
    return (
        f"the script gave it {listed}, which are not compared with any others: aoti-debug diff does that, of a program "
        f"exported with the right ones and this package{inputs}"
    )
