"""The call to look into, of the runs of a script and of the processes that it has started."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, replace
from itertools import zip_longest
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from aoti_debug.app.execute import execute, replacements, triage_script
from aoti_debug.app.execute import failed_call as failed_call_module
from aoti_debug.app.execute.call_file import KeptEnd
from aoti_debug.app.execute.failed_call import (
    NOTHING_SEEN,
    CalledPackage,
    FailedCall,
    called_packages,
    failed_call,
    with_caught,
)
from aoti_debug.app.execute.kept_inputs import FOLDER, NOT_FINITE, KeptInputs, kept_calls
from aoti_debug.app.execute.kept_weights import GivenWeights
from aoti_debug.app.execute.script_finding import (
    unseen_of,
    with_direction,
    with_earlier,
    with_unseen,
    with_what_was_seen,
)
from aoti_debug.app.torch_compile.cached_build import CompilationDirectory, GraphEntry
from aoti_debug.base.errors import AotiDebugError, ArtifactError
from aoti_debug.base.machine.files import json_data
from aoti_debug.base.machine.steps import Step, StepListener, Stopwatch
from aoti_debug.base.native import crash_stacks
from aoti_debug.base.native.crash_stacks import Backtrace, Stack
from aoti_debug.base.native.frames import StackFrame
from aoti_debug.package.inputs import input_files
from aoti_debug.package.inputs.signature import Dim, Leaf, ModelSignature
from aoti_debug.package.manifest import Constant, ModelLine
from aoti_debug.package.pt2 import archive
from aoti_debug.runs.diagnosis.diagnosed_run import DiagnosedRun
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
from aoti_debug.runs.run.script_process import UserScript
from aoti_debug.runs.run.supervise import Report
from aoti_debug.runs.rundir import run_directory, run_json
from aoti_debug.runs.rundir.run_json import Exit, ExitKind
from aoti_debug.runs.show.finding import finding_lines
from aoti_debug.triage.investigation.triage_runs import TriageOptions
from aoti_debug.triage.results import triage_directory
from aoti_debug.triage.results.finding_kinds import CONTRACT
from aoti_debug.triage.results.triage_directory import Record, TriageDir
from aoti_debug.views.report import report
from tests import factories
from tests.factories import JournalWriter, make_manifest, site

RUNNING = Exit(ExitKind.RUNNING)
DEAD = 1 << 30  # no process has this number
SCRIPT = UserScript("serve.py", ("80",))
Write = Callable[[JournalWriter], object]


def ended(base: Path, write: Write, *, signal: str = "", exit_: Exit = RUNNING) -> DiagnosedRun:
    """The run of a process that is gone, of one call.

    Args:
        signal: whose stack the run has.
    """
    journal = JournalWriter()
    journal.call_begin()
    write(journal)
    path = factories.run_directory(base, make_manifest(site("k")), journal, pid=DEAD, exit=exit_)
    if signal:
        stacks = Backtrace((Stack(journal.thread, signal, None, ()),))
        (path / crash_stacks.NAME).write_text(json.dumps({"format": crash_stacks.FORMAT, **asdict(stacks)}))
    return DiagnosedRun(run_directory.open_run(path))


def with_constants(run: DiagnosedRun, *names: str) -> DiagnosedRun:
    """The run, of a package with these constants."""
    constants = tuple(Constant(name, name, "float32", (2,), (1,), False, "Buffer") for name in names)
    manifest = replace(make_manifest(site("k")), constants=constants)
    (run.run.path / run_directory.MANIFEST).write_text(json_data.to_text(manifest))
    return DiagnosedRun(run_directory.open_run(run.run.path))


def in_a_launch(journal: JournalWriter) -> None:
    journal.launch_begin(0, 0)


def returned(journal: JournalWriter) -> None:
    journal.launch(0, 0)
    journal.call_end(launches=1)


def package(folder: Path, run: DiagnosedRun, *, is_finite: bool = True) -> CalledPackage:
    """A package with a call that was kept."""
    folder.mkdir()
    (folder / "packages").mkdir()
    file = folder / "packages/a.pt2"
    file.with_suffix(".json").touch()  # its calls are interposed
    value = 1.0 if is_finite else float("nan")
    KeptInputs(str(file), folder, "a", keeps_all=True).call(lambda _: [torch.tensor(value)], [torch.ones(2)])
    return CalledPackage(run, file, tuple(kept_calls(folder, os.getpid(), "a", 0)))


def chosen(*called: CalledPackage) -> FailedCall:
    found = failed_call(called)
    assert found is not None
    return found


def test_a_call_with_a_wrong_number_of_inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A script may pass a runner any number of tensors: they are kept as they are, and what reads them says so."""
    called = package(tmp_path / "run", ended(tmp_path / "first", returned))
    assert called.package is not None
    called.package.with_suffix(".json").unlink()
    leaves = tuple(Leaf(name, dtype="torch.float32", shape=(Dim(2, 2),)) for name in "xy")
    monkeypatch.setattr(input_files, "read_signature", lambda _: ModelSignature(leaves, "a structure"))
    monkeypatch.setattr(archive, "inspect", lambda _: None)
    monkeypatch.setattr(failed_call_module, "_with_weights", lambda package, *_: (package, False))
    inputs = chosen(called).inputs
    assert inputs is not None
    (only,) = torch.load(inputs)
    assert torch.equal(only, torch.ones(2))


