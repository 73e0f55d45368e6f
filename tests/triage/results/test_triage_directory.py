from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from aoti_debug.base.errors import RunDirError, UsageError
from aoti_debug.base.machine.steps import Step
from aoti_debug.package.manifest import ModelLine
from aoti_debug.runs.diagnosis import findings
from aoti_debug.runs.diagnosis.findings import CLEAN, FAULT, Finding, Place
from aoti_debug.triage.results import finding_kinds, triage_directory
from aoti_debug.triage.results.finding_kinds import CONTRACT
from aoti_debug.triage.results.triage_directory import Record, TriageDir
from tests import schema
from tests.wrong_types import assert_refused

FRAME = ModelLine("/home/u/model.py", 28, "forward", "rows = table[index]")
ORIGIN = Place("0.1", "cpp_fused_mul_0", "", "", "buf1", 100, FRAME)
WHERE = Place("0.3", "aoti_torch_cpu_index_Tensor", "aten.index.Tensor", "", "buf2", 64010, FRAME)


def finding(**fields: Any) -> Finding:
    known: dict[str, Any] = {
        "kind": FAULT,
        "what": "SIGSEGV",
        "where": WHERE,
        "evidence": ("out-of-bounds load from buf2: element 64010 of 64000",),
        "origin": ORIGIN,
        "chain": (Place(input="index", argument="arg1_1", element=3), ORIGIN, WHERE),
        "confirmed_by": ("checked: the same",),
        "contradicted_by": ("the interpreter has no such kernel",),
        "next": ("python repro/repro.py",),
        "warnings": ("fp16 near overflow in buf9",),
    }
    return Finding(**(known | fields))


def record(path: Path, **fields: Any) -> Record:
    known: dict[str, Any] = {
        "finding": finding(repro=str(path / "repro")),
        "steps": (Step("build", 9.25, "44 launch sites"), Step("run, level 3", 1.5, "SIGSEGV in 0.3")),
        "versions": {"torch": "2.13.0"},
        "command": ("aoti-debug", "triage", "m.pt2"),
        "package": str(path / "package.pt2"),
        "run": str(path / "runs" / "20261120-231501-4711"),
        "between": {"check: contract": 0.25},
    }
    return Record(**(known | fields))


CASES = (
    finding(),
    finding(repro="/tmp/repro"),
    Finding(CLEAN, "no launch did wrong"),
    Finding(CONTRACT, "x has other strides", Place(input="x", element=0)),
)


@pytest.mark.parametrize("case", CASES)
def test_a_finding_survives_json(case: Finding) -> None:
    data = json.loads(json.dumps(findings.to_json(case), allow_nan=False))
    assert findings.from_json(data, finding_kinds.by_value()) == case
    assert schema.problems(data, schema.TRIAGE) == []


def test_the_json_of_a_finding_names_its_place_beside_its_kind() -> None:
    data = findings.to_json(finding())
    assert (data["kind"], data["launch"], data["argument"], data["element"]) == ("fault", "0.3", "buf2", 64010)
    assert (data["origin"]["kernel"], data["origin"]["file"], data["origin"]["line"]) == (
        "cpp_fused_mul_0",
        "/home/u/model.py",
        28,
    )
    assert findings.to_json(Finding(CLEAN, ""))["launch"] is None


def test_what_was_written_is_read(tmp_path: Path) -> None:
    path = triage_directory.create(tmp_path / "base")
    triage_directory.write(path, record(path))
    opened = triage_directory.open_triage(path)
    assert opened.path == path
    assert opened.record == record(path)
    assert triage_directory.open_triage(base=tmp_path / "base") == opened
    assert triage_directory.open_triage(path.name, tmp_path / "base") == opened
    assert triage_directory.open_triage(tmp_path / "base") == opened
    data = json.loads((path / "triage.json").read_text())
    assert schema.problems(data, schema.TRIAGE["$defs"]["record"], root=schema.TRIAGE) == []


def test_a_moved_triage_finds_its_own(tmp_path: Path) -> None:
    path = triage_directory.create(tmp_path)
    (path / "repro").mkdir()
    triage_directory.write(path, record(path, run="/elsewhere/run"))
    moved = path.rename(tmp_path / "moved")
    opened = triage_directory.open_triage(moved)
    assert opened.repro == moved / "repro"
    assert opened.record.package == str(moved / "package.pt2")
    assert opened.record.run == "/elsewhere/run"
    assert opened.run is None


def test_two_triages_of_one_second_have_directories_of_their_own(tmp_path: Path) -> None:
    assert len({triage_directory.create(tmp_path) for _ in range(3)}) == 3
    assert triage_directory.triages(tmp_path) == ()


def test_what_is_no_triage_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunDirError, match="no triages in"):
        triage_directory.open_triage(base=tmp_path)
    path = triage_directory.create(tmp_path)
    triage_directory.write(path, record(path))
    with pytest.raises(RunDirError, match="no triage 'other'") as error:
        triage_directory.open_triage("other", tmp_path)
    assert path.name in error.value.hint
    whole = json.loads((path / "triage.json").read_text())
    damaged: list[tuple[str, str]] = [
        ("{", "damaged"),
        ("[]", "damaged"),
        ("[" * 200_000, "damaged"),
        (json.dumps(whole | {"format": True}), "format true"),
        (json.dumps(whole | {"format": 2}), "format 2"),
        (json.dumps(whole | {"finding": {}}), "damaged"),
        (json.dumps(whole | {"finding": whole["finding"] | {"kind": "boredom"}}), "damaged"),
        (json.dumps(whole | {"finding": whole["finding"] | {"evidence": "text"}}), "damaged"),
        (json.dumps(whole | {"finding": whole["finding"] | {"what": 5}}), "damaged"),
    ]
    for text, message in damaged:
        (path / "triage.json").write_text(text)
        with pytest.raises(RunDirError, match=message):
            triage_directory.open_triage(path)


def test_wrong_types_are_damage(tmp_path: Path) -> None:
    path = triage_directory.create(tmp_path)
    triage_directory.write(path, record(path))
    data = json.loads((path / "triage.json").read_text())

    def read(changed: object) -> TriageDir:
        (path / "triage.json").write_text(json.dumps(changed))
        return triage_directory.open_triage(path)

    assert_refused(read, data, RunDirError, "triage.json is damaged", unread=("format", "repro"))


def test_a_place_that_cannot_be_written_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot make a directory"):
        triage_directory.create(tmp_path / "file")
    with pytest.raises(UsageError, match=r"cannot write .*triage\.json"):
        triage_directory.write(tmp_path / "gone", record(tmp_path))
