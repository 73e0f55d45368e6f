"""aoti_debug.debug: export, build and run in one call."""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.attention.flex_attention import flex_attention

import aoti_debug
from aoti_debug.base.errors import UsageError
from aoti_debug.base.machine import torch_settings
from aoti_debug.runs.diagnosis.findings import NO_FAULT, NONFINITE, FindingKind


class Gathered(nn.Module):
    def forward(self, x: Tensor, index: Tensor, *, scale: Tensor) -> dict[str, Any]:
        return {"count": 3, "rows": torch.relu(x)[index] * scale}


@pytest.mark.slow
def test_outputs_a_fault_and_the_cache(tmp_path: Path) -> None:
    x, scale = torch.randn(4, 3), torch.tensor(2.0)
    with torch_settings.applied({"default_dtype": "float64"}):
        good = aoti_debug.debug(Gathered(), x, torch.tensor([1, 3]), scale=scale, out=tmp_path)
    assert good.run.info.torch_settings is not None
    assert good.run.info.torch_settings["default_dtype"] == "float64"
    assert torch.equal(good.outputs["rows"], x.relu()[[1, 3]] * 2)
    assert good.outputs["count"] == 3
    assert not isinstance(good.outputs["count"], Tensor)
    assert good.verdict is None
    assert good.finding.kind is NO_FAULT
    no_launch_writes_the_number = "NO FAULT 1 launch; values of 1 of 2 outputs recorded, finite"
    assert str(good).splitlines()[0] == no_launch_writes_the_number
    assert any(good.run.path.glob("tensors/*/*/*.safetensors"))
    assert "<iframe" in good._repr_html_()
    with torch_settings.applied({"default_dtype": "float64"}):
        bad = aoti_debug.debug(Gathered(), x, torch.tensor([1, 9]), scale=scale, out=tmp_path)
    assert bad.outputs is None
    assert bad.verdict is not None
    text = str(bad).splitlines()
    assert text[0] == "FAULT index[1] is 9, x has 4 rows"
    assert "test_debug.py:23" in text[1]
    assert bad.package.read_bytes() == good.package.read_bytes()


class Normalized(nn.Module):
    """A row of zeros becomes NaN."""

    def forward(self, x: Tensor) -> Tensor:
        return x / x.sum(-1, keepdim=True)


@pytest.mark.slow
@pytest.mark.parametrize(("level", "kind"), [(1, NONFINITE), (2, NONFINITE), (3, NO_FAULT)])
def test_outputs_that_are_not_finite(tmp_path: Path, level: int, kind: FindingKind) -> None:
    x = torch.ones(4, 3)
    x[2] = 0
    result = aoti_debug.debug(Normalized(), x, level=level, out=tmp_path)
    assert result.finding.kind is kind
    assert result.outputs.isnan().sum() == 3
    (launch,) = result.run.launches
    lines = str(result).splitlines()
    page = html.unescape(result._repr_html_())
    if kind is NO_FAULT:
        assert lines[0] == "NO FAULT 1 launch; values not recorded"
        return
    assert lines[0] == "NOT FINITE 3 of 12 elements of output 0 (buf0) are NaN"
    assert f"  why   0.0 {launch.kernel} leaves 3 NaN in buf0; what it reads for that is finite: x" in lines
    assert lines[-1].startswith(f"  next  aoti-debug triage {result.package} --inputs ")
    assert '<section class="verdict open"' in page
    assert "3 of 12 elements of output 0 (buf0) are NaN</h1>" in page


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
    assert re.fullmatch(r"FAULT an index in cpp_fused_\w+ is out of bounds: it has to be less than \d+", head)
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
