"""Every command that reads a run directory opens it once and diagnoses it once."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from aoti_debug.app.cli import main
from aoti_debug.base.machine.processes import python_process
from aoti_debug.package.manifest import Kind
from aoti_debug.runs.rundir.formats import shared_files
from aoti_debug.runs.rundir.run_directory import RunDir
from tests import crashed_run, opened_runs
from tests.opened_runs import Counts

RUN = f"20261120-231501-{crashed_run.NOBODY}"


@pytest.fixture
def counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Counts:
    """Of a run that died in its second launch and whose inputs a flight recorder still holds."""
    monkeypatch.setattr(shared_files, "DIRECTORY", tmp_path)
    path = crashed_run.crashed(tmp_path, crashed_run.both_launches())
    assert (path / shared_files.FLIGHT_RECORDER).exists()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AOTI_DEBUG_DIR", "runs")
    return opened_runs.counted(monkeypatch)


@pytest.mark.parametrize(
    "arguments", [("show",), ("show", "--json"), ("show", "s*"), ("show", "first"), ("show", "0.1")], ids=" ".join
)
def test_show(counts: Counts, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    assert main.run(list(arguments)) == 0
    assert (counts.opened, counts.journals, counts.diagnosed) == ({RUN: 1}, {RUN: 1}, {RUN: 1})
    assert not (tmp_path / "runs" / RUN / shared_files.FLIGHT_RECORDER).exists(), "the tensors are rescued"


def test_show_tells_the_guilty_launch_and_what_was_rescued(counts: Counts, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["show"]) == 0
    out = capsys.readouterr().out
    assert "in launch 0.1  second" in out
    assert "GUILTY" in out
    assert main.run(["show", "0.0"]) == 0
    assert "before_launch_first_x_cpu.safetensors" in capsys.readouterr().out


def test_repro(counts: Counts, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["repro", "second", "-o", "repro"]) == 0
    assert "  it ended in SIGSEGV (Segmentation fault)\n" in capsys.readouterr().out
    assert (counts.opened, counts.journals, counts.diagnosed) == ({RUN: 1}, {RUN: 1}, {RUN: 1})


@pytest.mark.parametrize("arguments", [("report", RUN, "-o", "page.html"), ("bundle", RUN)], ids=" ".join)
def test_a_page_and_a_bundle(counts: Counts, arguments: tuple[str, ...]) -> None:
    assert main.run(list(arguments)) == 0
    assert (counts.opened, counts.journals, counts.diagnosed) == ({RUN: 1}, {RUN: 1}, {RUN: 1})
    assert set(counts.dataflows.values()) == {1}


WITHOUT_TORCH = """
import sys
sys.modules["torch"] = sys.modules["torchgen"] = None  # importing them raises ImportError
from aoti_debug.app.cli import main
sys.exit(main.run(sys.argv[1:]))
"""


def run_without_torch(words: Sequence[str], folder: Path) -> None:
    environment = python_process.environment(os.environ)
    command = [sys.executable, "-c", WITHOUT_TORCH, *words]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ("show",),
        ("show", "0.0"),
        ("report", "-o", "page.html"),
        ("bundle", "-o", "b.zip"),
        ("repro", "KERNEL", "-o", "r"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_what_reads_saved_tensors_does_without_torch(
    saved: Callable[[str], RunDir], tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    run = saved("half")
    kernel = next(launch.kernel for launch in run.launches if launch.site.kind is Kind.CPP)
    words = [kernel if word == "KERNEL" else word for word in arguments]
    place = [str(run.path)] if words[0] in ("report", "bundle") else ["--run", str(run.path)]
    run_without_torch([*words, *place], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(("model", "kinds"), [("half", {Kind.SHIM_OUT, Kind.SHIM_ALLOC}), ("custom", {Kind.PROXY})])
def test_operators_are_replayed_without_torch(
    saved: Callable[[str], RunDir], tmp_path: Path, model: str, kinds: set[Kind]
) -> None:
    run = saved(model)
    launches = {launch.kernel: launch for launch in reversed(run.launches) if launch.site.kind in kinds}
    assert launches
    for kernel, launch in launches.items():
        words = ("repro", kernel, "--launch", launch.id, "-o", launch.id, "--run", str(run.path))
        run_without_torch(words, tmp_path)
        assert f"torch.ops.{launch.site.op.replace('::', '.')}" in (tmp_path / launch.id / "repro.py").read_text()


def test_run(
    faulty_package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAULTY_OPS", "segv")
    monkeypatch.chdir(tmp_path)
    counts = opened_runs.counted(monkeypatch)
    assert main.run(["run", str(faulty_package), "--flight", "2"]) == 1
    assert "rescued" in capfd.readouterr().out
    assert (list(counts.opened.values()), list(counts.journals.values())) == ([1], [1])
    assert list(counts.diagnosed.values()) == [1]
