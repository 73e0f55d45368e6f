from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aoti_debug.compare import stored_comparison
from aoti_debug.compare.protocol.measurement import Advance, StateChange
from aoti_debug.package.manifest import ModelLine
from aoti_debug.runs.diagnosis.findings import NONFINITE, Finding, Place
from aoti_debug.views.redaction import RedactedPart, redaction_for
from aoti_debug.views.report import compact_launches, report
from aoti_debug.views.report import document as shown_launches
from aoti_debug.views.report.document import Document, document_of
from aoti_debug.views.report.tensor_samples import Sampler
from tests.views.report.subjects import FINDING, SECRETS, STACK, comparison_of, run, saved_run, triage


def launch(document: Document, id_: str) -> dict[str, Any]:
    found: dict[str, Any] = next(entry for entry in document.data["launches"] if entry["id"] == id_)
    return found


def test_a_run_with_statistics(tmp_path: Path) -> None:
    document = document_of(report.of_run(run(tmp_path, 2, fault=False)))
    assert document.head["kind"] == "no_fault"
    assert launch(document, "0.1")["marks"] == ["NaN"]
    assert launch(document, "0.1")["worst"] == "3 NaN in buf1"
    assert launch(document, "0.2")["marks"] == ["near overflow"]
    assert document.head["warnings"] == [
        "NaN in 1 launch, first in launch 0.1 aoti_torch_cpu_index_Tensor: 3 NaN in buf1",
        "near overflow in 1 launch, first in launch 0.2 cpp_fused_exp_1: 6e+04 in buf2",
    ]


def test_a_fault_is_marked(tmp_path: Path) -> None:
    document = document_of(report.of_run(run(tmp_path)))
    assert launch(document, "0.1")["marks"] == ["guilty", "failed"]
    assert document.run is not None
    assert (document.run["state"], document.run["launches"]) == ("fault", 2)
    assert [context.frame.line for context in document.contexts] == [28]
    assert [source.name for source in document.sources] == ["cpp_fused_mul_0"]


def test_a_page_says_once_that_its_run_is_not_of_this_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    subject = report.of_run(run(tmp_path))
    where = subject.finding.where
    assert where is not None
    other = replace(where, frame=ModelLine("other.py", 3, "forward", "y"))
    subject = replace(subject, finding=replace(subject.finding, origin=other))
    assert subject.run is not None
    monkeypatch.setitem(vars(subject.run), "is_made_here", False)
    remarks = [context.remark for context in document_of(subject).contexts]
    assert remarks == ["the run was not made on this account: files of this machine are not read", ""]
    noted = replace(subject.finding, warnings=("its package was not made on this account",))
    remarks = [context.remark for context in document_of(replace(subject, finding=noted)).contexts]
    assert remarks == ["files of this machine are not read", ""]


def test_a_triage_shows_what_all_its_runs_recorded(tmp_path: Path) -> None:
    document = document_of(report.of_triage(triage(tmp_path)))
    assert document.head["element"] == 314159
    assert launch(document, "0.1")["marks"] == ["guilty", "failed", "NaN"]
    assert launch(document, "0.1")["worst"] == "3 NaN in buf1"
    assert [step["name"] for step in document.steps] == ["run, level 3"]
    assert document.commands[0] == ("aoti-debug triage m.pt2", "repeats the triage")
    assert {"torch", "aoti-debug"} <= set(document.versions)


def test_saved_tensors_have_histograms(tmp_path: Path) -> None:
    document = document_of(report.of_run(saved_run(tmp_path)))
    entry = launch(document, "0.1")
    table, none, rows = entry["histograms"]
    assert none is None
    before = document.data["histograms"][table]["before"]
    after = document.data["histograms"][rows]["after"]
    assert (sum(before["bins"]), after["nan"], after["numel"]) == (32, 2, 32)
    assert entry["args"][0][2][3] == "tensors/0/table.safetensors"


def test_a_spent_budget_is_counted(tmp_path: Path) -> None:
    opened = saved_run(tmp_path)
    sampler = Sampler(budget=200)
    assert [sampler.histogram_index(opened, a) for a in opened.launches[1].args] == [0, None, None, None]
    assert sampler.unread == 1


def test_nothing_that_is_withheld_is_in_the_document(tmp_path: Path) -> None:
    subject = report.of_triage(triage(tmp_path))
    assert subject.run is not None
    for parts, secrets in (({RedactedPart.TENSORS}, SECRETS), ({RedactedPart.SOURCE}, ("secret_",))):
        document = str(document_of(subject, redaction_for(parts, [subject.run.manifest], subject.finding)))
        assert not [secret for secret in secrets if secret in document]
    whole = str(document_of(subject))
    assert all(secret in whole for secret in (*SECRETS, "secret_table", "secret_weight"))


