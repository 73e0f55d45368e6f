"""The models that the benchmarks time.

* blocks: four blocks of Linear + GELU + LayerNorm, batch 2048, fp32; width 1024 on the CPU, 4096 on CUDA.
* launches: a chain of 600 small reductions, each one kernel (launch-bound on CUDA).
"""

from __future__ import annotations

import torch
from torch import nn
from torch.export import ExportedProgram


class Blocks(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.blocks = nn.Sequential(
            *(nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width)) for _ in range(4))
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.blocks(x)


class Launches(nn.Module):
    def __init__(self, pairs: int) -> None:
        super().__init__()
        self.pairs = pairs

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(self.pairs):
            x = (3 * (3 * x).softmax(0)).softmax(1)  # along another axis each time: never one kernel
        return x


def export(name: str, device: str) -> ExportedProgram:
    """Exports a benchmark model by name ("blocks" or "launches") on "cpu" or "cuda"."""
    torch.manual_seed(0)
    module: nn.Module
    if name == "blocks":
        width = 4096 if device == "cuda" else 1024
        module, example = Blocks(width), torch.randn(2048, width)
    else:
        module, example = Launches(300), torch.randn(64, 64)
    with torch.no_grad():
        return torch.export.export(module.to(device).eval(), (example.to(device),))
