from __future__ import annotations

from pathlib import Path

import pytest

from aoti_debug.base.machine.steps import Step, StepListener, Steps
from aoti_debug.compare.protocol.measurement import EXPORTED_DOUBLE, EXPORTED_EAGER
from aoti_debug.runs.rundir import run_directory
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.triage.investigation.investigation import Investigation
from aoti_debug.triage.investigation.triage_runs import TriageOptions, TriageRuns


class _Told(StepListener):
    def __init__(self) -> None:
        self.steps: list[Step] = []

    def finished(self, step: Step) -> None:
        self.steps.append(step)


def _triage_runs(package: Path, folder: Path) -> tuple[TriageRuns, _Told]:
    told = _Told()
    return TriageRuns(package, folder / "runs", TriageOptions(package), Steps(told)), told


def _runs(folder: Path) -> list[RunDir]:
    return [run_directory.open_run(path.parent) for path in sorted(folder.glob("runs/*-*/run.json"))]


def test_a_run_that_was_begun_ahead_is_the_one_with_all_tensors(faulty_package: Path, tmp_path: Path) -> None:
    runs, told = _triage_runs(faulty_package, tmp_path)
    runs.begin_all_tensors()
    values = runs.values()
    tensors = runs.all_tensors()
    runs.close()
    assert (values.verdict, tensors.verdict) == (None, None)
    assert [step.name for step in told.steps] == ["run, level 2", "run, level 1, all"]
    assert told.steps[1].began < told.steps[0].began + told.steps[0].seconds  # they went on at the same time
    assert {run.info.level for run in _runs(tmp_path)} == {1, 2}
    assert all(argument.files for launch in tensors.run.launches for argument in launch.args if argument.layout)


@pytest.mark.parametrize("action", ["", "hang"])
def test_what_is_not_asked_for_is_killed_and_leaves_nothing(
    action: str, faulty_package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAULTY_OPS", action)
    runs, told = _triage_runs(faulty_package, tmp_path)
    runs.begin_all_tensors()
    runs.close()
    assert not _runs(tmp_path)
    assert not (tmp_path / "runs" / "latest").is_symlink()
    assert not told.steps


@pytest.mark.parametrize("name", ["outputs", EXPORTED_EAGER, EXPORTED_DOUBLE])
def test_what_was_returned_is_removed_in_the_end(name: str, tmp_path: Path) -> None:
    runs, _ = _triage_runs(tmp_path / "model.pt2", tmp_path)
    (tmp_path / name).mkdir()
    (tmp_path / name / "0.safetensors").touch()
    runs.close()
    assert not (tmp_path / name).exists()


def test_a_run_that_fails_beside_another_is_run_again_alone(
    faulty_package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAULTY_OPS", "segv")
    runs, told = _triage_runs(faulty_package, tmp_path)
    steps = Steps(told)
    first = runs.names()
    runs.begin_all_tensors()
    investigation = Investigation(TriageOptions(faulty_package), runs, steps, tmp_path / "repro", first)
    assert investigation.run_measured().verdict is not None
    assert [step.name for step in told.steps] == ["run, level 3", "run, level 2", "run, level 2"]
    assert not runs.has_begun_ahead
    assert [run.info.level for run in _runs(tmp_path)] == [3, 2, 2]


def test_a_run_that_failed_in_the_background_is_run_again(
    faulty_package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAULTY_OPS", "raise")
    runs, told = _triage_runs(faulty_package, tmp_path)
    runs.begin_all_tensors()
    assert runs.all_tensors().verdict is not None
    assert [step.name for step in told.steps] == ["run, level 1, all"]
    assert len(_runs(tmp_path)) == 1
