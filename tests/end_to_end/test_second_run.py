"""A fault that repeats has a repro, also where the flight recorder has no room; what is missing then has a reason."""

from __future__ import annotations

import json
import subprocess
import sys
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


def test_a_fault_that_comes_once_gets_the_inputs_of_a_run_in_which_it_did_not_come(
    faulty_package: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAULTY_OPS", "raise once")
    finding = triaged(faulty_package, capsys)
    assert (finding["kind"], finding["warnings"]) == ("fault", [])
    (said,) = (text for text in finding["evidence"] if text.startswith("it came in 1 of 4 runs"))
    assert "the inputs of the repro are those of a run in which this launch did not fail, and may differ" in said
    assert said.endswith(
        "has not all of them: buf1 before the launch; no flight recorder: AOTI_DEBUG_FLIGHT_BYTES is 0"
    )
    repro = Path(finding["repro"])
    assert list(repro.glob("tensors/before_*.safetensors"))
    assert "as recorded" in subprocess.run([sys.executable, repro / "repro.py"], capture_output=True, text=True).stdout


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
