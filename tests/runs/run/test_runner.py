"""Runs of a real package whose third launch fails as the test requests."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch

from aoti_debug.base.abi import Phase
from aoti_debug.base.errors import ArtifactError, TargetError, UsageError
from aoti_debug.base.machine.user_code import UserCode
from aoti_debug.runs.diagnosis.verdict import Proof
from aoti_debug.runs.run import runner
from aoti_debug.runs.run.options import RunOptions
from aoti_debug.runs.run.runner import RunResult
from aoti_debug.runs.run.supervise import Observer
from aoti_debug.runs.rundir import load_tensors
from aoti_debug.runs.rundir.run_directory import open_run
from aoti_debug.runs.rundir.run_json import ExitKind, RunStage
from tests import archives
from tests.disk_usage import DiskUsage
from tests.paths import ROOT

ACT = "faulty::act.default"


def run(package: Path, base: Path, *, observer: Observer | None = None, **options: Any) -> RunResult:
    return runner.run(RunOptions(package, out=base / "runs", **options), observer)


def guilty(result: RunResult) -> tuple[ExitKind, str, Proof]:
    assert result.verdict is not None
    assert result.verdict.launch is not None
    return result.run.state, result.verdict.launch.kernel, result.verdict.proof


class Recorder(Observer):
    def __init__(self) -> None:
        self.run: Path | None = None
        self.stages: list[RunStage] = []
        self.text = {"stdout": b"", "stderr": b""}

    def started(self, run: Path) -> None:
        self.run = run

    def reached(self, stage: RunStage) -> None:
        self.stages.append(stage)

    def output(self, stream: str, data: bytes) -> None:
        self.text[stream] += data


def test_a_clean_run(faulty_package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAULTY_OPS", "write")
    recorder = Recorder()
    result = run(faulty_package, tmp_path, calls=2, observer=recorder)
    assert (result.verdict, result.run.state, result.lost) == (None, ExitKind.CLEAN, "")
    assert [call.ended for call in result.run.timeline.calls] == [True, True]
    assert ACT in result.run.kernels()
    assert len(result.run.launches) == 2 * len(result.run.manifest.sites)
    assert recorder.run == result.run.path
    assert recorder.stages == [RunStage.IMPORT, RunStage.INPUTS, RunStage.LOAD, RunStage.CALL, RunStage.UNLOAD]
    assert recorder.text["stdout"] == b"to stdout\n" * 2
    assert (result.run.path / "stdout.log").read_bytes() == recorder.text["stdout"]
    assert (result.run.path / "stderr.log").read_bytes() == recorder.text["stderr"]
    assert b"0.0 before" in recorder.text["stderr"]


def test_the_timings_add_up_to_the_run(faulty_package: Path, tmp_path: Path) -> None:
    began = time.monotonic()
    result = run(faulty_package, tmp_path)
    whole = time.monotonic() - began
    timings = open_run(result.run.path).info.timings
    phases = ["prepare", "import torch", "start", "import modules", "inputs", "load", "call", "unload", "exit", "read"]
    assert list(timings) == phases
    assert timings == result.run.info.timings
    assert 0.9 * whole - 0.1 < sum(timings.values()) <= whole


def test_run_json_and_links(faulty_package: Path, tmp_path: Path) -> None:
    torch.save((torch.ones(2, 4),), tmp_path / "ones.pt")
    options: dict[str, Any] = {"level": 2, "filters": ["faulty*", "!x"], "phase": "both"}
    options |= {"launch": "0.2", "timeout": 300}
    path = run(faulty_package, tmp_path, inputs=tmp_path / "ones.pt", **options).run.path
    data = json.loads((path / "run.json").read_text())
    assert next(iter(data)) == "format"
    expected = {"format": 1, "level": 2, "filters": ["faulty*", "!x"], "phase": "both", "device": "cpu", "calls": 1}
    assert data.items() >= expected.items()
    assert data["command"] == (
        f"aoti-debug run {faulty_package} --inputs {tmp_path / 'ones.pt'} --level 2 --phase both"
        f" --out {tmp_path / 'runs'} --timeout 300 --launch 0.2 --filter faulty* --filter !x"
    ).split(" ")
    assert (data["host"], data["torch_version"]) == ("aoti-debug run", torch.__version__)
    assert data["exit"].items() >= {"kind": "clean", "stage": "unload", "signal": ""}.items()
    assert data["exit"]["seconds"] > 0
    assert os.readlink(path / "package.pt2") == str(faulty_package)
    assert os.readlink(path / "inputs.pt") == str(tmp_path / "ones.pt")
    assert open_run(path).inputs == tmp_path / "ones.pt"
    measured = {launch.id for launch in open_run(path).launches for a in launch.args if a.stats}
    assert measured == {"0.2"}


def test_saved_tensors_are_the_models(faulty_package: Path, tmp_path: Path) -> None:
    torch.save((torch.full((2, 4), 0.5),), tmp_path / "half.pt")
    opened = run(faulty_package, tmp_path, inputs=tmp_path / "half.pt", level=1).run
    (launch,) = opened.launches_of(ACT)
    before = load_tensors.load_launch(opened, launch, Phase.BEFORE)
    after = load_tensors.load_launch(opened, launch, Phase.AFTER)
    (name,) = before
    (output,) = (argument.name for argument in launch.args if argument.written)
    assert torch.equal(after[output], before[name] + 1)
    first = next(launch for launch in opened.launches if "addmm" in launch.kernel)
    values = load_tensors.load_launch(opened, first, Phase.BEFORE).values()
    assert any(torch.equal(value, torch.full((2, 4), 0.5)) for value in values)


def test_runs_are_never_overwritten(faulty_package: Path, tmp_path: Path) -> None:
    paths = [run(faulty_package, tmp_path, level=0).run.path for _ in range(2)]
    assert len(set(paths)) == 2
    assert (tmp_path / "runs" / "latest").resolve() == paths[1]
    assert all(open_run(path).state is ExitKind.CLEAN for path in paths)


def test_level_0_records_nothing(faulty_package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAULTY_OPS", "segv")
    result = run(faulty_package, tmp_path, level=0)
    assert (result.run.journal, result.run.state) == (None, ExitKind.FAULT)
    assert result.verdict is not None
    assert result.verdict.why == "level 0 records nothing"


def test_the_environments_level_is_the_default(
    faulty_package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AOTI_DEBUG_LEVEL", "0")
    result = run(faulty_package, tmp_path)
    assert (result.run.info.level, result.run.journal) == (0, None)


@pytest.mark.parametrize(
    ("action", "state", "what"),
    [
        ("segv", ExitKind.FAULT, "SIGSEGV (Segmentation fault)"),
        ("abort", ExitKind.FAULT, "SIGABRT (Aborted)"),
        ("exit", ExitKind.FAULT, "the process ended itself with exit code 7"),
        ("kill", ExitKind.ABORTED, "SIGKILL (Killed)"),
    ],
)
def test_the_death_of_the_process(
    faulty_package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, action: str, state: ExitKind, what: str
) -> None:
    monkeypatch.setenv("FAULTY_OPS", action)
    result = run(faulty_package, tmp_path)
    assert guilty(result) == (state, ACT, Proof.LIKELY if state is ExitKind.ABORTED else Proof.CERTAIN)
    assert result.verdict is not None
    assert result.verdict.what == what


def test_a_crash_at_level_1_leaves_the_inputs_of_the_guilty_launch(
    faulty_package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAULTY_OPS", "segv")
    result = run(faulty_package, tmp_path, level=1)
    assert guilty(result)[1] == ACT
    assert result.verdict is not None
    assert result.verdict.launch is not None
    (saved,) = load_tensors.load_launch(result.run, result.verdict.launch, Phase.BEFORE).values()
    assert saved.shape == (2, 16)


def test_an_exception(faulty_package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAULTY_OPS", "raise")
    result = run(faulty_package, tmp_path)
    assert guilty(result) == (ExitKind.FAULT, ACT, Proof.CERTAIN)
    assert result.verdict is not None
    assert result.verdict.what.startswith("ValueError: the answer is not 42")
    assert result.run.info.exit.exception == "RuntimeError"
    assert result.run.info.exit.stage is RunStage.CALL


def test_a_hang(faulty_package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAULTY_OPS", "hang")
    began = time.monotonic()
    result = run(faulty_package, tmp_path, timeout=5)
    assert guilty(result) == (ExitKind.TIMEOUT, ACT, Proof.CERTAIN)
    assert time.monotonic() - began < 120
    assert result.verdict is not None
    assert result.verdict.what == "no end: it was killed after 5 s"


def wait_for_launch(base: Path) -> None:
    """Waits until the third launch is running."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        latest = base / "runs" / "latest"
        if (latest / "journal.bin").exists() and ACT in open_run(latest).kernels():
            return
        time.sleep(0.2)
    raise AssertionError("the operator was not reached")


