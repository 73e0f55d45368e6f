"""aoti_debug.triage, aoti_debug.compare and aoti_debug.repro: of models in memory, of files, and of runs."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import aoti_debug
from aoti_debug.base.errors import ArtifactError, RunDirError, UsageError
from aoti_debug.compare.measure.verdicts import LaunchVerdict
from aoti_debug.runs.diagnosis.findings import FAULT, NONFINITE

X = torch.linspace(-1, 1, 8).reshape(2, 4)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


class Ratio(nn.Module):
    def forward(self, x: Tensor, *, scale: Tensor) -> Tensor:
        y = torch.relu(x) * scale
        return y / y


@pytest.mark.slow
def test_a_module(here: Path) -> None:
    found = aoti_debug.triage(Ratio(), X, scale=torch.tensor(2.0), out="found")
    assert found.finding.kind == NONFINITE
    assert found.finding.where is not None
    assert found.finding.where.frame is not None
    assert found.finding.where.frame.place == f"{__file__}:{Ratio.forward.__code__.co_firstlineno + 2}"
    assert found.directory.path.parent == here / "found"
    assert str(found).startswith("NOT FINITE ")
    assert str(found).endswith(f"report   {found.report}")
    assert "<iframe" in found._repr_html_()
    command = found.directory.record.command
    assert command[:2] == ("aoti-debug", "triage")
    assert [Path(word).name for word in command[2:]] == ["program.pt2", "--inputs", "inputs.pt"]
    written = aoti_debug.repro(found, out="repro")
    assert written.launch == found.finding.where.launch
    assert str(written).startswith("repro\n  launch 0.")

    compared = aoti_debug.compare(torch.export.load(command[2]), filters=["cpp_*"])
    assert not compared.is_wrong
    assert {row.verdict for row in compared.comparison.rows} == {LaunchVerdict.OK}
    assert str(compared).splitlines()[-1].startswith("CLEAN ")
    assert "<iframe" in compared._repr_html_()
    assert aoti_debug.repro(compared.run, launch="0.0", out="again").run == compared.run.path

    rounding = aoti_debug.RoundingOptions(by="launch", tolerance=1e9)
    rounded = aoti_debug.precision(compared.run.path, to="float8_e5m2", rounding=rounding, out="rounded")
    assert len(list((here / "rounded").glob("2*"))) == 1
    assert {part.part.name for part in rounded.rounded.parts} <= {launch.id for launch in compared.run.launches}
    assert rounded.rounded.run.required_package == compared.run.required_package
    assert rounded.kept in ((), None)
    assert "all at once" in str(rounded)
    with pytest.raises(UsageError, match="by='line' is not known"):
        aoti_debug.precision(compared.run.path, rounding=aoti_debug.RoundingOptions(by="line"))


def test_a_file_and_a_fault(faulty_package: Path, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAULTY_OPS", "raise")
    found = aoti_debug.triage(faulty_package, X + 1)
    assert (found.finding.kind, found.finding.what) == (FAULT, "ValueError: the answer is not 42")
    assert found.repro is not None
    assert str(faulty_package) in found.directory.record.command
    latest = aoti_debug.repro(out="latest")
    assert (latest.kernel, latest.fault) == ("faulty::act.default", "ValueError: the answer is not 42")
    monkeypatch.setenv("FAULTY_OPS", "")
    of_file = aoti_debug.repro(faulty_package, X + 1, launch="faulty::act.default", out="file")
    assert (of_file.kernel, of_file.fault, of_file.tensors) == ("faulty::act.default", "", 2)


def test_what_is_no_model(here: Path) -> None:
    with pytest.raises(ArtifactError, match=r"none\.pt2 does not exist"):
        aoti_debug.triage("none.pt2")
    with pytest.raises(RunDirError, match="no runs in "):
        aoti_debug.repro()
    with aoti_debug.record() as nothing:
        pass
    with pytest.raises(UsageError, match="nothing was recorded in the block"):
        aoti_debug.repro(nothing)
    assert list(here.iterdir()) == []


NAMES = ("compare", "repro", "triage")


@pytest.mark.parametrize("name", NAMES)
def test_a_folder_of_modules_is_called_as_its_function(name: str, here: Path) -> None:
    module: Any = importlib.import_module(f"aoti_debug.{name}")
    assert getattr(aoti_debug, name) is module
    assert callable(module)
    assert module.__path__
    with pytest.raises(UsageError, match="int is no model") as caught:
        module(3)
    assert "torch.nn.Module" in caught.value.hint
    assert list(here.iterdir()) == []


def test_nothing_is_imported_to_name_them() -> None:
    code = "import sys, aoti_debug; aoti_debug.triage; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
