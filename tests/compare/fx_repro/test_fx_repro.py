"""FX repros of recorded launches: of chains of operators without a compiler, and of every launch of compiled models."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from aoti_debug.app.cli.main import group
from aoti_debug.base.errors import UsageError
from aoti_debug.base.machine.processes import python_process
from aoti_debug.compare.fx_repro.fx_repro import FxExtra, write_fx_repro
from aoti_debug.repro.repro import ReproOptions
from aoti_debug.runs.run import runner
from aoti_debug.runs.run.options import RunOptions
from aoti_debug.runs.rundir.launch import Launch, LaunchStatus
from aoti_debug.runs.rundir.run_directory import RunDir
from tests.compare import chains

ADD = "aten.add.Tensor"
REFUSALS = (
    "is a Triton kernel of the user's own",
    "cond has no form",
    "while_loop has no form",
    "draws random numbers, and would draw other ones",
    "no node holds what it writes",
    "it writes no tensor",
    "it depends on",
    "only parts of",
)


@pytest.fixture(autouse=True)
def _forked() -> Iterator[None]:
    with python_process.forking_from(["torch"]):
        yield


def written(run: RunDir, launch: Launch, folder: Path) -> int:
    return write_fx_repro(ReproOptions(launch.kernel, run=run.path, launch=launch.id, output=folder / launch.id)).code


@pytest.mark.parametrize(("wrong", "code"), [(-1, 0), (1, 10)])
def test_it_computes_what_was_recorded_or_says_where_it_does_not(tmp_path: Path, wrong: int, code: int) -> None:
    run = chains.chain(tmp_path / "runs", (ADD,) * 4, wrong=wrong, step=2)
    repro = write_fx_repro(ReproOptions("cpp_fused_add_1", run=run.path, output=tmp_path / "repro"))
    assert (repro.code, repro.calls, repro.inputs, repro.outputs) == (code, 2, 1, 1)
    assert repro.lines[-1] == ("as recorded" if code == 0 else "NOT as recorded")
    done = subprocess.run([sys.executable, "-I", repro.path / "repro.py"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.splitlines(), done.stderr) == (code, list(repro.lines), "")
    assert sorted(path.name for path in repro.path.iterdir()) == ["repro.py", "tensors.pt"]


def test_what_was_wrong_is_in_the_issue_text_and_the_minifier_has_its_script(tmp_path: Path) -> None:
    run = chains.chain(tmp_path / "runs", (ADD,) * 4, wrong=1, step=2)
    path = tmp_path / "repro"
    repro = write_fx_repro(ReproOptions("cpp_fused_add_1", run=run.path, output=path), list(FxExtra))
    assert repro.files == (path / "repro.py", path / "minifier_launcher.py", path / "issue.md")
    text = (path / "issue.md").read_text()
    assert "**Observed**: eager against what the kernel wrote: node_3: DIFFERS: Tensor-likes are not close!" in text
    assert "- torch " in text
    assert str(tmp_path) not in text


def test_random_numbers_are_refused_and_leave_nothing(tmp_path: Path) -> None:
    run = chains.chain(tmp_path / "runs", (ADD, "aten.bernoulli.default"))
    with pytest.raises(UsageError, match=r"aten\.bernoulli\.default draws random numbers"):
        write_fx_repro(ReproOptions("cpp_fused_add_1", run=run.path, output=tmp_path / "out" / "repro"))
    assert list((tmp_path / "out").iterdir()) == []


OPS = """
import os, torch
from torch.library import Library
library = Library("fxtest", "FRAGMENT")
library.define("fails(Tensor x) -> Tensor")
library.define("dies(Tensor x) -> Tensor")
def fails(x):
    raise RuntimeError("no file /home/u/secret/table.bin")
