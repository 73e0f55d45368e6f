"""Minimisations as lines of text, and parts that cannot be triaged."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from aoti_debug.app.cli.main import group
from aoti_debug.runs.diagnosis.findings import FAULT, Finding, Place
from aoti_debug.triage.minify.known_finding import verdict_of
from aoti_debug.triage.minify.minified import Minified, Smallest, document, minified_lines
from aoti_debug.triage.minify.script_results import ScriptTrial, ScriptVerdict, TriageAnswer, TriagedScript
from aoti_debug.triage.minify.start_parts import MinifyOptions
from tests import schema

FINDING = Finding(FAULT, "SIGSEGV (Segmentation fault)", Place("0.2", "my::op.default"))
SMALLEST = Smallest(
    script=Path("out/repro/repro.py"),
    lines=38,
    calls=1,
    among=3,
    start="launch 0.2",
    operators=("my.op.default",),
    observed="SIGSEGV",
    fails_in_eager=True,
    shown=5,
    runs=5,
    verdict=ScriptVerdict(TriageAnswer.YES, "FAULT SIGSEGV (Segmentation fault)"),
)
FOUND = Minified(FINDING, (ScriptTrial("hash", "1 of 3 calls of launch 0.2"),), 0, SMALLEST)


def test_the_smallest_part() -> None:
    assert minified_lines(FOUND) == [
        "FAULT SIGSEGV (Segmentation fault) in 0.2 my::op.default",
        "SMALLEST 1 call of 3 of launch 0.2: my.op.default",
        "  observed SIGSEGV",
        "  verdict  FAULT SIGSEGV (Segmentation fault)",
        "  note     it fails in eager, too",
        "  shown    in 5 of 5 runs, every time",
        "  script   out/repro/repro.py, 38 lines",
        "  next     python out/repro/repro.py",
        "  tried    1 script",
    ]


def test_no_part_and_starts_that_could_not_be_used() -> None:
    found = replace(FOUND, smallest=None, notes=("launch 0.2: no tensors were saved",))
    assert minified_lines(found) == [
        "note: launch 0.2: no tensors were saved",
        "FAULT SIGSEGV (Segmentation fault) in 0.2 my::op.default",
        "NOT SHOWN by a script that needs only torch; 1 script",
    ]


def test_parts_that_a_triage_did_not_confirm() -> None:
    clean = TriagedScript(
        "1 of 3 calls of launch 0.2, inputs random", ScriptVerdict(TriageAnswer.NO, "CLEAN nothing is wrong")
    )
    lines = minified_lines(replace(FOUND, refused=(clean,)))
    assert "  verdict  FAULT SIGSEGV (Segmentation fault)" in lines
    assert "  refused  1 of 3 calls of launch 0.2, inputs random: NOT CONFIRMED: CLEAN nothing is wrong" in lines
    larger = TriagedScript(
        "3 of 3 calls of launch 0.2", ScriptVerdict(TriageAnswer.UNKNOWN, "the part cannot be exported")
    )
    refused = replace(SMALLEST, verdict=clean.verdict)
    lines = minified_lines(replace(FOUND, smallest=refused, refused=(clean, larger)))
    assert lines[3] == "  verdict  NOT CONFIRMED: CLEAN nothing is wrong"
    assert lines[-3:-1] == [
        "  refused  3 of 3 calls of launch 0.2: not known: the part cannot be exported",
        "  note     none of 2 parts was confirmed by a triage",
    ]


@pytest.mark.parametrize("smallest", [SMALLEST, replace(SMALLEST, program=Path("program.pt2")), None])
def test_json(smallest: Smallest | None) -> None:
    refused = (TriagedScript("1 of 3 calls", ScriptVerdict(TriageAnswer.NO, "CLEAN")),)
    data = json.loads(json.dumps(document(replace(FOUND, smallest=smallest, refused=refused))))
    assert schema.problems(data, json.loads((schema.DOCS / "minify.schema.json").read_text())) == []
    assert data["confirmed"] is (smallest is not None)
    assert data["finding"]["kind"] == "fault"


def test_a_part_that_cannot_be_exported_has_no_verdict(tmp_path: Path) -> None:
    script = tmp_path / "repro.py"
    script.write_text("raise ValueError('no such operator')\n")
    verdict = verdict_of(script, FINDING, MinifyOptions(tmp_path / "program.pt2"))
    assert verdict.line == "not known: the part cannot be exported: ValueError: no such operator"
    assert not script.with_name("program.pt2").exists()


@pytest.mark.parametrize(
    ("confirmation", "code"), [(TriageAnswer.YES, 1), (TriageAnswer.NO, 7), (TriageAnswer.UNKNOWN, 7), (None, 7)]
)
def test_exit_codes(confirmation: TriageAnswer | None, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    smallest = None if confirmation is None else replace(SMALLEST, verdict=ScriptVerdict(confirmation, "text"))
    monkeypatch.setattr("aoti_debug.app.cli.commands.minify.minify", lambda *_: replace(FOUND, smallest=smallest))
    result = CliRunner().invoke(group, ["minify", "program.pt2", "--json"])
    assert (result.exit_code, json.loads(result.stdout)["confirmed"]) == (code, code == 1)
