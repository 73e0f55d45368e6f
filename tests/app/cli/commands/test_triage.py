from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import NoReturn

import pytest

from aoti_debug.app.cli import main
from aoti_debug.app.cli.commands import triage as command
from aoti_debug.base.errors import UsageError
from aoti_debug.runs.diagnosis.findings import NONFINITE, Finding
from aoti_debug.views.report import report
from tests import archives


def test_a_model_that_is_not_there_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main.run(["triage", "model.pt2"]) == 3
    assert capsys.readouterr().err.startswith("error: model.pt2 does not exist\nhint: ")
    assert list(tmp_path.iterdir()) == []


def test_a_directory_of_the_users_stays(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    assert main.run(["triage", str(tmp_path / "model.pt2"), "--out", str(tmp_path / "mine")]) == 3
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


@pytest.mark.parametrize("options", [("--timeout", "0"), ("--inf", "maybe"), ("--tries", "0"), ("--calls", "0")])
def test_wrong_options_are_usage_errors(tmp_path: Path, options: tuple[str, ...]) -> None:
    model = archives.write(tmp_path / "model.pt2", archives.PROGRAM)
    assert main.run(["triage", str(model), *options, "--out", str(tmp_path / "out")]) == 2
    assert not (tmp_path / "out").exists()


def test_a_report_that_cannot_be_written_does_not_take_the_finding_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(_: object) -> NoReturn:
        raise UsageError("cannot write index.html: No space left on device", hint="name another file with -o")

    found = Finding(NONFINITE, "NaN in buf0")
    finished = SimpleNamespace(finding=found, path=tmp_path / "triages/1", record=SimpleNamespace(steps=(), between={}))
    monkeypatch.setattr(command, "triage", lambda *_, **__: finished)
    monkeypatch.setattr(report, "write_triage", refuse)
    model = archives.write(tmp_path / "model.pt2", archives.PROGRAM)
    assert main.run(["triage", str(model), "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr()
    assert said.out == "\nNOT FINITE NaN in buf0\n"
    assert "error: cannot write index.html: No space left on device\nhint: the finding is in " in said.err
    assert f"aoti-debug report {tmp_path / 'triages/1'} -o report.html" in said.err


def test_a_package_beside_a_program_is_told_how_to_be_triaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    archives.write(tmp_path / "program.pt2", archives.PROGRAM)
    archives.write(tmp_path / "package.pt2", archives.PACKAGE)
    assert main.run(["triage", "program.pt2", "--package", "package.pt2"]) == 2
    hint = "hint: aoti-debug triage package.pt2 --exported program.pt2\n"
    assert capsys.readouterr().err == f"error: --package is for a core file\n{hint}"
    assert main.run(["triage", "package.pt2", "--package", "package.pt2"]) == 2
    assert "aoti-debug triage CORE --package MODEL.pt2" in capsys.readouterr().err
