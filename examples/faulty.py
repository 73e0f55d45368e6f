"""Exports a model that faults: a table lookup with one index far past the end, and forty launches after it.

On the CPU a generated C++ kernel reads the table (build with --inductor-config assert_indirect_indexing=false), on CUDA
the Triton kernel of lookup_op.py does (build and run with --import lookup_op).

usage: python faulty.py OUTPUT.pt2 [cpu|cuda]
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch
from torch import nn

Lookup = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


class Model(nn.Module):
    def __init__(self, lookup: Lookup) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(1000, 64))
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(20))
        self.lookup = lookup

    def forward(self, index: torch.Tensor) -> torch.Tensor:
        rows = self.lookup(self.table.sin(), index * 2)
        for layer in self.layers:
            rows = layer(rows).relu()
        return rows


def host_lookup(table: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    return table[index] + 1


def main() -> None:
    output, device = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "cpu"
    lookup: Lookup = host_lookup
    if device == "cuda":
        from lookup_op import lookup
    torch.manual_seed(0)
    model = Model(lookup).to(device).eval()
    index = torch.randint(0, 500, (256,), device=device)
    index[100] = 1 << 40
    with torch.no_grad():
        torch.export.save(torch.export.export(model, (index,)), output)


if __name__ == "__main__":
    main()