@pytest.mark.parametrize(("is_first", "is_child"), [(True, False), (False, False), (True, True), (False, True)])
def test_a_call_that_is_refused_before_it_begins_is_the_one_that_failed(
    tmp_path: Path, is_first: bool, is_child: bool
) -> None:
    """As one with a wrong number of inputs: there is no run of its package."""
    path = tmp_path / "run"
    package(path, ended(tmp_path / "first", returned))
    other = path / "packages/b.pt2"
    other.touch()
    other.with_suffix(".json").write_text(json_data.to_text(make_manifest(site("b"))))

    def refuse(_: object) -> None:
        raise RuntimeError("expected inputs vector size to be 2, but got 1")

    with pytest.raises(RuntimeError):
        KeptInputs(str(other), path, "b", keeps_all=True).call(refuse, [torch.full((2,), 7.0)])
    info = replace(ended(tmp_path / "of_b", returned).run.info, pid=os.getpid())
    if not is_first:
        (path / run_directory.MANIFEST).write_text(json_data.to_text(make_manifest(site("k"))))
        (path / "packages/a.json").write_bytes((path / run_directory.MANIFEST).read_bytes())
    run_json.write(info, path)
    if is_child:
        info = replace(info, pid=os.getpid() + 1)
    for _ in range(2):
        failed_call_module.keep_refused_call(path, info)
    folders = [file.parent for file in path.glob(f"**/{run_directory.MANIFEST}")]
    assert len(folders) == (1 if is_first else 2)
    runs = [DiagnosedRun(run_directory.open_run(folder)) for folder in folders]
    found = failed_call(called_packages(path, runs))
    assert found is not None
    assert (found.package, found.number, len(found.run.launches)) == (other, 0, 0)
    assert found.inputs is not None
    assert torch.equal(torch.load(found.inputs)[0], torch.full((2,), 7.0))


def test_a_refused_call_is_not_blamed_for_a_later_one(tmp_path: Path) -> None:
    """A script may catch what a call with a wrong number of inputs raises: no call of the run belongs to it."""
    run = ended(tmp_path / "of_a", in_a_launch, signal="SIGSEGV")
    manifest = replace(make_manifest(site("k")), inputs=("x", "y"))
    (run.run.path / run_directory.MANIFEST).write_text(json_data.to_text(manifest))
    called = package(tmp_path / "a", DiagnosedRun(run_directory.open_run(run.run.path)))
    assert called.package is not None

    def refuse(_: object) -> None:
        raise RuntimeError

    calls = KeptInputs(str(called.package), tmp_path / "b", "a", keeps_all=True)
    for inputs in ([torch.ones(2)], [torch.ones(2), torch.zeros(2)]):
        with pytest.raises(RuntimeError):
            calls.call(refuse, inputs)
    found = chosen(replace(called, calls=tuple(kept_calls(tmp_path / "b", os.getpid(), "a", 0))))
    assert (found.number, found.why) == (1, "SIGSEGV (Segmentation fault)")


