"""TF32 on a GPU: the process of a run, the comparison and the repro multiply as the process that asks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import aoti_debug
from aoti_debug.base.abi import Phase
from aoti_debug.base.machine import torch_settings
from aoti_debug.runs.rundir.run_directory import RunDir

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
PRECISION = "torch.set_float32_matmul_precision('high')"


class Product(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return x @ y


def test_tf32(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, inputs = Product(), tuple(torch.randn(512, 512, device="cuda") for _ in range(2))
    exact = aoti_debug.debug(model, *inputs, level=1, out=tmp_path / "exact")
    with torch_settings.applied({"float32_matmul_precision": "high"}):
        rounded = aoti_debug.debug(model, *inputs, level=1, out=tmp_path / "rounded")
        expected = model(*inputs)
    assert rounded.run.info.torch_settings is not None
    assert rounded.run.info.torch_settings["float32_matmul_precision"] == "high"
    assert not torch.equal(model(*inputs), expected)
    assert torch.equal(product(rounded.run), expected.cpu())
    assert torch.equal(product(exact.run), model(*inputs).cpu())

    assert not aoti_debug.compare(rounded.run.path, out=tmp_path / "compares").is_wrong
    repro = aoti_debug.repro(rounded, launch="0.0", out=tmp_path / "repro").path / "repro.py"
    text = repro.read_text()
    assert PRECISION in text
    assert replayed(repro) == 0
    repro.write_text(text.replace(PRECISION, ""))
    assert replayed(repro) == 10


def product(run: RunDir) -> Tensor:
    (launch,) = run.launches
    tensors = aoti_debug.load_launch(run, launch, Phase.AFTER)
    return next(tensor for name, tensor in tensors.items() if name.startswith("buf")).cpu()


def replayed(script: Path) -> int:
    return subprocess.run([sys.executable, script], check=False).returncode