def test_an_interrupt_ends_the_process_and_is_written_down(
    faulty_package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAULTY_OPS", "hang")

    def interrupt() -> None:
        wait_for_launch(tmp_path)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        run(faulty_package, tmp_path)
    thread.join()
    opened = open_run(tmp_path / "runs" / "latest")
    assert (opened.state, opened.info.exit.detail) == (ExitKind.ABORTED, "interrupted")
    assert not Path(f"/proc/{opened.info.pid}").exists()


def test_a_killed_tool_leaves_no_model_running_and_a_run_that_reads(
    faulty_package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAULTY_OPS", "hang")
    code = (
        "import sys; from pathlib import Path; from aoti_debug.runs.run import runner, options;"
        "runner.run(options.RunOptions(Path(sys.argv[1]), out=Path(sys.argv[2])))"
    )
    root = str(ROOT)
    paths = os.pathsep.join([os.environ["PYTHONPATH"], root])
    tool = subprocess.Popen(
        [sys.executable, "-c", code, str(faulty_package), str(tmp_path / "runs")],
        env={**os.environ, "PYTHONPATH": paths},
    )
    wait_for_launch(tmp_path)
    running = open_run(tmp_path / "runs")
    assert running.state is ExitKind.RUNNING
    tool.kill()
    tool.wait()
    deadline = time.monotonic() + 30
    while open_run(tmp_path / "runs").state is ExitKind.RUNNING and time.monotonic() < deadline:
        time.sleep(0.1)
    opened = open_run(tmp_path / "runs")
    assert opened.state is ExitKind.ABORTED
    assert opened.launches[-1].kernel == ACT


# What never starts leaves nothing behind


def nothing_left(base: Path) -> bool:
    return not (base / "runs").exists()


def test_inputs_that_do_not_fit(faulty_package: Path, tmp_path: Path) -> None:
    torch.save((torch.ones(2, 5),), tmp_path / "five.pt")
    with pytest.raises(ArtifactError, match=r"is float32\[2, 5\]") as caught:
        run(faulty_package, tmp_path, inputs=tmp_path / "five.pt")
    assert caught.value.hint
    assert nothing_left(tmp_path)


def test_latest_stays_where_a_later_run_never_started(faulty_package: Path, tmp_path: Path) -> None:
    first = run(faulty_package, tmp_path, level=0).run.path
    with pytest.raises(TargetError) as caught:
        run(faulty_package, tmp_path, user_code=UserCode(("no_such_module",)))
    assert "ModuleNotFoundError: No module named 'no_such_module'" in str(caught.value)
    assert "--import" in caught.value.hint
    assert (tmp_path / "runs" / "latest").resolve() == first
    assert [p.name for p in (tmp_path / "runs").iterdir() if not p.is_symlink()] == [first.name]


def test_a_module_that_kills_the_process(faulty_package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "suicidal.py").write_text("import os, sys\nprint('goodbye', file=sys.stderr)\nos.abort()\n")
    monkeypatch.chdir(tmp_path)  # where children look for modules first
    with pytest.raises(TargetError) as caught:
        run(faulty_package, tmp_path, user_code=UserCode(("suicidal",)))
    assert str(caught.value).splitlines() == [
        "the model never started: killed by SIGABRT, while torch and --import modules were loaded",
        "  goodbye",
    ]
    assert nothing_left(tmp_path)


@pytest.mark.parametrize(
    ("raised", "hint"),
    [
        ("MemoryError()", "not enough memory: end other programs, or "),
        ("OSError(28, 'full', '/tmp/x')", "not enough disk space: free some space; "),
        (
            "RuntimeError('CUDA error: out of memory\\nSearch for `cudaErrorMemoryAllocation')",
            "not enough device memory: nvidia-smi shows ",
        ),
    ],
)
def test_what_is_exhausted_before_the_model_starts_is_said(
    faulty_package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, raised: str, hint: str
) -> None:
    (tmp_path / "exhausting.py").write_text(f"raise {raised}\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TargetError) as caught:
        run(faulty_package, tmp_path, user_code=UserCode(("exhausting",)))
    (line,) = str(caught.value).splitlines()
    assert line.startswith(f"the model never started: {raised.partition('(')[0]}")
    assert line.endswith(", while torch and --import modules were loaded")
    assert caught.value.hint.startswith(hint)
    assert nothing_left(tmp_path)


LIMITING = """
import resource
from pathlib import Path

lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
limit = (int(lines["VmSize"].split()[0]) << 10) + (8 << 30)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
"""


def test_a_run_of_which_nothing_was_recorded_is_an_error(
    faulty_package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "limiting.py").write_text(LIMITING)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TargetError, match=r"nothing was recorded: .*journal\.bin: Cannot allocate memory") as caught:
        run(
            faulty_package,
            tmp_path,
            user_code=UserCode(("limiting",)),
            environment={"AOTI_DEBUG_JOURNAL_BYTES": "64G"},
        )
    assert caught.value.hint.startswith("end other programs, or ")
    assert nothing_left(tmp_path)
    kept = run(faulty_package, tmp_path, level=0).run.path
    with pytest.raises(TargetError, match="nothing was recorded"):
        run(
            faulty_package,
            tmp_path,
            user_code=UserCode(("limiting",)),
            environment={"AOTI_DEBUG_JOURNAL_BYTES": "64G"},
        )
    assert (tmp_path / "runs/latest").resolve() == kept


def test_a_package_that_does_not_fit_into_the_temporary_directory(
    faulty_package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: DiskUsage(0, 0, 1000))
    with pytest.raises(TargetError, match=r"running faulty\.pt2 needs .* MiB on the disk of .*, and 1000 B are free"):
        run(faulty_package, tmp_path)
    assert nothing_left(tmp_path)


def test_a_package_that_does_not_load(faulty_package: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.pt2"
    with zipfile.ZipFile(faulty_package) as source, zipfile.ZipFile(broken, "w") as target:
        for name in source.namelist():
            target.writestr(name, b"\x7fELF" if name.endswith(".so") else source.read(name))
    with pytest.raises(TargetError, match="while the package was loaded"):
        run(broken, tmp_path, user_code=UserCode(trusted=True))
    assert nothing_left(tmp_path)


def test_a_package_that_is_not_instrumented(tmp_path: Path) -> None:
    package = archives.write(
        tmp_path / "plain.pt2", archives.PACKAGE | {f"{archives.MODEL}c1.wrapper.cpp": b"class AOTInductorModel"}
    )
    with pytest.raises(ArtifactError, match="is a compiled AOTInductor package"):
        run(package, tmp_path)
    assert nothing_left(tmp_path)


def test_a_package_without_source_whose_library_is_none(tmp_path: Path) -> None:
    package = archives.write(tmp_path / "plain.pt2", archives.PACKAGE | {f"{archives.MODEL}c1.wrapper.so": b""})
    with pytest.raises(ArtifactError, match="is no library"):
        run(package, tmp_path)
    assert nothing_left(tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"level": 5}, "level 5 is not one of 0, 1, 2, 3, hash"),
        ({"phase": "during"}, "there is no phase 'during'"),
        ({"calls": 0}, "--calls 0 is less than 1"),
        ({"timeout": 0}, "--timeout 0 is not greater than 0"),
        ({"filters": ["a,b"]}, "--filter 'a,b' contains a comma"),
        ({"modules": ["a,b"]}, "--module 'a,b' contains a comma"),
        ({"lines": ["model.py"]}, "--line 'model.py' is not FILE:LINE"),
        ({"launch": "zero"}, "'zero' is no launch"),
        ({"launch": "0.1,"}, "'' is no launch"),
        ({"flight": -1}, "--flight -1 is out of range"),
        ({"crumb_every": 0}, "--crumb-every 0 is less than 1"),
        ({"poison": 0}, "--poison needs --guards"),
        ({"guards": True, "poison": 256}, "256 is not a byte"),
        ({"user_code": UserCode(libraries=(Path("none.so"),))}, "none.so does not exist"),
    ],
)
def test_options_that_make_no_sense(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        run(tmp_path / "any.pt2", tmp_path, **options)
    assert str(caught.value) == message
    assert caught.value.hint


def test_a_directory_that_cannot_be_written(faulty_package: Path, tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file")
    with pytest.raises(UsageError) as caught:
        run(faulty_package, tmp_path)
    assert str(caught.value) == f"cannot make a directory in {tmp_path / 'runs'}: Not a directory"
    assert "--out DIR" in caught.value.hint
    with pytest.raises(UsageError, match="cannot make a directory in /proc/nothing"):
        runner.run(RunOptions(faulty_package, out=Path("/proc/nothing")))


def test_summaries_that_cannot_be_kept_leave_the_run(
    faulty_package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "truncates.py").write_text(
        "import atexit, os\n"
        "atexit.register(lambda: os.truncate(os.path.join(os.environ['AOTI_DEBUG_RUN'], 'summaries.bin'), 10))\n"
    )
    monkeypatch.chdir(tmp_path)  # where children look for modules first
    result = runner.run(
        RunOptions(faulty_package, level=3, summaries=1, user_code=UserCode(("truncates",)), out=tmp_path / "runs")
    )
    assert "summaries.bin is truncated" in result.lost
    assert result.verdict is None
    assert len(result.run.launches) > 0
    assert result.run.info.timings
