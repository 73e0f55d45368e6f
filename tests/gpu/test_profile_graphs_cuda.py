"""Models that a CUDA graph cannot capture, and small ones against themselves, on a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from aoti_debug.builder import build as builder
from aoti_debug.cli import main

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.slow,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


class Rows(nn.Module):
    """Waits for the GPU, to know how many rows there are."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.nonzero((x * 2).relu()) + 1


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rows")
    program = torch.export.export(Rows(), (torch.randn(8, 8, device="cuda"),))
    torch.export.save(program, folder / "model.pt2")
    return builder.build(folder / "model.pt2", output=folder / "model.instrumented.pt2")


def test_a_model_that_cannot_be_captured(package: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["profile", str(package), "--cuda-graph", "--calls", "3", "--out", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    print(error)
    assert "a CUDA graph cannot capture aoti_torch_cuda_nonzero (launch " in error
    assert "hint: without --cuda-graph its calls are measured" in error


def test_its_calls_can_be_measured(package: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["profile", str(package), "--calls", "3", "--out", str(tmp_path), "--against", str(package)]
    assert main.run(command) in (0, 1)
    out = capsys.readouterr().out
    print(out)
    assert "aoti_torch_cuda_nonzero" in out
    assert "by its profiler; with it a call takes" in out