def calls_of(folder: Path, *inputs: int, launching: Sequence[int] = (), thread: bool = False) -> CalledPackage:
    """A package of two inputs whose calls had so many: those that had not two, and those that launched, have raised."""

    def write(journal: JournalWriter) -> None:
        for call in range(inputs.count(2)):
            if call:
                journal.call_begin(call)
            journal.launch(0, 0, call=call)
            journal.call_end(call, launches=1)

    run = ended(folder / "run", write, exit_=Exit(ExitKind.CLEAN))
    manifest = replace(make_manifest(site("k")), inputs=("x", "y"))
    (run.run.path / run_directory.MANIFEST).write_text(json_data.to_text(manifest))
    file = folder / "packages/a.pt2"
    file.parent.mkdir()
    file.with_suffix(".json").touch()
    kept = KeptInputs(str(file), folder, "a", keeps_all=True)

    def call(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        if len(tensors) != 2 or int(tensors[0][0]) in launching:
            raise RuntimeError("expected inputs vector size to be 2")
        return tensors

    def work() -> None:
        for number, count in enumerate(inputs):
            with suppress(RuntimeError):
                kept.call(call, [torch.full((2,), float(number))] * count)

    if thread:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(work).result()
    else:
        work()
    opened = DiagnosedRun(run_directory.open_run(run.run.path))
    return CalledPackage(opened, file, tuple(kept_calls(folder, os.getpid(), "a", 0)))


def looked_into(called: CalledPackage, exit_code: int = 0, *, is_ended_by_error: bool = False) -> FailedCall:
    found = with_caught([called], called.process, exit_code, is_ended_by_error=is_ended_by_error)
    return chosen(*found)


def test_what_is_not_finite_is_a_note_where_another_call_raised(tmp_path: Path) -> None:
    """It is not known whether a thread caught the exception: the call that raised is looked into first."""
    called = calls_of(tmp_path, 2, 1, 2, thread=True)
    assert looked_into(called).other_not_finite is None
    *before, last = called.calls
    last = replace(last, file=last.file.rename(last.file.with_name(NOT_FINITE)))
    found = looked_into(replace(called, calls=(*before, last)))
    other = found.other_not_finite
    assert other is not None
    assert other.inputs is not None
    assert (found.number, other.number, len(torch.load(other.inputs))) == (1, 2, 2)
    finding = triage_script._with_caught(Finding(CONTRACT, "the model takes 2 inputs"), found)
    assert finding.warnings == ("the results of call 2 of a.pt2 are not finite: not looked into",)
    assert finding.next == (f"aoti-debug triage {word_of(other.package)} --inputs {word_of(other.inputs)}",)
    new = found.run.path.rename(tmp_path / "moved")
    moved = found.moved(found.run.path, new).other_not_finite
    assert moved is not None
    assert moved.inputs == new / "call-2.pt"


def test_a_refused_call_that_the_script_caught_is_a_note(tmp_path: Path) -> None:
    called = calls_of(tmp_path, 2, 1, 2)
    found = looked_into(called)
    assert (found.number, found.why) == (2, NOTHING_SEEN)
    (caught,) = found.caught
    assert (caught.number, caught.error) == (1, "RuntimeError: expected inputs vector size to be 2")
    assert caught.inputs is not None
    assert len(torch.load(caught.inputs)) == 1
    finding = triage_script._with_caught(Finding(CLEAN, "2 launches", next=("look",)), found)
    refused = "RuntimeError: expected inputs vector size to be 2"
    said = f"call 1 of a.pt2 raised {refused}; the script did not end with that"
    assert (finding.kind, finding.warnings) == (CLEAN, (said,))
    assert finding.next == ("look", f"aoti-debug triage {word_of(caught.package)} --inputs {word_of(caught.inputs)}")
    assert looked_into(called, 1).number == 1, "what ended the script is not known"
    assert looked_into(called, 1, is_ended_by_error=True).number == 1
    assert with_caught([called], called.process + 1, 0, is_ended_by_error=False) == (called,), "of another process"


def test_the_exception_that_ended_the_script_was_not_caught(tmp_path: Path) -> None:
    found = looked_into(calls_of(tmp_path, 1, 2, 3), 1, is_ended_by_error=True)
    assert (found.number, [call.number for call in found.caught]) == (2, [0])


def test_a_call_that_failed_in_a_launch_is_looked_into_though_it_was_caught(tmp_path: Path) -> None:
    assert looked_into(calls_of(tmp_path, 2, 2, 2, launching=(1,))).number == 1


def test_whether_another_thread_caught_what_a_call_raised_is_not_known(tmp_path: Path) -> None:
    assert looked_into(calls_of(tmp_path, 2, 1, 2, thread=True)).number == 1


def test_where_every_call_was_refused_the_last_one_is_looked_into(tmp_path: Path) -> None:
    found = looked_into(calls_of(tmp_path, 1, 1, 1, 1, 1))
    assert (found.number, len(found.caught)) == (4, 5)
    assert [call.inputs is None for call in found.caught] == [False, False, False, True, True]
    notes = triage_script._with_caught(CRASHED, found).warnings
    assert notes[3:] == ("2 more calls raised before anything was launched; the script did not end with that",)


def test_of_equal_packages_the_one_that_the_process_has_called(tmp_path: Path) -> None:
    """Two processes may have instrumented one package, each under a name of its own."""
    run = ended(tmp_path / "run", returned)
    manifest = (run.run.path / run_directory.MANIFEST).read_bytes()
    (tmp_path / "packages").mkdir()
    for name in "abc":
        (tmp_path / f"packages/{name}.pt2").touch()
        (tmp_path / f"packages/{name}.json").write_bytes(manifest)
    process = run.run.info.pid if run.run.journal is None else run.run.journal.header.pid
    package(tmp_path / "kept", run)
    (tmp_path / "kept" / FOLDER).rename(tmp_path / FOLDER)
    (tmp_path / FOLDER / str(os.getpid())).rename(tmp_path / FOLDER / str(process))
    (tmp_path / FOLDER / f"{process}/a").rename(tmp_path / FOLDER / f"{process}/b")
    (found,) = called_packages(tmp_path, [run])
    assert found.package == tmp_path / "packages/b.pt2"
    assert [call.number for call in found.calls] == [0]


@pytest.mark.parametrize("order", [1, -1])
def test_of_packages_with_nan_the_first_in_time(tmp_path: Path, order: int) -> None:
    """The gradient becomes NaN in the backward graph, and the weights that the forward graph reads only later."""
    clean = Exit(ExitKind.CLEAN)
    backward = package(tmp_path / "b", ended(tmp_path / "of_b", returned, exit_=clean), is_finite=False)
    forward = package(tmp_path / "f", ended(tmp_path / "of_f", returned, exit_=clean), is_finite=False)
    assert chosen(*[forward, backward][::order]).run == backward.run


def test_a_crash_comes_before_a_process_that_was_ended_in_a_launch(tmp_path: Path) -> None:
    """A pool ends its other processes when one has crashed."""
    other = package(tmp_path / "o", ended(tmp_path / "of_o", in_a_launch, signal="SIGTERM"))
    crashed = package(tmp_path / "c", ended(tmp_path / "of_c", in_a_launch, signal="SIGSEGV"))
    assert chosen(other, crashed).run == crashed.run


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


def test_a_run_that_gives_up_its_place_is_found_where_it_lies_then(tmp_path: Path) -> None:
    """The run of the call to look into takes the place of the first one, which is that of another package."""
    clean = Exit(ExitKind.CLEAN)
    first = package(tmp_path / "a", ended(tmp_path / "of_a", returned, exit_=clean))
    path = first.run.path
    inner = ended(tmp_path / "of_b", returned, exit_=clean).run.path.rename(path / "process-7-1")
    second = package(tmp_path / "b", DiagnosedRun(run_directory.open_run(inner)))
    found = chosen(first, second)
    (other,) = found.others
    assert found.inputs is not None
    assert other.inputs is not None
    other.inputs.write_bytes(b"of the second run")
    found, other = replace(other, others=(replace(found, others=()),)), found
    moved = execute._moved_first(path, found)
    assert moved.inputs == path / "call-0.pt"
    assert moved.inputs.read_bytes() == b"of the second run"
    assert [one.run.path for one in moved.others] == [path / "process-7-1"]
    assert moved.others[0].inputs == path / "process-7-1" / "call-0.pt"
    assert moved.others[0].inputs.read_bytes() != b"of the second run"


def test_where_nothing_was_seen_the_others_are_the_last_calls_of_the_other_packages(tmp_path: Path) -> None:
    clean = Exit(ExitKind.CLEAN)
    first = package(tmp_path / "a", ended(tmp_path / "of_a", returned, exit_=clean))
    second = package(tmp_path / "b", ended(tmp_path / "of_b", returned, exit_=clean))
    found = chosen(first, second)
    assert found.run == first.run
    (left,) = found.others
    assert (left.run, left.package, left.has_other_weights) == (second.run, second.package, False)
    assert left.inputs is not None
    assert torch.equal(torch.load(left.inputs)[0], torch.ones(2))
    unkept = chosen(replace(first, calls=()), second)
    assert (unkept.package, [(other.package, other.inputs) for other in unkept.others]) == (
        second.package,
        [(first.package, None)],
    )
    faulty = package(tmp_path / "c", ended(tmp_path / "of_c", returned, exit_=clean), is_finite=False)
    assert chosen(first, second, faulty).others == ()
    assert (chosen(first, second, faulty).packages, found.packages, chosen(faulty).packages) == (3, 2, 1)


def test_calls_move_with_their_runs(tmp_path: Path) -> None:
    runs = [ended(tmp_path / "old" / name, returned, exit_=Exit(ExitKind.CLEAN)).run for name in ("a", "b")]
    runs.append(ended(tmp_path / "elsewhere", returned, exit_=Exit(ExitKind.CLEAN)).run)
    first, *others = [FailedCall(run, tmp_path / "p.pt2", 3, run.path / "call-3.pt", "") for run in runs]
    unkept = replace(first, inputs=None)
    call = replace(first, others=(*others, unkept))
    (tmp_path / "old").rename(tmp_path / "new")
    moved = call.moved(tmp_path / "old", tmp_path / "new")
    for one, run in zip((moved, moved.others[0]), runs, strict=False):
        assert one.run.path == tmp_path / "new" / run.path.relative_to(tmp_path / "old")
        assert one.inputs == one.run.path / "call-3.pt"
    assert moved.others[1] == others[1]
    assert (moved.others[2].inputs, moved.others[2].run.path) == (None, moved.run.path)


CRASHED = Finding(FAULT, "it crashed")
PARTLY = Finding(INCOMPLETE, "1 of 2 launches")


@pytest.mark.parametrize(
    ("findings", "kind", "notes"),
    [
        ((), INCOMPLETE, ["2 other packages: not looked into"]),
        (
            (Finding(CLEAN, ""), Finding(CLEAN, "")),
            CLEAN,
            ["the last call of 2 other packages: clean"],
        ),
        (
            (Finding(CLEAN, ""),),
            INCOMPLETE,
            [
                "the last call of 1 other package: clean",
                "1 other package: not looked into",
            ],
        ),
        (
            (PARTLY, Finding(CLEAN, "")),
            INCOMPLETE,
            [
                "the last call of 1 other package: clean",
                "a.pt2: CLEAN as far as compared: 1 of 2 launches",
            ],
        ),
    ],
)
def test_a_clean_finding_says_what_was_found_in_other_packages(
    tmp_path: Path, findings: Sequence[Finding], kind: FindingKind, notes: Sequence[str]
) -> None:
    run = ended(tmp_path / "run", returned, exit_=Exit(ExitKind.CLEAN)).run
    others = [FailedCall(run, tmp_path / f"{name}.pt2", 1, tmp_path / "in.pt", "") for name in ("a", "b")]
    looked_into = list(zip(others, findings, strict=False))
    finding = triage_script._with_other_packages(Finding(CLEAN, "2 launches"), others, looked_into)
    assert (finding.kind, list(finding.warnings)) == (kind, notes)
    open_ = [other for other, found in zip_longest(others, findings) if found is None or found.kind != CLEAN]
    assert finding.next == tuple(
        f"aoti-debug triage {word_of(other.package)} --inputs {word_of(tmp_path / 'in.pt')}" for other in open_
    )
    assert triage_script._with_other_packages(CRASHED, others, looked_into) == CRASHED
    unkept = [replace(other, inputs=None) for other in others]
    finding = triage_script._with_other_packages(Finding(CLEAN, "2 launches"), unkept, [])
    assert (finding.kind, finding.next) == (INCOMPLETE, ())
    assert finding.warnings[-1] == "no inputs were kept of the calls of a.pt2, b.pt2"
    frozen = [replace(other, frozen=("_frozen_param0",)) for other in others[:1]]
    (*_, said) = triage_script._with_other_packages(PARTLY, frozen, [(frozen[0], Finding(CLEAN, ""))]).warnings
    assert said.startswith("a.pt2: the script had replaced weights, but not _frozen_param0: ")
    changed = [replace(other, has_other_weights=True) for other in others]
    assert "weights of a.pt2, b.pt2, which" in triage_script._with_other_packages(PARTLY, changed, []).warnings[-1]


class Listener(StepListener):
    """Keeps the steps that it is told."""

    def __init__(self) -> None:
        self.steps: list[tuple[str, str]] = []

    def finished(self, step: Step) -> None:
        self.steps.append((step.name, step.text))


def triages(
    findings: dict[str, Finding | AotiDebugError], folder: Path, patch: pytest.MonkeyPatch
) -> tuple[Listener, TriageOptions]:
    """Has the triage of each package end in its finding or raise its error, once, and leave a directory."""

    def triage(options: TriageOptions, *_: object, **__: object) -> TriageDir:
        found = findings.pop(options.model.name)
        if isinstance(found, AotiDebugError):
            raise found
        (folder / options.model.stem).mkdir()
        return TriageDir(folder / options.model.stem, Record(found, (Step(f"run of {options.model.stem}", 1.0, ""),)))

    patch.setattr(triage_script, "triage", triage)
    return Listener(), TriageOptions(model=folder / "script.py", out=folder / "triages")


def call_with_others(folder: Path) -> FailedCall:
    """A call of a.pt2 in which nothing was seen, with those of b.pt2, c.pt2 and d.pt2."""
    run = ended(folder / "run", returned, exit_=Exit(ExitKind.CLEAN)).run
    why = "nothing was seen in it"
    others = tuple(FailedCall(run, folder / f"{name}.pt2", 1, folder / "in.pt", why) for name in "bcd")
    return FailedCall(run, folder / "a.pt2", 1, folder / "in.pt", "", others=others)


def test_packages_are_looked_into_until_one_has_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = call_with_others(tmp_path)
    findings: dict[str, Finding | AotiDebugError] = {
        "a.pt2": Finding(CLEAN, "4 launches"),
        "b.pt2": ArtifactError("b.pt2 is gone", hint="build it again"),
        "c.pt2": CRASHED,
    }
    listener, options = triages(findings, tmp_path, monkeypatch)
    found = triage_script.triage_failed_call(first, None, options, listener, before=(Step("script", 5.0, ""),))
    note = "where it was recorded, nothing was seen in it"
    assert (found.path.name, found.finding) == ("c", replace(CRASHED, warnings=(note,), package="c.pt2", call=1))
    assert finding_lines(found.finding, 80)[0] == "FAULT in call 1 of c.pt2: it crashed"
    assert listener.steps == [
        ("b.pt2", "could not be looked into: b.pt2 is gone"),
        ("c.pt2", "FAULT it crashed"),
    ]
    assert [step.name for step in found.record.steps] == ["script", "run of a", "b.pt2", "c.pt2", "run of c"]
    assert all(step.began >= 5 for step in found.record.steps[1:])
    assert not findings


GONE = ArtifactError("a.pt2 is gone\nfor ever", hint="build it again")
UNREAD = "call 1 of a.pt2 could not be looked into: a.pt2 is gone (build it again)"


def test_packages_are_looked_into_after_an_error_in_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = call_with_others(tmp_path)
    clean = Finding(CLEAN, "4 launches")
    findings: dict[str, Finding | AotiDebugError] = {"a.pt2": GONE, "b.pt2": clean, "c.pt2": clean, "d.pt2": clean}
    listener, options = triages(findings, tmp_path, monkeypatch)
    found = triage_script.triage_failed_call(first, None, options, listener, before=(Step("script", 5.0, ""),))
    notes = ("the last call of 3 other packages: clean", UNREAD)
    assert found.finding == Finding(INCOMPLETE, "call 1 of a.pt2 was not looked into", warnings=notes)
    assert listener.steps[0] == ("a.pt2", "could not be looked into: a.pt2 is gone")
    assert [step.name for step in found.record.steps] == ["script", "a.pt2", "b.pt2", "c.pt2", "d.pt2"]
    assert found.path.parent == tmp_path / "triages"
    assert triage_directory.open_triage(found.path).finding == found.finding
    assert UNREAD in report.write_triage(found).read_text(encoding="utf-8")
    assert not findings


def test_a_fault_after_an_error_in_the_first_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listener, options = triages({"a.pt2": GONE, "b.pt2": CRASHED}, tmp_path, monkeypatch)
    found = triage_script.triage_failed_call(call_with_others(tmp_path), None, options, listener)
    notes = ("where it was recorded, nothing was seen in it", UNREAD)
    assert (found.path.name, found.finding) == ("b", replace(CRASHED, warnings=notes, package="b.pt2", call=1))


def test_what_a_script_has_shown_is_told_where_its_call_cannot_be_looked_into(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crashed = ended(tmp_path / "crashed", in_a_launch, signal="SIGSEGV")
    call = FailedCall(crashed.run, tmp_path / "a.pt2", 1, tmp_path / "in.pt", "it crashed")
    listener, options = triages({"a.pt2": GONE}, tmp_path, monkeypatch)
    finding = triage_script.triage_failed_call(call, crashed.verdict, options, listener).finding
    assert (finding.kind, finding.what) == (FAULT, "invalid memory access in k")
    assert finding.warnings[0] == UNREAD
    listener, options = triages({"a.pt2": GONE}, tmp_path, monkeypatch)
    finding = triage_script.triage_failed_call(replace(call, is_not_finite=True), None, options, listener).finding
    what = "call 1 of a.pt2 had results that are not finite, and was not looked into"
    assert finding == Finding(INCOMPLETE, what, warnings=(UNREAD,))


def test_where_no_package_can_be_looked_into_that_is_the_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    findings: dict[str, Finding | AotiDebugError] = dict.fromkeys(("a.pt2", "b.pt2", "c.pt2", "d.pt2"), GONE)
    listener, options = triages(findings, tmp_path, monkeypatch)
    with pytest.raises(ArtifactError, match="is gone"):
        triage_script.triage_failed_call(call_with_others(tmp_path), None, options, listener)
    assert not options.out.exists()


@pytest.mark.parametrize(("packages", "package"), [(1, ""), (2, "a.pt2")])
def test_a_fault_names_its_package_where_the_script_calls_several(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packages: int, package: str
) -> None:
    listener, options = triages({"a.pt2": CRASHED}, tmp_path, monkeypatch)
    called = replace(call_with_others(tmp_path), others=(), packages=packages)
    finding = triage_script.triage_failed_call(called, None, options, listener).finding
    assert (finding.package, finding.call) == (package, 1 if package else None)


TIME_OVER = Finding(UNFINISHED, "the time was over")


@pytest.mark.parametrize(
    ("further", "kept", "note"),
    [
        (
            CRASHED,
            "further",
            "one call, on the buffers of the package, shows no fault; 4 calls, all with its inputs,",
        ),
        (TIME_OVER, "alone", "4 calls, all with its inputs, were not looked into to the end"),
        (
            ArtifactError("it is gone", hint=""),
            "alone",
            "4 calls, all with its inputs, could not be looked into",
        ),
    ],
)
def test_further_calls_take_nothing_away_from_what_one_call_has_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, further: Finding | AotiDebugError, kept: str, note: str
) -> None:
    def triage(*_: object, **__: object) -> TriageDir:
        if isinstance(further, AotiDebugError):
            raise further
        return TriageDir(tmp_path / "further", Record(further, (Step("run", 1.0, ""),)))

    monkeypatch.setattr(triage_script, "triage", triage)
    alone = TriageDir(tmp_path / "alone", Record(Finding(CLEAN, "2 launches"), (Step("run", 1.0, ""),)))
    options = TriageOptions(model=tmp_path / "a.pt2", calls=4)
    found = triage_script._triage_with_calls(options, None, (), before=alone, passed=7.0)
    assert found.path.name == kept
    assert found.finding.kind == (CLEAN if kept == "alone" else FAULT)
    assert found.finding.warnings[0].startswith(note)
    assert [step.began for step in found.record.steps] == ([0.0] if isinstance(further, AotiDebugError) else [0.0, 7.0])


@pytest.mark.parametrize(
    ("is_seen", "number", "overwrites", "made"),
    [(True, 36, True, [1, 37]), (False, 36, True, [1, 4]), (False, 1, True, [1, 2]), (False, 36, False, [1])],
)
def test_a_model_that_overwrites_its_buffers_is_called_several_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_seen: bool, number: int, overwrites: bool, made: list[int]
) -> None:
    """As often as the script has called it, if something was seen; else a few times."""
    calls: list[int] = []

    def triage(options: TriageOptions, *_: object, **__: object) -> TriageDir:
        calls.append(options.calls)
        return TriageDir(tmp_path, Record(Finding(CLEAN, "1 launch"), ()))

    monkeypatch.setattr(triage_script, "triage", triage)
    monkeypatch.setattr(triage_script, "writes_shared_memory", lambda _: overwrites)
    call = replace(call_with_others(tmp_path), others=(), number=number, is_not_finite=is_seen)
    triage_script._triage(call, None, TriageOptions(model=tmp_path / "a.pt2"), None, ())
    assert calls == made


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


