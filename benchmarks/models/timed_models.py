"""The models that the benchmarks time.

* blocks: four blocks of Linear + GELU + LayerNorm, batch 2048, fp32; width 1024 on the CPU, 4096 on CUDA.
* launches: a chain of 600 small reductions, each one kernel (launch-bound on CUDA).
* uneven: generated kernels over tensors of very different sizes, and a product of large matrices; n = 1024 on CUDA, 128
  on the CPU.
* mixed: each form in which generated code launches kernels, once or a few times: generated kernels, calls of the C shim
  with an out argument or with results, calls in place, calls of the proxy executor.

All but launches are models of the tests (tests/models.py).
"""

from __future__ import annotations

import torch
from torch import nn
from torch.export import ExportedProgram

from tests import models


class Launches(nn.Module):
    def __init__(self, pairs: int) -> None:
        super().__init__()
        self.pairs = pairs

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(self.pairs):
            x = (3 * (3 * x).softmax(0)).softmax(1)  # along another axis each time: never one kernel
        return x


def export(name: str, device: str) -> ExportedProgram:
    """Exports a benchmark model by name ("blocks", "launches", "uneven" or "mixed") on "cpu" or "cuda"."""
    torch.manual_seed(0)
    module: nn.Module
    example: tuple[torch.Tensor, ...]
    if name == "blocks":
        width = 4096 if device == "cuda" else 1024
        module, example = models.Blocks(width, 4), (torch.randn(2048, width),)
    elif name == "launches":
        module, example = Launches(300), (torch.randn(64, 64),)
    elif name == "uneven":
        n = 1024 if device == "cuda" else 128
        module, example = models.Uneven(4 * n), (torch.randn(n, n), torch.randn(n // 2, n))
    else:
        module, example = models.CASES["mixed"].module(), models.inputs("mixed")
    with torch.no_grad():
        return torch.export.export(module.to(device).eval(), tuple(x.to(device) for x in example))
