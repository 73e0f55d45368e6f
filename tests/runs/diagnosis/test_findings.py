from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from aoti_debug.base.machine.files.json_data import DamagedJsonError
from aoti_debug.package.manifest import ModelLine
from aoti_debug.runs.diagnosis import findings
from aoti_debug.runs.diagnosis.findings import CLEAN, FAULT, Finding, Place
from tests.wrong_types import assert_refused

PLACE = Place("0.3", "k", "aten.index.Tensor", "", "buf2", 7, ModelLine("/u/model.py", 28, "forward", "a[i]"), (1, 2))
WHOLE = Finding(
    FAULT,
    "SIGSEGV",
    where=PLACE,
    evidence=("a",),
    origin=Place(input="x", input_kind="weight"),
    chain=(Place(input="x", input_kind="weight"), PLACE),
    confirmed_by=("b",),
    contradicted_by=("c",),
    repro="/tmp/repro",
    next=("d",),
    warnings=("e",),
    possible=("it may be f",),
    stack=("boom at ops.cpp:12",),
    signal="SIGSEGV",
    address=0x7F3A10,
    package="model.pt2",
    call=3,
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
 "text": "a[i]",
 "coordinates": [
  1,
  2
 ],
 "input_kind": null,"""
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
  "text": null,
  "coordinates": [],
  "input_kind": "weight"
 }"""


# Members that an older triage.json lacks.
ADDED = {"also", "possible", "stack", "signal", "address", "package", "call", "coordinates", "input_kind"}
KINDS = {kind.value: kind for kind in (CLEAN, FAULT)}


def read(data: dict[str, Any], where: str = "") -> Finding:
    return findings.from_json(data, KINDS, where)


def data() -> dict[str, Any]:
    read: dict[str, Any] = json.loads(json.dumps(findings.to_json(WHOLE)))
    return read


def test_the_layout_stays_as_it_is() -> None:
    text = json.dumps(findings.to_json(WHOLE), indent=1)
    assert text.startswith(
        f'{{\n "kind": "fault",\n "what": "SIGSEGV",{PLACE_TEXT}\n "origin": {INPUT_TEXT},\n "chain"'
    )
    assert list(findings.to_json(WHOLE))[14:] == [
        *("origin", "chain", "evidence", "possible", "stack", "signal", "address", "package", "call"),
        *("confirmed_by", "contradicted_by", "repro", "next", "warnings", "also"),
    ]


def test_what_is_written_is_read() -> None:
    assert read(data()) == WHOLE
    nowhere = Finding(CLEAN, "")
    assert read(findings.to_json(nowhere)) == nowhere


def test_wrong_types_are_damage() -> None:
    assert_refused(read, data(), DamagedJsonError, ", not ")


def test_other_findings_are_read_and_may_be_missing() -> None:
    first = replace(WHOLE, also=(WHOLE, Finding(CLEAN, "")))
    assert read(findings.to_json(first)) == first
    old = data()
    for name in ADDED:
        del old[name]
    lacking = replace(WHOLE, possible=(), stack=(), signal="", address=None, package="", call=None)
    assert read(old) == replace(lacking, where=replace(PLACE, coordinates=()))
    with pytest.raises(DamagedJsonError, match=r"finding\.also\.kind"):
        read({**data(), "also": [{**data(), "kind": 7}]}, "finding")


@pytest.mark.parametrize("name", sorted(findings.to_json(WHOLE).keys() - ADDED))
def test_every_member_is_needed(name: str) -> None:
    members = data()
    del members[name]
    with pytest.raises(DamagedJsonError, match=f"finding.{name} is missing"):
        read(members, "finding")


def test_an_address_is_hexadecimal() -> None:
    assert data()["address"] == "0x7f3a10"
    with pytest.raises(DamagedJsonError, match="no hexadecimal number"):
        read(data() | {"address": "behind buf0"})


def test_a_model_line_has_a_number() -> None:
    with pytest.raises(DamagedJsonError, match="has no line"):
        read(data() | {"line": None})
