from __future__ import annotations

import json
from pathlib import Path

import pytest

from aoti_debug.app.cli.main import run as aoti_debug
from tests.schema import DOCS, problems
from tests.views.report.subjects import run, triage


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_the_newest_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    opened = run(Path("aoti-debug/runs"))
    assert aoti_debug(["report"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first == f"aoti-debug/runs/{opened.path.name}/report/index.html"
    assert second.startswith(f"  run {opened.path.name}, ")
    assert Path(first).is_file()


def test_a_triage_into_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = triage(Path("aoti-debug/triages"))
    assert aoti_debug(["report", found.path.name, "-o", "out/page.html"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "out/page.html"
    assert "<h1" in (tmp_path / "out/page.html").read_text()


def test_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    opened = run(Path("aoti-debug/runs"))
    assert aoti_debug(["report", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert problems(found, json.loads((DOCS / "report.schema.json").read_text())) == []
    page = Path(found["page"])
    assert page == tmp_path / "aoti-debug/runs" / opened.path.name / "report/index.html"
    assert (found["of"], found["name"], found["bytes"]) == ("run", opened.path.name, page.stat().st_size)


def test_what_is_not_there_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert aoti_debug(["report"]) == 6
    assert "aoti-debug triage MODEL.pt2" in capsys.readouterr().err
    run(Path("aoti-debug/runs"))
    assert aoti_debug(["report", "-o", "/proc/page.html"]) == 2