library.impl("fails", fails, "CPU")
library.impl("dies", lambda x: os.abort(), "CPU")
"""


@pytest.mark.parametrize(
    ("operator", "code", "line"),
    [
        ("fails", 1, "RuntimeError: no file /home/u/secret/table.bin"),
        ("dies", -6, "the script ended with SIGABRT"),
    ],
)
def test_operators_that_fail_leave_the_repro(
    operator: str, code: int, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = chains.chain(tmp_path / "runs", (ADD, f"fxtest.{operator}.default"))
    (tmp_path / "fx_ops.py").write_text(OPS)
    info = json.loads((run.path / "run.json").read_text())
    (run.path / "run.json").write_text(json.dumps({**info, "imports": ["fx_ops"]}))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    repro = write_fx_repro(ReproOptions("cpp_fused_add_1", run=run.path, output=tmp_path / "repro", trusted=True))
    assert (repro.code, repro.lines[-1]) == (code, line)
    assert (repro.path / "tensors.pt").is_file()
    with pytest.raises(UsageError, match=f"fxtest.{operator}.default does not come with it"):
        write_fx_repro(
            ReproOptions("cpp_fused_add_1", run=run.path, output=tmp_path / "other", trusted=True), [FxExtra.ISSUE]
        )


def test_of_a_launch_that_crashed_there_are_its_inputs(
    faulty_package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAULTY_OPS", "segv")
    result = runner.run(RunOptions(faulty_package, level=1, phase="both", filters=(), out=tmp_path / "runs"))
    assert result.verdict is not None
    assert result.verdict.launch is not None
    launch = result.verdict.launch
    assert launch.status is LaunchStatus.OPEN
    repro = write_fx_repro(
        ReproOptions(launch.kernel, run=result.run.path, launch=launch.id, output=tmp_path / "repro")
    )
    assert (repro.code, repro.lines[-1]) == (-signal.SIGSEGV, "the script ended with SIGSEGV")
    recorded = torch.load(repro.path / "tensors.pt", weights_only=True)
    assert len(recorded["inputs"]) == repro.inputs > 0
    assert recorded["outputs"] == {}


def test_an_existing_folder_is_not_overwritten(tmp_path: Path) -> None:
    run = chains.chain(tmp_path / "runs", (ADD,) * 2)
    (tmp_path / "repro").mkdir()
    with pytest.raises(UsageError, match="already exists"):
        write_fx_repro(ReproOptions("cpp_fused_add_1", run=run.path, output=tmp_path / "repro"))


def test_the_command_line(tmp_path: Path) -> None:
    run = chains.chain(tmp_path / "runs", (ADD,) * 2)
    words = ["repro", "cpp_fused_add_1", "--run", str(run.path), "-o", str(tmp_path / "repro")]
    refused = CliRunner().invoke(group, [*words, "--fx", "--single-file"])
    assert isinstance(refused.exception, UsageError)
    result = CliRunner().invoke(group, [*words, "--issue"])
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines() == [
        str(tmp_path / "repro"),
        "  launch 0.1: 1 operator, 1 input, 1 output",
        f"  from {run.path.name}; in eager:",
        "    node_1: equal, bit for bit",
        "    as recorded",
        f"next: python {tmp_path / 'repro' / 'repro.py'}",
        f"next: less {tmp_path / 'repro' / 'issue.md'}",
    ]


@pytest.mark.parametrize("name", ["mixed", "mutation", "views", "sizes", "half", "control"])
def test_every_launch_of_a_model_is_written_or_refused_with_a_reason(
    saved: Callable[[str], RunDir], name: str, tmp_path: Path
) -> None:
    run = saved(name)
    codes: dict[str, int | str] = {}
    for launch in run.launches:
        try:
            codes[launch.id] = written(run, launch, tmp_path)
        except UsageError as error:
            codes[launch.id] = str(error)
    refused = [text for text in codes.values() if isinstance(text, str)]
    assert [text for text in refused if not any(reason in text for reason in REFUSALS)] == []
    assert {code for code in codes.values() if not isinstance(code, str)} == {0}
    assert len(refused) <= len(codes) / 2