@pytest.mark.parametrize(
    ("dtype", "value", "near"),
    [
        ("float16", 40000.0, True),
        ("float16", -40000.0, True),
        ("float16", 1000.0, False),
        ("float32", 1e30, False),
        ("float8_e4m3fn", 300.0, True),
    ],
)
def test_near_overflow_depends_on_the_dtype(dtype: str, value: float, near: bool) -> None:
    statistics = {"n_nan": 0, "n_pos_inf": 0, "n_neg_inf": 0, "min": min(value, 0), "max": max(value, 0)}
    argument = {"role": "out", "tensor": {"dtype": dtype}, "after": {"statistics": statistics}}
    assert compact_launches.value_marks([argument]) == ([compact_launches.Mark.NEAR_OVERFLOW] if near else [])
    assert compact_launches.value_marks([argument | {"role": "in"}]) == []


def test_of_a_very_long_run_a_part_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shown_launches, "MAX_LAUNCHES", 1)
    opened = run(tmp_path, fault=False)
    whole = document_of(report.of_run(opened))
    assert [entry["id"] for entry in whole.data["launches"]] == ["0.0"]
    assert "1 of 3 launches are shown" in whole.remarks[0]
    named = replace(report.of_run(opened), finding=Finding(NONFINITE, "NaN", Place("0.2")))
    assert [entry["id"] for entry in document_of(named).data["launches"]] == ["0.1", "0.2"]
    origin = replace(named.finding, origin=Place("0.0"))
    assert len(document_of(replace(named, finding=origin)).data["launches"]) == 3


def test_a_triage_without_a_run(tmp_path: Path) -> None:
    opened = triage(tmp_path)
    subject = report.ReportSubject("t", tmp_path, FINDING, triage=opened)
    document = document_of(subject)
    assert (document.run, document.data["launches"]) == (None, [])


def test_the_stack_of_a_launch_is_there(tmp_path: Path) -> None:
    assert document_of(report.of_run(run(tmp_path))).data["stacks"] == [STACK]


def test_a_compared_run_shows_what_is_wrong(tmp_path: Path) -> None:
    opened = run(tmp_path, 2, fault=False)
    stored_comparison.write(comparison_of(opened), opened.path)
    document = document_of(report.of_run(opened))
    assert (document.head["kind"], document.head["launch"]) == ("wrong_value", "0.1")
    assert launch(document, "0.1")["marks"] == ["guilty", "NaN"]
    shared = document.data["comparison"]
    assert (shared["first_wrong"], shared["counts"]) == ("0.1", {"ok": 1, "wrong": 1, "not comparable": 1})
    verdicts = [shared["verdicts"][entry["compared"][0]] for entry in document.data["launches"]]
    assert verdicts == ["ok", "wrong", "not comparable"]
    assert launch(document, "0.1")["compared"][3:8] == [0.25, 0.25, 0.0, 2.0, 9e6]
    assert shared["reasons"][launch(document, "0.2")["compared"][1]].startswith("random numbers")
    (spread,) = shared["spreads"]["0.1"]
    assert (spread["wrong"], spread["ranges"][0]) == (8, ((3, 3),))
    assert shared["summary"][0] == "compared: 2 of 3 launches, 144 B of 152 B of outputs (94.7 %)"


def test_a_fault_is_graver_than_a_comparison(tmp_path: Path) -> None:
    opened = run(tmp_path)
    document = document_of(report.of_comparison(comparison_of(opened)))
    assert document.head["kind"] == "fault"
    assert document.data["comparison"]["first_wrong"] == "0.1"


def test_a_redacted_comparison(tmp_path: Path) -> None:
    opened = run(tmp_path, 2, fault=False)
    subject = report.of_comparison(comparison_of(opened))
    for parts, secrets in (({RedactedPart.TENSORS}, SECRETS), ({RedactedPart.SOURCE}, ("secret_",))):
        document = document_of(subject, redaction_for(parts, [opened.manifest], subject.finding))
        assert not [secret for secret in secrets if secret in str(document)]
        assert (document.data["comparison"] is None) == (parts == {RedactedPart.TENSORS})


def test_a_wrong_state_is_a_finding(tmp_path: Path) -> None:
    opened = run(tmp_path, 2, fault=False)
    compared = comparison_of(opened)
    states = (StateChange(name="cache", call=0, launch="0.1", advance=Advance.TWICE, change=0.5, difference=0.25),)
    document = document_of(report.of_comparison(replace(compared, rows=compared.rows[:1], states=states)))
    assert (document.head["kind"], document.head["launch"]) == ("wrong_value", "0.1")
    assert document.head["what"].startswith("cache changes twice as much as in the program in call 0")
    assert "WRONG state cache" in document.data["comparison"]["summary"][-1]


def test_a_launch_of_the_same_code_says_so(tmp_path: Path) -> None:
    compared = comparison_of(run(tmp_path, 2, fault=False))
    rows = (replace(compared.rows[0], same_code=True), *compared.rows[1:])
    document = document_of(report.of_comparison(replace(compared, rows=rows)))
    reasons = document.data["comparison"]["reasons"]
    notes = [[reasons[note] for note in entry["compared"][2]] for entry in document.data["launches"]]
    assert [len(found) for found in notes] == [1, 1, 0]
    assert notes[0][0].startswith("not independent: the launch runs the same code")
