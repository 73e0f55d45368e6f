from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from aoti_debug.app.cli.main import run as aoti_debug
from tests.schema import DOCS, problems
from tests.views.report.subjects import run, triage


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_it_says_what_is_inside(capsys: pytest.CaptureFixture[str]) -> None:
    found = triage(Path("aoti-debug/triages"))
    assert aoti_debug(["bundle"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"aoti-debug/bundles/triage_{found.path.name}.zip"
    assert Path(lines[0]).is_file()
    assert any(line.endswith("B  repro/repro.py") for line in lines[2:])
    assert "B  package.pt2: the package" in lines[lines.index("left out:") + 1]
    assert aoti_debug(["list"]) == 0
    assert f"bundles/triage_{found.path.name}.zip" in capsys.readouterr().out
    assert aoti_debug(["clean", f"bundles/triage_{found.path.name}.zip"]) == 0
    assert not Path(lines[0]).exists()
    assert found.path.exists()


def test_it_says_what_was_left_out_and_why(capsys: pytest.CaptureFixture[str]) -> None:
    triage(Path("aoti-debug/triages"))
    assert aoti_debug(["bundle", "--no-tensors", "--no-source", "-o", "b.tar.gz"]) == 0
    out = capsys.readouterr().out
    inside, _, outside = out.partition("left out:")
    assert "repro" not in inside
    assert "it holds values of tensors" in outside
    assert "stderr.log" in outside


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    triage(Path("aoti-debug/triages"))
    assert aoti_debug(["bundle", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert problems(found, json.loads((DOCS / "bundle.schema.json").read_text())) == []
    with zipfile.ZipFile(found["archive"]) as archive:
        inside = {f"{found['folder']}/{file['name']}": file["bytes"] for file in found["files"]}
        assert {item.filename: item.file_size for item in archive.infolist()} == inside
    assert [left["name"] for left in found["left_out"]] == ["package.pt2"]


def test_nothing_is_overwritten(capsys: pytest.CaptureFixture[str]) -> None:
    run(Path("aoti-debug/runs"))
    assert aoti_debug(["bundle", "-o", "b.zip"]) == 0
    assert aoti_debug(["bundle", "-o", "b.zip"]) == 2
    assert "b.zip already exists" in capsys.readouterr().err
