"""A fault that repeats has a repro, also where the flight recorder has no room; what is missing then has a reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from aoti_debug.app.cli import main
from aoti_debug.triage.results import triage_directory


@pytest.fixture(autouse=True)
def without_recorder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AOTI_DEBUG_FLIGHT_BYTES", "0")
    monkeypatch.chdir(tmp_path)


def triaged(package: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    assert main.run(["triage", str(package), "--timeout", "3", "--json"]) == 1
    return json.loads(capsys.readouterr().out)


def test_a_hang_is_run_again_for_the_inputs_of_its_launch(
    faulty_package: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAULTY_OPS", "hang")
    finding = triaged(faulty_package, capsys)
    assert (finding["kind"], finding["warnings"]) == ("hang", [])
    steps = triage_directory.open_triage().record.steps
    assert [step.name for step in steps][:3] == ["run, level 3", "run, level 1", "repro"]
    assert list(Path(finding["repro"]).glob("tensors/before_*.safetensors"))


@pytest.mark.parametrize(
    ("limit", "reason"),
    [
        ("AOTI_DEBUG_MAX_TENSOR_BYTES", "before the launch (larger than AOTI_DEBUG_MAX_TENSOR_BYTES)"),
        ("AOTI_DEBUG_MAX_BYTES", "before the launch; tensors are no longer saved: AOTI_DEBUG_MAX_BYTES is reached"),
    ],
)
def test_an_input_that_no_run_may_save_is_named_with_the_reason(
    faulty_package: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], limit: str, reason: str
) -> None:
    monkeypatch.setenv("FAULTY_OPS", "raise")
    monkeypatch.setenv(limit, "8")
    finding = triaged(faulty_package, capsys)
    assert (finding["kind"], finding["repro"]) == ("fault", None)
    (warning,) = finding["warnings"]
    assert "cannot be replayed; not saved: " in warning
    assert reason in warning
