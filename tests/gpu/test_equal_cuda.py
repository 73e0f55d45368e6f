"""`aoti-debug equal` of Triton kernels: settings that make them round as eager does."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from aoti_debug.compare.bisect.equal import EqualOptions, find_equal
from aoti_debug.compare.bisect.equal_result import EqualEnd
from aoti_debug.instrument.frontend.protocol.caller_settings import has_setting

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


class Gated(nn.Module):
    """Fused operators in bfloat16, between which eager rounds."""

    def forward(self, x: Tensor, gate: Tensor) -> Tensor:
        return x * gate * 0.7 + gate


class Quotient(nn.Module):
    """A quotient in float32, which Triton may round otherwise than eager."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return x / y + 1


def test_a_quotient_is_made_equal_by_numerics_or_a_fallback(tmp_path: Path) -> None:
    torch.manual_seed(0)
    inputs = tuple(torch.randn(64, 128, device="cuda") for _ in range(2))
    program = tmp_path / "program.pt2"
    torch.export.save(torch.export.export(Quotient(), inputs), program)
    found = find_equal(EqualOptions(program=program, out=tmp_path, pairs=0))
    if found.end is EqualEnd.ALREADY:
        return
    assert found.end is EqualEnd.EQUAL, found.reason
    if has_setting("eager_numerics.division_rounding"):
        assert found.kind == "switch"
        assert any("eager_numerics" in line for line in found.lines)
    else:
        assert found.kind == "rounding"


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
