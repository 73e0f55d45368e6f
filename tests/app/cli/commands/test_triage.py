from __future__ import annotations

from pathlib import Path

import pytest

from aoti_debug.app.cli import main
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