def test_a_process_of_a_script_is_started_again_by_the_command_of_the_script(tmp_path: Path) -> None:
    words = ("aoti-debug", "exec", "serve.py")
    script = ended(tmp_path / "script", returned).run
    run_json.write(replace(script.info, command=words), script.path)
    child = ended(tmp_path / "child", in_a_launch).run
    found = execute._finished_child(child.path, child.info, script.path, Report(Stopwatch("read")))
    assert found.run.info.command == words


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


@pytest.mark.parametrize(
    ("write", "signal", "is_fault"),
    [
        (returned, "SIGTERM", False),
        (returned, "", False),
        (returned, "SIGSEGV", True),
        (in_a_launch, "SIGTERM", True),
        (lambda journal: journal.launch(0, 0), "", True),
    ],
)
def test_a_process_that_a_script_has_started_and_ended(
    tmp_path: Path, write: Write, signal: str, *, is_fault: bool
) -> None:
    path = ended(tmp_path, write, signal=signal).run.path
    info = run_directory.open_run(path).info
    found = execute._finished_child(path, info, tmp_path, Report(Stopwatch("read")))
    assert (found.verdict is not None) == is_fault
    assert run_directory.open_run(path).state is (ExitKind.ABORTED if is_fault else ExitKind.CLEAN)


