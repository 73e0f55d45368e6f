from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from aoti_debug.base.errors import RunDirError
from aoti_debug.views.report import report
from tests.views.report.subjects import run, triage


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_runs_and_triages_are_found_by_path_and_by_name() -> None:
    opened, found = run(Path("aoti-debug/runs")), triage(Path("aoti-debug/triages"))
    assert report.find(opened.path).path == opened.path
    assert report.find(opened.path.name).what == "run"
    assert report.find(found.path).what == "triage"
    assert report.find(found.path.name).path == found.path
    assert report.find("aoti-debug/triages").path == found.path


def test_without_a_name_the_newest_is_taken() -> None:
    opened, found = run(Path("aoti-debug/runs")), triage(Path("aoti-debug/triages"))
    os.utime(opened.path / "run.json", (1, 1))
    assert report.find().path == found.path
    os.utime(found.path / "triage.json", (0, 0))
    assert report.find().path == opened.path


def test_what_is_not_there_is_said() -> None:
    with pytest.raises(RunDirError, match="no runs in aoti-debug/runs, no triages"):
        report.find()
    opened = run(Path("aoti-debug/runs"))
    with pytest.raises(RunDirError, match="no run or triage 'nothing'") as error:
        report.find("nothing")
    assert opened.path.name in error.value.hint


def test_a_run_that_names_no_versions_has_those_of_its_package() -> None:
    opened = run(Path("aoti-debug/runs"))
    named = {"aoti-debug": opened.manifest.tool_version, "torch": opened.manifest.torch_version}
    unnamed = replace(opened, info=replace(opened.info, tool_version=None, torch_version=None))
    assert report.of_run(unnamed).versions == named


def test_runs_of_other_code_do_not_count() -> None:
    found = triage(Path("aoti-debug/triages"))
    assert [other.path.name for other in report.of_triage(found).others] == ["20261120-231502-4712"]
    other = found.path / "runs/20261120-231502-4712/manifest.json"
    other.write_text(other.read_text().replace('"source_sha256": ""', '"source_sha256": "other"'))
    assert report.of_triage(found).others == ()
    other.write_text("{")
    assert report.of_triage(found).others == ()
