"""A kernel that never ends, and inputs that the flight recorder has no room for: a second run saves them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from aoti_debug.app.cli import main
from tests.built_model import Built

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def test_a_hang_has_a_repro(
    hanging: Built, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AOTI_DEBUG_FLIGHT_BYTES", "0")
    x = torch.rand(4, 256, device="cuda")
    torch.save((x, torch.zeros(1, dtype=torch.int32, device="cuda")), "inputs.pt")
    command = ["triage", str(hanging.package), "--inputs", "inputs.pt", "--timeout", "10", "--json"]
    assert main.run(command) == 1
    finding = json.loads(capsys.readouterr().out)
    assert finding["kind"] == "hang"
    said = (*finding["evidence"], *finding["warnings"])
    assert finding["repro"], said
    saved = [load_file(path) for path in Path(finding["repro"]).glob("tensors/before_*.safetensors")]
    shapes = {name: tuple(tensor.shape) for file in saved for name, tensor in file.items()}
    read = [tensor for file in saved for tensor in file.values() if tensor.shape == x.shape]
    assert any(torch.allclose(tensor, x.sin().cpu(), atol=1e-5) for tensor in read), (shapes, said)
