"""Inspectors in a model, found again in its package."""

from __future__ import annotations

import contextlib
import io
import subprocess
import sys
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
import torch

from aoti_debug.app.cli import main
from aoti_debug.instrument.builder import build as builder
from aoti_debug.runs.rundir.run_directory import open_run
from tests import inspected_model
from tests.once import once
from tests.paths import ROOT


@dataclass(frozen=True)
class Inspected:
    """The package of the model, and what its inspectors print in eager."""

    package: Path
    eager: str


@pytest.fixture(scope="module")
def inspected(tmp_path_factory: pytest.TempPathFactory) -> Inspected:

    def make(folder: Path) -> Inspected:
        model = inspected_model.Model().eval()
        inputs = (torch.ones(2, 4),)
        with torch.no_grad():
            torch.export.save(torch.export.export(model, inputs), folder / "model.pt2")
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                model(*inputs)
        package = builder.build(folder / "model.pt2", output=folder / "inspected.pt2")
        return Inspected(package, printed.getvalue())

    return once(tmp_path_factory, "inspected", make)


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("AOTI_DEBUG_DIR", raising=False)
    monkeypatch.delenv("RANK", raising=False)
    Path("my.py").write_text(
        "from tests.inspected_model import show\n"
        "def f(tensor, launch):\n    show(tensor, launch.place)\n"
        "def throw(tensor, launch):\n    raise ValueError('no good')\n"
    )


def test_tags_are_found_again(inspected: Inspected, capfd: pytest.CaptureFixture[str]) -> None:
    lines = inspected.eager.splitlines()
    for tag, count in (("attn*", 1), ("layers.?", 2), ("*", 7)):
        assert main.run(["run", str(inspected.package), "--inspect", "my.py:f", "--tag", tag]) == 0
        found = [line for line in capfd.readouterr().out.splitlines() if " forward " in line]
        # a function of the command line has ranks of its own, so that it is called on `second`, too
        expected = [line for line in lines if fnmatchcase(line.split()[0], tag)]
        assert [line for line in found if not line.startswith("second")] == expected
        assert len(expected) == count


def test_the_functions_of_the_model(inspected: Inspected) -> None:
    code = f"""
import sys; sys.path.insert(0, {str(ROOT)!r})
import torch, aoti_debug
from tests import inspected_model
kept = inspected_model.Model()
with aoti_debug.inspect({str(inspected.package)!r}) as model:
    model(torch.ones(2, 4))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == inspected.eager


def test_ranks(inspected: Inspected, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    command = ["run", str(inspected.package), "--inspect", "my.py:f", "--tag", "attn*", "--ranks", "1,2"]
    assert main.run(command) == 0
    out, err = capfd.readouterr()
    assert "attn.0" not in out
    assert err.splitlines()[-1] == "warning: the inspector is not called: this is rank 0, not 1,2"
    assert {"--ranks", "1,2"} <= set(open_run().info.command)
    monkeypatch.setenv("RANK", "2")
    assert main.run(command) == 0
    assert "attn.0 forward 0" in capfd.readouterr().out


def test_an_error_names_the_tag(inspected: Inspected, capfd: pytest.CaptureFixture[str]) -> None:
    assert main.run(["run", str(inspected.package), "--inspect", "my.py:throw", "--tag", "mlp"]) == 1
    stopped = next(line for line in capfd.readouterr().out.splitlines() if line.startswith("STOPPED"))
    assert stopped.startswith("STOPPED the inspector my.py:throw raised ValueError: no good, in 0.")
    assert ", tag mlp" in " ".join(open_run().info.exit.detail.split())


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--tag", "attn*"], "error: --tag needs --inspect"),
        (["--inspect", "my.py:f", "--ranks", "0,x"], "error: --ranks 0,x is not numbers with commas between them"),
    ],
)
def test_bad_options(inspected: Inspected, capfd: pytest.CaptureFixture[str], words: list[str], problem: str) -> None:
    assert main.run(["run", str(inspected.package), *words]) == 2
    assert capfd.readouterr().err.splitlines()[0] == problem


def test_a_tag_that_no_inspector_has(inspected: Inspected, capfd: pytest.CaptureFixture[str]) -> None:
    assert main.run(["run", str(inspected.package), "--inspect", "my.py:f", "--tag", "nosuch"]) == 0
    warning = capfd.readouterr().err.split("warning: ")[1].splitlines()
    assert warning[:2] == ["no tag matches nosuch; the package has:", "  attn.0"]
