"""The finding of a script: what it says beside that of a call alone."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from aoti_debug.app.execute import execute, replacements
from aoti_debug.app.execute.call_file import KeptEnd
from aoti_debug.app.execute.failed_call import (
    FailedCall,
)
from aoti_debug.app.execute.kept_weights import GivenWeights
from aoti_debug.app.execute.script_finding import (
    unseen_of,
    with_direction,
    with_earlier,
    with_unseen,
    with_what_was_seen,
)
from aoti_debug.app.torch_compile.cached_build import CompilationDirectory, GraphEntry
from aoti_debug.base.native import crash_stacks
from aoti_debug.base.native.crash_stacks import Backtrace, Stack
from aoti_debug.base.native.frames import StackFrame
from aoti_debug.package.manifest import ModelLine
from aoti_debug.runs.diagnosis.findings import (
    CLEAN,
    FAULT,
    HANG,
    INCOMPLETE,
    NONFINITE,
    UNFINISHED,
    Finding,
    FindingKind,
    Place,
)
from aoti_debug.runs.diagnosis.suggested_commands import word_of
from aoti_debug.runs.run import runner
from aoti_debug.runs.run.options import recording_everything
from aoti_debug.runs.rundir.run_json import Exit, ExitKind
from aoti_debug.triage.results.finding_kinds import CONTRACT
from tests.app.execute.script_calls import (
    CRASHED,
    DEAD,
    SCRIPT,
    Write,
    chosen,
    ended,
    in_a_launch,
    package,
    returned,
    with_constants,
)
from tests.factories import JournalWriter


@pytest.mark.parametrize(
    ("write", "where", "why"), [(in_a_launch, " in 0.0 k", ""), (returned, "", ", outside of its calls")]
)
def test_what_a_call_ended_with_is_told_with_a_broken_contract(
    tmp_path: Path, write: Write, where: str, why: str
) -> None:
    run = ended(tmp_path / "of_c", write, signal="SIGSEGV")
    found = chosen(package(tmp_path / "c", run))
    assert found.why == f"SIGSEGV (Segmentation fault){why}"
    broken = Finding(CONTRACT, "input 0 is int32[2] on cpu; the model takes int64[2] on cpu")
    finding = with_what_was_seen(broken, found, run.verdict)
    assert finding.evidence == (f"in the script, call 0 ended with: SIGSEGV (Segmentation fault){where}",)
    assert with_what_was_seen(broken, found, None) == broken
    assert with_what_was_seen(CRASHED, found, run.verdict) == CRASHED


OWN = Finding(
    FAULT,
    "invalid memory access in mine::op.default",
    Place("0.1", "mine::op.default", "mine::op.default"),
    signal="SIGSEGV",
    confirmed_by=("operator: SIGSEGV",),
    next=("python repro.py",),
)


@pytest.mark.parametrize(
    ("is_finite", "kind", "following"),
    [
        (False, NONFINITE, ("aoti-debug exec --watch '*: nan or inf' --on-hit save serve.py 80",)),
        (True, INCOMPLETE, OWN.next),
    ],
)
def test_a_fault_that_an_own_operator_has_only_alone_is_none_of_the_script(
    tmp_path: Path, is_finite: bool, kind: FindingKind, following: tuple[str, ...]
) -> None:
    """It may need what the script had set up: the call returned there."""
    run = ended(tmp_path / "of_a", returned, exit_=Exit(ExitKind.CLEAN))
    called = chosen(package(tmp_path / "a", run, is_finite=is_finite))
    left = unseen_of(execute.ExecutedScript(0, failed=called), called, SCRIPT)
    found = with_what_was_seen(OWN, called, None, left)
    assert (found.kind, found.next) == (kind, following)
    alone = f"call 0 returned where it was recorded; alone, in a process of its own: {OWN.what}"
    assert alone in (*found.evidence, *found.warnings)
    assert found.possible[0].startswith("mine::op.default may need what the process had set up before")
    generated = replace(OWN, where=Place("0.1", "cpp_fused_0"))
    torchs = replace(OWN, where=Place("0.1", "aten.addmm.out", "aten.addmm.out"))
    for other in (generated, torchs, replace(OWN, kind=CONTRACT)):
        assert with_what_was_seen(other, called, None, left) == other


@pytest.mark.parametrize("fails_too", [True, False])
def test_a_crash_of_an_own_operator_is_compared_with_a_call_that_returned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails_too: bool
) -> None:
    def write(journal: JournalWriter) -> None:
        returned(journal)
        journal.thread += 1
        journal.call_begin(1)
        journal.launch_begin(0, 0, call=1)

    crashed = ended(tmp_path / "of_a", write, signal="SIGSEGV")
    kept = package(tmp_path / "a", crashed)
    first = replace(kept.calls[0], number=0)
    called = chosen(replace(kept, calls=(first, replace(first, number=1, end=KeptEnd.OPEN))))
    assert called.earlier is not None
    assert (called.number, called.earlier.number) == (1, 0)
    suspects = [SimpleNamespace(kernel="mine::op.default")]
    verdict = SimpleNamespace(suspects=suspects, what="SIGSEGV (Segmentation fault)")
    again = SimpleNamespace(verdict=verdict if fails_too else None)
    monkeypatch.setattr(runner, "run", lambda _: again)
    found = with_earlier(OWN, called, "call 1", recording_everything(called.package, tmp_path))
    before = "call 0, which returned where it was recorded,"
    ends = "ends in mine::op.default alone, too: SIGSEGV (Segmentation fault)"
    assert found.evidence == (
        f"call 1 was the first call of {called.package.name} in its thread: those before it were made by other threads",
        f"{before} {ends if fails_too else 'has no fault in mine::op.default alone'}",
    )
    assert [sentence.partition(":")[0] for sentence in found.possible] == [
        "the inputs may not be the reason"
    ] * fails_too


def test_what_a_clean_triage_of_one_call_leaves_open(tmp_path: Path) -> None:
    """Of the script: its own end, and graphs that ran in eager."""
    run = ended(tmp_path / "of_a", returned, exit_=Exit(ExitKind.CLEAN))
    folder = run.run.path / replacements.COMPILED / "1"
    packages = folder / "graph0"
    packages.mkdir(parents=True)
    compiled = CompilationDirectory(folder)
    compiled.add(GraphEntry("graph0", "inference", "m.py:1 in f"))
    compiled.add(GraphEntry("graph1", "inference", "m.py:2 in g", eager="no lowering"))
    (folder.parent / "latest").symlink_to(folder)
    called = FailedCall(run.run, packages / "package.pt2", 0, None, "nothing was seen in it")
    executed = execute.ExecutedScript(255, failed=called)  # as by sys.exit(-1)
    left = unseen_of(executed, called, SCRIPT)
    assert [part.partition(":")[0] for part in left.parts] == [
        "why the script ended with exit code 255 (it may have written it to stderr)",
        "the graph of m.py",
    ]
    assert left.commands == (f"aoti-debug triage {word_of(folder / 'graph1/program.pt2')}",)
    finding = with_unseen(Finding(CLEAN, "1 launch"), left)
    assert (finding.kind, finding.kind.exit_code, finding.next) == (INCOMPLETE, 8, left.commands)
    assert finding.warnings == tuple(f"not looked into: {part}" for part in left.parts)
    fault = Finding(FAULT, "it crashed")
    assert with_unseen(fault, left) == fault
    assert unseen_of(replace(executed, exit_code=0), called, SCRIPT).parts == left.parts[1:]


@pytest.mark.parametrize(("graph", "is_said"), [("graph0", False), ("graph1", True), ("graph7", False)])
def test_a_fault_in_a_backward_graph_says_so(tmp_path: Path, graph: str, is_said: bool) -> None:
    run = ended(tmp_path / "of_a", in_a_launch, signal="SIGSEGV").run
    package = tmp_path / "compiled" / graph / "package.pt2"
    package.parent.mkdir(parents=True)
    compiled = CompilationDirectory(tmp_path / "compiled")
    compiled.add(GraphEntry("graph0", "forward", "m.py:1 in f"))
    compiled.add(GraphEntry("graph1", "backward", "m.py:2 in f"))
    package.touch()
    link = tmp_path / "package-1.pt2"
    link.symlink_to(package)
    found = with_direction(CRASHED, FailedCall(run, link, 1, None, ""))
    assert found.what == ("in the backward pass: " if is_said else "") + CRASHED.what
    assert found.evidence == CRASHED.evidence  # which has no model line
    with_line = replace(CRASHED, where=Place("0.1", "cpp_fused_0", frame=ModelLine("m.py", 2, "f", "x * y")))
    said = with_direction(with_line, FailedCall(run, link, 1, None, "")).evidence
    assert said[len(CRASHED.evidence) :] == (
        ("the model line is one of the forward pass, whose gradient or value the launch may compute",) * is_said
    )
    clean = Finding(CLEAN, "1 launch")
    assert with_direction(clean, FailedCall(run, link, 1, None, "")) == clean
    assert with_direction(CRASHED, FailedCall(run, tmp_path / "model.pt2", 1, None, "")) == CRASHED


@pytest.mark.parametrize(
    ("library", "other", "says_so"),
    [
        ("/usr/lib/libgomp.so.1", DEAD - 1, True),
        ("/usr/lib/libm.so.6", DEAD - 1, False),
        ("/usr/lib/libgomp.so.1", DEAD, False),
    ],
)
def test_a_process_that_waits_for_openmp_may_be_a_fork(tmp_path: Path, library: str, other: int, says_so: bool) -> None:
    """Of a process that had called a model before: the threads of OpenMP are not in its fork."""
    run = ended(tmp_path / "of_a", in_a_launch, exit_=Exit(ExitKind.TIMEOUT, "no progress for 5 s")).run
    frame = StackFrame("", f"/usr/lib/{library}", 0x1E071)
    stacks = Backtrace((Stack(1, "", None, (frame,), "waits for a futex"),))
    (run.path / crash_stacks.NAME).write_text(json.dumps({"format": crash_stacks.FORMAT, **asdict(stacks)}))
    elsewhere = ended(tmp_path / "of_b", returned).run
    elsewhere = replace(elsewhere, info=replace(elsewhere.info, pid=other))
    called = FailedCall(run, tmp_path / "package.pt2", 0, None, "no end")
    executed = execute.ExecutedScript(1, others=(elsewhere,), failed=called, killed="no progress for 5 s")
    left = unseen_of(executed, called, SCRIPT)
    found = with_unseen(Finding(HANG, "k did not end"), left)
    assert [" may be a fork " in sentence for sentence in found.possible] == [True] * says_so


@pytest.mark.parametrize(
    "end", [{"exit_code": 0}, {"exit_code": 1, "killed": "no progress"}, {"exit_code": 143, "ended_by": "SIGTERM"}]
)
def test_a_script_that_ended_well_or_was_ended_leaves_nothing_open(tmp_path: Path, end: dict[str, Any]) -> None:
    run = ended(tmp_path / "of_a", returned, exit_=Exit(ExitKind.CLEAN))
    called = FailedCall(run.run, tmp_path / "package.pt2", 0, None, "nothing was seen in it")
    left = unseen_of(execute.ExecutedScript(**end, failed=called), called, SCRIPT)
    assert left.parts == ()
    clean = Finding(CLEAN, "1 launch")
    assert with_unseen(clean, left) == clean


@pytest.mark.parametrize(
    ("replaced", "frozen"),
    [((), ()), (("bias",), ("_frozen_param0", "_frozen_param1")), (("bias", "_frozen_param1"), ("_frozen_param0",))],
)
def test_what_was_computed_from_weights_at_compile_time_may_be_of_the_weights_before(
    tmp_path: Path, replaced: tuple[str, ...], frozen: tuple[str, ...]
) -> None:
    run = ended(tmp_path / "of_a", returned, exit_=Exit(ExitKind.CLEAN))
    called = package(tmp_path / "a", with_constants(run, "bias", "_frozen_param0", "_frozen_param1"))
    if replaced:
        weights = GivenWeights(tmp_path / "weights", keeps_all=False)
        weights.changed("load_constants", {name: torch.ones(2) for name in replaced}, inactive=False)
        weights.tell(called.calls[0].file.parent, 0)
    found = chosen(called)
    assert (found.given, found.frozen) == (tuple(sorted(replaced)), frozen)
    finding = with_what_was_seen(Finding(CLEAN, "1 launch"), found, None)
    given = [warning for warning in finding.warnings if warning.startswith("the script gave it ")]
    assert len(given) == bool(replaced)
    assert all(
        f"({', '.join(sorted(replaced))}), which are not compared with any others" in warning for warning in given
    )
    assert found.inputs is not None
    assert all(warning.endswith(f"and this package, with --inputs {word_of(found.inputs)}") for warning in given)
    said = [warning for warning in finding.warnings if "(freezing)" in warning]
    assert len(said) == bool(frozen)
    assert all(f"but not {', '.join(frozen)}: " in warning and "may be of the weights" in warning for warning in said)


@pytest.mark.parametrize(("is_finite", "signal"), [(True, "SIGSEGV"), (False, "")])
def test_a_call_whose_triage_was_not_finished_is_not_said_to_have_no_fault(
    tmp_path: Path, is_finite: bool, signal: str
) -> None:
    run = ended(tmp_path / "of_a", returned, **({"signal": signal} if signal else {"exit_": Exit(ExitKind.CLEAN)}))
    found = chosen(package(tmp_path / "a", run, is_finite=is_finite))
    late = Finding(UNFINISHED, "ended after 9 min 0 s", next=("aoti-debug triage a.pt2 --time-limit 2160",))
    finding = with_what_was_seen(late, found, run.verdict)
    assert finding.kind == (UNFINISHED if run.verdict is None else FAULT)
    (said,) = [warning for warning in finding.warnings if "in a process of its own" in warning]
    assert "not looked into to the end" in said
    assert late.next[0] in finding.next
