"""Models that a CUDA graph cannot capture, and models against themselves, on a GPU."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from aoti_debug.app.cli import main
from aoti_debug.views.profile import profile
from tests.built_model import Built

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.slow,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.fixture(scope="module")
def package(build: Callable[[str], Built]) -> Path:
    """That of a model which waits for the GPU."""
    return build("rows").package


@pytest.fixture
def two_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profile, "ROUNDS", 2)


def test_a_model_that_cannot_be_captured(package: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["profile", str(package), "--cuda-graph", "--calls", "3", "--out", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    print(error)
    assert "a CUDA graph cannot capture aoti_torch_cuda_nonzero (launch " in error
    assert "hint: without --cuda-graph its calls are measured" in error


@pytest.mark.usefixtures("two_rounds")
def test_its_calls_can_be_measured(package: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["profile", str(package), "--calls", "3", "--out", str(tmp_path), "--against", str(package), "--wide"]
    assert main.run(command) in (0, 1)
    out = capsys.readouterr().out
    print(out)
    assert "aoti_torch_cuda_nonzero" in out
    assert "by its profiler; with it a call takes" in out


@pytest.mark.usefixtures("two_rounds")
def test_an_older_model_that_cannot_be_captured(
    build: Callable[[str], Built], package: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is said before the newer one is compared, and names the model."""
    new = build("two_specialisations").package
    command = ["profile", str(new), "--cuda-graph", "--calls", "3", "--out", str(tmp_path), "--against", str(package)]
    assert main.run(command) == 2
    error = capsys.readouterr().err
    print(error)
    assert f"{package.resolve().name}: a CUDA graph cannot capture aoti_torch_cuda_nonzero (launch " in error


@pytest.mark.usefixtures("two_rounds")
def test_replays_against_those_of_an_older_model(
    build: Callable[[str], Built], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    package = str(build("two_specialisations").package)
    command = ["profile", package, "--cuda-graph", "--calls", "3", "--out", str(tmp_path), "--against", package]
    assert main.run([*command, "--json"]) in (0, 1)
    found = json.loads(capsys.readouterr().out)
    print(json.dumps(found["against"], indent=1))
    assert (found["replays"], found["against"]["rounds"]) == (True, 2)
    launched = [launch["kernel"] for launch in found["launches"]]
    compared = [site["kernel"] for change in found["against"]["launches"] for site in change["new_sites"]]
    assert sorted(compared) == sorted(launched)
    assert found["against"]["unpaired"] == []
    for change in (found["against"]["call"], *found["against"]["launches"]):
        assert min(*change["old"], *change["new"]) > 0
