"""The watch over the model's process."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from aoti_debug.diagnosis.verdict import Proof
from aoti_debug.errors import UsageError
from aoti_debug.run import runner
from aoti_debug.rundir.run_json import ExitKind

ACT = "faulty::act.default"


def test_a_model_that_stalls(faulty_package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAULTY_OPS", "hang")
    began = time.monotonic()
    result = runner.run(faulty_package, out=tmp_path, stall=2)
    assert time.monotonic() - began < 120
    verdict = result.verdict
    assert verdict is not None
    assert (result.run.state, verdict.what, verdict.proof) == (
        ExitKind.TIMEOUT,
        "no end: no progress for 2 s",
        Proof.CERTAIN,
    )
    assert verdict.launch is not None
    assert verdict.launch.kernel == ACT
    lines = [frame.rpartition("/")[2] for frame in verdict.frames]
    assert lines[0].startswith("clock_nanosleep")
    assert [line.partition(":")[0] for line in lines[1:]] == [
        "faulty_ops.py",
        "faulty_ops.py",
        "run_impl at wrapper.cpp",
    ]
    assert result.run.info.command[-2:] == ("--stall", "2")


def test_a_model_that_goes_on_is_left_alone(faulty_package: Path, tmp_path: Path) -> None:
    result = runner.run(faulty_package, out=tmp_path, stall=120)
    assert result.verdict is None
    assert not (result.run.path / "python.txt").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"stall": 0}, "--stall 0 leaves no time"),
        ({"stall": 5, "level": 0}, "at level 0 nothing shows progress: --stall cannot be kept"),
    ],
)
def test_limits_that_make_no_sense(faulty_package: Path, tmp_path: Path, options: dict[str, int], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        runner.run(faulty_package, out=tmp_path / "runs", **options)
    assert str(caught.value) == message
    assert caught.value.hint
    assert not (tmp_path / "runs").exists()
