"""aoti_debug.debug: export, build and run in one call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.attention.flex_attention import flex_attention

import aoti_debug
from aoti_debug.base.errors import UsageError


class Gathered(nn.Module):
    def forward(self, x: Tensor, index: Tensor, *, scale: Tensor) -> dict[str, Any]:
        return {"count": 3, "rows": torch.relu(x)[index] * scale}


@pytest.mark.slow
def test_outputs_a_fault_and_the_cache(tmp_path: Path) -> None:
    x, scale = torch.randn(4, 3), torch.tensor(2.0)
    good = aoti_debug.debug(Gathered(), x, torch.tensor([1, 3]), scale=scale, out=tmp_path)
    assert torch.equal(good.outputs["rows"], x.relu()[[1, 3]] * 2)
    assert good.outputs["count"] == 3
    assert not isinstance(good.outputs["count"], Tensor)
    assert good.verdict is None
    assert str(good).startswith("NO FAULT ")
    assert any(good.run.path.glob("tensors/*/*/*.safetensors"))
    assert "<iframe" in good._repr_html_()
    bad = aoti_debug.debug(Gathered(), x, torch.tensor([1, 9]), scale=scale, out=tmp_path)
    assert bad.outputs is None
    assert bad.verdict is not None
    text = str(bad).splitlines()
    assert text[0].startswith("FAULT index out of bounds")
    assert "test_debug.py:19" in text[1]
    assert bad.package.read_bytes() == good.package.read_bytes()


class Attention(nn.Module):
    """torch.export.save refuses the function that modifies its scores."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("bias", torch.randn(64))

    def forward(self, q: Tensor, offset: Tensor) -> Tensor:
        bias = self.bias
        result: Tensor = flex_attention(q, q, q, score_mod=lambda s, b, h, i, j: s + bias[offset[j] + i])
        return result


@pytest.mark.slow
def test_a_program_that_torch_cannot_save(tmp_path: Path) -> None:
    offset = torch.arange(32) % 8
    offset[20] = 200_000_000_000
    bad = aoti_debug.debug(Attention(), torch.randn(1, 1, 32, 16), offset, out=tmp_path)
    assert (bad.outputs, bad.program) == (None, None)
    assert bad.package.is_file()
    head, place, *_ = str(bad).splitlines()
    assert head.startswith("FAULT index out of bounds")
    assert "flex_attention" in place
    assert "test_debug.py" in place


class Branching(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x if x.sum() > 0 else -x


def test_a_model_that_cannot_be_exported(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="the model cannot be exported: ") as caught:
        aoti_debug.debug(Branching(), torch.ones(3), out=tmp_path)
    assert "torch.export.export" in caught.value.hint
    with pytest.raises(UsageError, match="level 9 is not one of"):
        aoti_debug.debug(Branching(), torch.ones(3), level=9, out=tmp_path)
    assert not any(tmp_path.iterdir())
