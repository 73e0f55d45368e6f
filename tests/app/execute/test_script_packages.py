"""The triage of a script that calls several packages, or whose calls were caught."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path

import pytest
import torch

from aoti_debug.app.execute import triage_script
from aoti_debug.app.execute.failed_call import (
    NOTHING_SEEN,
    FailedCall,
    with_caught,
)
from aoti_debug.app.execute.kept_inputs import NOT_FINITE
from aoti_debug.base.errors import AotiDebugError, ArtifactError
from aoti_debug.base.machine.steps import Step, StepListener
from aoti_debug.runs.diagnosis.findings import (
    CLEAN,
    FAULT,
    INCOMPLETE,
    UNFINISHED,
    Finding,
    FindingKind,
)
from aoti_debug.runs.diagnosis.suggested_commands import word_of
from aoti_debug.runs.rundir.run_json import Exit, ExitKind
from aoti_debug.runs.show.finding import finding_lines
from aoti_debug.triage.investigation.triage_runs import TriageOptions
from aoti_debug.triage.results import triage_directory
from aoti_debug.triage.results.finding_kinds import CONTRACT
from aoti_debug.triage.results.triage_directory import Record, TriageDir
from aoti_debug.views.report import report
from tests.app.execute.script_calls import (
    CRASHED,
    calls_of,
    ended,
    in_a_launch,
    looked_into,
    returned,
)


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


def test_where_every_call_was_refused_the_last_one_is_looked_into(tmp_path: Path) -> None:
    found = looked_into(calls_of(tmp_path, 1, 1, 1, 1, 1))
    assert (found.number, len(found.caught)) == (4, 5)
    assert [call.inputs is None for call in found.caught] == [False, False, False, True, True]
    notes = triage_script._with_caught(CRASHED, found).warnings
    assert notes[3:] == ("2 more calls raised before anything was launched; the script did not end with that",)


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