@pytest.mark.parametrize(
    ("write", "signal", "state"),
    [
        (in_a_launch, "", ExitKind.TIMEOUT),
        (in_a_launch, "SIGSEGV", ExitKind.ABORTED),
        (returned, "", ExitKind.CLEAN),
    ],
)
def test_a_process_that_had_crashed_before_its_script_was_killed_does_not_hang(
    tmp_path: Path, write: Write, signal: str, state: ExitKind
) -> None:
    path = ended(tmp_path, write, signal=signal).run.path
    killed = Report(Stopwatch("read"), kill_reason="no progress for 60 s")
    execute._finished_child(path, run_directory.open_run(path).info, tmp_path, killed)
    assert run_directory.open_run(path).state is state


@pytest.mark.parametrize(("write", "state"), [(in_a_launch, ExitKind.TIMEOUT), (returned, ExitKind.CLEAN)])
def test_a_package_that_was_in_no_call_when_the_script_was_killed_does_not_hang(
    tmp_path: Path, write: Write, state: ExitKind
) -> None:
    opened = ended(tmp_path, write).run
    assert opened.journal is not None
    info = replace(opened.info, pid=opened.journal.header.pid)
    killed = Report(Stopwatch("read"), kill_reason="no progress for 60 s", returncode=-9)
    found = execute._finished(opened.path, info, killed)
    assert found.run.state is state
    assert (found.verdict is not None) == (state is ExitKind.TIMEOUT)


@pytest.mark.parametrize(("write", "state"), [(in_a_launch, ExitKind.FAULT), (returned, ExitKind.CLEAN)])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_script_that_is_ended_between_launches_has_no_fault(
    tmp_path: Path, write: Write, state: ExitKind, number: signal.Signals
) -> None:
    opened = ended(tmp_path, write).run
    assert opened.journal is not None
    info = replace(opened.info, pid=opened.journal.header.pid)
    found = execute._finished(opened.path, info, Report(Stopwatch("read"), returncode=-number))
    assert (found.verdict is not None) == (state is not ExitKind.CLEAN)
    if state is ExitKind.CLEAN:
        assert found.run.info.exit.detail == f"between launches: the script was ended by {number.name}"
