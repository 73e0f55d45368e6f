from __future__ import annotations

import json
from typing import Any

import pytest
from wrong_types import assert_refused

from aoti_debug.diagnosis import findings
from aoti_debug.diagnosis.findings import Finding, FindingKind, Place
from aoti_debug.machine.json_data import DamagedJsonError
from aoti_debug.manifest import ModelLine

PLACE = Place("0.3", "k", "aten.index.Tensor", "", "buf2", 7, ModelLine("/u/model.py", 28, "forward", "a[i]"))
WHOLE = Finding(
    FindingKind.FAULT,
    "SIGSEGV",
    where=PLACE,
    evidence=("a",),
    origin=Place(input="x"),
    chain=(Place(input="x"), PLACE),
    confirmed_by=("b",),
    contradicted_by=("c",),
    repro="/tmp/repro",
    next=("d",),
    warnings=("e",),
)
PLACE_TEXT = """
 "launch": "0.3",
 "kernel": "k",
 "operator": "aten.index.Tensor",
 "input": null,
 "argument": "buf2",
 "element": 7,
 "file": "/u/model.py",
 "line": 28,
 "function": "forward",
 "text": "a[i]","""
INPUT_TEXT = """{
  "launch": null,
  "kernel": null,
  "operator": null,
  "input": "x",
  "argument": null,
  "element": null,
  "file": null,
  "line": null,
  "function": null,
  "text": null
 }"""


def data() -> dict[str, Any]:
    read: dict[str, Any] = json.loads(json.dumps(findings.to_json(WHOLE)))
    return read


def test_the_layout_stays_as_it_is() -> None:
    text = json.dumps(findings.to_json(WHOLE), indent=1)
    assert text.startswith(
        f'{{\n "kind": "fault",\n "what": "SIGSEGV",{PLACE_TEXT}\n "origin": {INPUT_TEXT},\n "chain"'
    )
    assert list(findings.to_json(WHOLE))[12:] == [
        *("origin", "chain", "evidence", "confirmed_by", "contradicted_by", "repro", "next", "warnings"),
    ]


def test_what_is_written_is_read() -> None:
    assert findings.from_json(data()) == WHOLE
    nowhere = Finding(FindingKind.CLEAN, "")
    assert findings.from_json(findings.to_json(nowhere)) == nowhere


def test_wrong_types_are_damage() -> None:
    assert_refused(findings.from_json, data(), DamagedJsonError, ", not ")


@pytest.mark.parametrize("name", sorted(findings.to_json(WHOLE)))
def test_every_member_is_needed(name: str) -> None:
    members = data()
    del members[name]
    with pytest.raises(DamagedJsonError, match=f"finding.{name} is missing"):
        findings.from_json(members, "finding")


def test_a_model_line_has_a_number() -> None:
    with pytest.raises(DamagedJsonError, match="has no line"):
        findings.from_json(data() | {"line": None})
