"""Minimisations of programs on a GPU."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from aoti_debug.triage.minify.minify import minify
from aoti_debug.triage.minify.start_parts import MinifyOptions

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.slow,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


class Share(nn.Module):
    """0/0 in rows that are all zeros."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        rows = x.clamp(min=0) * torch.tensor([0.0, 1.0], device=x.device)[:, None]
        return self.linear(rows / rows.sum(-1, keepdim=True)).relu()


def test_a_division_of_zero_by_zero(tmp_path: Path) -> None:
    torch.manual_seed(0)
    program = tmp_path / "program.pt2"
    model = Share().cuda().eval()
    torch.export.save(torch.export.export(model, (torch.rand(2, 16, device="cuda"),)), program)
    found = minify(MinifyOptions(program, out=tmp_path / "out"))
    assert found.smallest is not None, found
    assert found.smallest.operators == ("aten.div.Tensor",)
    done = subprocess.run([sys.executable, found.smallest.script], capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert "are NaN; expected: numbers" in done.stderr
