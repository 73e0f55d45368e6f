"""Supervision of the model's process."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from aoti_debug.base.errors import ArtifactError, TargetError, UsageError
from aoti_debug.base.machine.files.json_data import DamagedJsonError
from aoti_debug.base.machine.processes.messages import ErrorData
from aoti_debug.base.machine.steps import Stopwatch
from aoti_debug.runs.diagnosis.verdict import Proof
from aoti_debug.runs.run import runner, supervise
from aoti_debug.runs.run.configuration import core_dump_variables
from aoti_debug.runs.run.options import RunOptions
from aoti_debug.runs.run.protocol import ResultsUnsaved, RunRequest, StageReached, message_line
from aoti_debug.runs.run.supervise import ModelProcess, Observer, Report
from aoti_debug.runs.run.watchdog import Limits
from aoti_debug.runs.rundir.run_directory import GPU_CORE
from aoti_debug.runs.rundir.run_json import ExitKind, RunStage
from tests.torch_features import LINE_NUMBERS

ACT = "faulty::act.default"


def watch(run: Path, monkeypatch: pytest.MonkeyPatch, worker: str = "") -> Report:
    """The report of a process that finds no package, or whose `main` is `worker`."""
    if worker:
        (run / "some_worker.py").write_text(f"import os, sys\ndef main():\n  pipe = int(sys.argv[1])\n  {worker}\n")
        monkeypatch.setattr(supervise, "WORKER", "some_worker")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([os.environ.get("PYTHONPATH", ""), str(run)])}
    request = RunRequest(str(run / "none.pt2"), str(run), "cpu")
    with ModelProcess(request, environment) as process:
        return process.watch(Observer(), Limits(), Stopwatch("start"))


DRIVER = """
import json, os, sys, time

def main():
    run = json.loads(sys.argv[3])["run"]
    os.mkfifo(os.environ["CUDA_COREDUMP_PIPE"])
    pipe = os.open(os.environ["CUDA_COREDUMP_PIPE"], os.O_RDWR)
    os.write(int(sys.argv[1]), b'{}\\n'.replace(b"{}", os.environ["STAGE"].encode()))
    os.read(pipe, 1)
    with open(os.environ["CUDA_COREDUMP_FILE"], "wb") as file:
        for part in range(3):
            file.write(bytes(1000))
            file.flush()
            time.sleep(0.3)
    time.sleep(600)
"""


def test_a_process_that_is_killed_leaves_the_core_dump_of_its_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "some_driver.py").write_text(DRIVER)
    monkeypatch.setattr(supervise, "WORKER", "some_driver")
    run = tmp_path / "run"
    run.mkdir()
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([os.environ.get("PYTHONPATH", ""), str(tmp_path)]),
        "STAGE": message_line(StageReached(RunStage.LOAD)).strip(),
        **core_dump_variables(run, tmp_path),
    }
    with ModelProcess(RunRequest(str(run / "none.pt2"), str(run), "cuda"), environment) as process:
        report = process.watch(Observer(), Limits(timeout=0.5), Stopwatch("start"))
    assert report.kill_reason == "it was killed after 0.5 s"
    assert (run / GPU_CORE).stat().st_size == 3000


def test_an_error_of_the_library_arrives_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = watch(tmp_path, monkeypatch)
    assert (report.stage, report.returncode, report.signal) == (RunStage.INPUTS, 1, "")
    assert report.torch_version
    assert report.error is not None
    error = report.error.to_error()
    assert isinstance(error, ArtifactError)
    assert str(error) == f"{tmp_path / 'none.pt2'} does not exist"
    assert error.hint
    assert (tmp_path / "python.txt").exists()


def test_output_and_signal_of_a_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = watch(tmp_path, monkeypatch, "os.write(1, b'out'); os.write(2, b'err'); os.abort()")
    assert (report.signal, report.stage, report.error) == ("SIGABRT", RunStage.IMPORT, None)
    assert ((tmp_path / "stdout.log").read_text(), (tmp_path / "stderr.log").read_text()) == ("out", "err")


def test_a_process_that_sends_no_message_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    began = time.monotonic()
    with pytest.raises(DamagedJsonError, match="message is None"):
        watch(tmp_path, monkeypatch, "import time; os.write(pipe, b'{}\\n'); time.sleep(600)")
    assert time.monotonic() - began < 60


def test_a_process_that_leaves_another_with_its_pipes_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began = time.monotonic()
    report = watch(tmp_path, monkeypatch, "if os.fork() == 0: import time; time.sleep(600)")
    assert report.returncode == 0
    assert time.monotonic() - began < 60


def test_a_model_that_stalls(faulty_package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAULTY_OPS", "hang")
    began = time.monotonic()
    result = runner.run(RunOptions(faulty_package, out=tmp_path, stall=2))
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
        "run_impl at wrapper.cpp" if LINE_NUMBERS else "run_impl",
    ]
    assert result.run.info.command[-2:] == ("--stall", "2")


def test_a_model_that_goes_on_is_left_alone(faulty_package: Path, tmp_path: Path) -> None:
    result = runner.run(RunOptions(faulty_package, out=tmp_path, stall=120))
    assert result.verdict is None
    assert not (result.run.path / "python.txt").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"stall": 0}, "--stall 0 is not greater than 0"),
        ({"summaries": 0}, "--freq 0 is less than 1"),
        ({"summaries": 1, "level": 0}, "--summaries needs a level above 0, which measures tensors"),
        ({"stall": 5, "level": 0}, "--stall needs a level above 0, which records progress"),
        ({"gpu_core": True}, "faulty.pt2 runs on a CPU: there is no core dump of a GPU"),
    ],
)
def test_limits_that_make_no_sense(faulty_package: Path, tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        runner.run(RunOptions(faulty_package, out=tmp_path / "runs", **options))
    assert str(caught.value) == message
    assert caught.value.hint
    assert not (tmp_path / "runs").exists()


def test_results_that_the_system_did_not_write_are_an_error() -> None:
    report = Report(Stopwatch("read"))
    report.require_saved()
    refused = TargetError("what the model returned cannot be saved: Input/output error: out", hint="dmesg")
    report.receive(ResultsUnsaved(ErrorData.from_exception(refused)), Observer())
    with pytest.raises(TargetError, match="cannot be saved") as caught:
        report.require_saved()
    assert (caught.value.hint, report.error) == ("dmesg", None)
