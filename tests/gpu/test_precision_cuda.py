"""Modules of a model on a GPU, rounded in its memory: what they read is given back, also weights."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from torch import nn

from aoti_debug.app.cli.main import group

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.second = nn.Linear(64, 64), nn.LayerNorm(64), nn.Linear(64, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        returned: torch.Tensor = self.second(self.norm(self.first(x)).relu())
        return returned


def test_modules_on_a_gpu_are_rounded(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, x = Layers().eval().cuda(), torch.randn(16, 64, device="cuda")
    program = tmp_path / "model.pt2"
    with torch.no_grad():
        torch.export.save(torch.export.export(model, (x,)), program)
        expected = model(x)
        narrow = model.bfloat16()(x.bfloat16()).float()
    command = ["precision", str(program), "--tolerance", "1", "--out", str(tmp_path / "replays"), "--json"]
    result = CliRunner().invoke(group, command)
    found = json.loads(result.stdout)
    assert result.exit_code == (8 if found["unrounded_inside"] else 0), result.output
    assert {part["name"] for part in found["parts"]} >= {"first", "second"}
    assert found["not_rounded"] == []
    assert found["noise"] == 0
    real = float((narrow - expected).norm() / expected.norm())
    assert real / 4 < found["all"]["error"] < real * 4
    twice = [*command[:-1], "--calls", "2", "--by", "launch", "--json"]
    parts = json.loads(CliRunner().invoke(group, twice).stdout)["parts"]
    assert all(part["error"] == 0 for part in parts if part["name"].startswith("0."))


def test_a_model_in_bfloat16_is_rounded_to_float8(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, x = Layers().eval().cuda().bfloat16(), torch.randn(16, 64, device="cuda").bfloat16()
    program = tmp_path / "model.pt2"
    with torch.no_grad():
        torch.export.save(torch.export.export(model, (x,)), program)
    words = ["--to", "float8_e4m3fn", "--tolerance", "0.001", "--out", str(tmp_path / "replays"), "--json"]
    result = CliRunner().invoke(group, ["precision", str(program), *words])
    assert result.exit_code == 1, result.output
    found = json.loads(result.stdout)
    assert found["not_rounded"] == []
    assert {dtype for part in found["parts"] for dtype in part["dtypes"]} <= {"bfloat16", "float32"}
    assert all(0.001 < part["error"] < 0.2 for part in found["parts"])
    assert found["proposal"] is None  # three bits of a fraction are not enough anywhere


@pytest.mark.parametrize("to", ["bfloat16", "float8_e4m3fn"])
def test_a_proposal_is_confirmed_by_a_build(tmp_path: Path, to: str) -> None:
    torch.manual_seed(0)
    model, x = Layers().eval().cuda(), torch.randn(16, 64, device="cuda")
    program = tmp_path / "model.pt2"
    with torch.no_grad():
        torch.export.save(torch.export.export(model, (x,)), program)
    words = ["--to", to, "--tolerance", "0.3", "--build", "--out", str(tmp_path / "replays"), "--json"]
    result = CliRunner().invoke(group, ["precision", str(program), *words])
    assert result.exit_code == 0, result.output
    built = json.loads(result.stdout)["built"]
    assert (built["failure"], built["left"]) == (None, [])
    assert {"first", "norm", "second"} <= set(built["modules"])
    assert 1e-4 < built["error"] < 0.3
    narrow = torch.export.load(built["program"]).module()(x)
    expected = model(x)
    eager = float((narrow - expected).norm() / expected.norm())
    assert built["error"] / 4 < eager < built["error"] * 4
