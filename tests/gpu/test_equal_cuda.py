"""`aoti-debug equal` of Triton kernels: settings that make them round as eager does."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from aoti_debug.compare.bisect.equal import EqualOptions, find_equal
from aoti_debug.compare.bisect.equal_result import EqualEnd

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


class Gated(nn.Module):
    """Fused operators in bfloat16, between which eager rounds."""

    def forward(self, x: Tensor, gate: Tensor) -> Tensor:
        return x * gate * 0.7 + gate


def test_casts_between_fused_operators_are_a_switch(tmp_path: Path) -> None:
    torch.manual_seed(0)
    inputs = tuple(torch.randn(64, 128, device="cuda").bfloat16() for _ in range(2))
    program = tmp_path / "program.pt2"
    torch.export.save(torch.export.export(Gated(), inputs), program)
    found = find_equal(EqualOptions(program=program, out=tmp_path, pairs=7))
    assert found.end is EqualEnd.EQUAL
    assert found.kind == "switch"
    assert "--inductor-config emulate_precision_casts=True" in found.lines
    assert found.price is not None
    assert found.price.pairs == 7
