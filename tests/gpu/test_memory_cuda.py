"""`aoti-debug memory` on a CUDA device: torch's own counter, and the snapshot."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest
import torch
from torch import nn

from aoti_debug.app.cli import main

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def test_the_peak_is_that_of_the_allocator(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.LayerNorm(1024), nn.Linear(1024, 256)).cuda().eval()
    with torch.no_grad():
        torch.export.save(torch.export.export(model, (torch.randn(512, 256, device="cuda"),)), tmp_path / "model.pt2")
    assert (
        main.run(["memory", str(tmp_path / "model.pt2"), "--calls", "3", "--out", str(tmp_path / "out"), "--json"]) == 0
    )
    found = json.loads(capsys.readouterr().out)
    last = found["measured"][-1]
    assert found["peak"]["bytes"] == pytest.approx(last["peak_allocated"] - last["allocated"], rel=0.01)
    assert found["measured"][1]["allocated"] == last["allocated"]
    with open(found["snapshot"], "rb") as file:
        assert pickle.load(file)["device_traces"]
