"""The models that the benchmarks time.

* blocks: four blocks of Linear + GELU + LayerNorm, batch 2048, fp32; width 1024 on the CPU, 4096 on CUDA.
* launches: a chain of 600 small reductions, each one kernel (launch-bound on CUDA).
* mixed: each form in which generated code launches kernels, once or a few times: generated kernels, calls of the C shim
  with an out argument or with results, calls in place, calls of the proxy executor.
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


class Mixed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(32, 64)
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.bag = nn.EmbeddingBag(50, 16, mode="mean")
        self.norm = nn.LayerNorm(64)
        self.register_buffer("table", torch.randn(16, 8))
        self.register_buffer("cache", torch.zeros(4, 8))

    def forward(
        self, x: torch.Tensor, image: torch.Tensor, ids: torch.Tensor, offsets: torch.Tensor, rows: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        hidden = self.norm(nn.functional.gelu(self.linear(x)))
        picture = self.conv(image).relu()
        bag = self.bag(ids, offsets)
        ordered, order = torch.sort(x, dim=1, stable=True)
        top, where = torch.topk(hidden, 3)
        put = torch.index_put(self.table.clone(), (rows,), x[:4, :8], accumulate=True)
        index = rows.unsqueeze(1).expand(-1, 8) % 16
        mean = torch.zeros_like(self.table).scatter_reduce(0, index, x[:4, :8], "mean", include_self=False)
        z = torch.complex(hidden, hidden)
        self.cache.copy_(x[:4, :8])
        found = torch.nonzero(rows > 2)
        square = torch.view_as_real(z * z)
        return hidden, picture, bag, ordered, order, top, where, put, mean, square, found, hidden.sum()


def _mixed_inputs() -> tuple[torch.Tensor, ...]:
    rows = torch.tensor([3, 0, 7, 7])
    return torch.randn(8, 32), torch.randn(2, 3, 16, 16), torch.arange(20), torch.tensor([0, 4, 8, 12]), rows


def export(name: str, device: str) -> ExportedProgram:
    """Exports a benchmark model by name ("blocks", "launches" or "mixed") on "cpu" or "cuda"."""
    torch.manual_seed(0)
    module: nn.Module
    example: tuple[torch.Tensor, ...]
    if name == "blocks":
        width = 4096 if device == "cuda" else 1024
        module, example = Blocks(width), (torch.randn(2048, width),)
    elif name == "launches":
        module, example = Launches(300), (torch.randn(64, 64),)
    else:
        module, example = Mixed(), _mixed_inputs()
    with torch.no_grad():
        return torch.export.export(module.to(device).eval(), tuple(x.to(device) for x in example))
