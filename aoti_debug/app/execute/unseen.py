"""The parts of a script that the triage of its calls says nothing about."""

from __future__ import annotations

import shlex
from dataclasses import replace

from aoti_debug.app.execute.execute import ExecutedScript
from aoti_debug.app.execute.failed_call import FailedCall
from aoti_debug.app.execute.replacements import COMPILED
from aoti_debug.app.torch_compile import cached_build
from aoti_debug.app.torch_compile.cached_build import GRAPHS, PROGRAM
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.native import crash_stacks
from aoti_debug.base.native.frames import is_of_openmp
from aoti_debug.runs.diagnosis.findings import CLEAN, HANG, INCOMPLETE, Finding
from aoti_debug.runs.diagnosis.suggested_commands import word_of


@dataclass(frozen=True)
class Unseen:
    """The parts of a script that the triage of one of its calls does not look into.

    Attributes:
        parts: that a clean triage leaves open.
        commands: that look into them.
        possible: a sentence on what may make a process of the script hang; "" without one.
    """

    parts: tuple[str, ...]
    commands: tuple[str, ...]
    possible: str = ""


def unseen_of(executed: ExecutedScript, failed: FailedCall) -> Unseen:
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
    return Unseen(tuple(parts), tuple(commands), _of_fork(executed, failed))


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
