"""Computes in each call what depends on its weights alone.

$ python examples/slow.py slow.pt2
$ aoti-debug profile slow.pt2 --calls 20
slow.pt2: … a call, 4 launches; median of 20 calls, after 3 to warm up
launch …  kernel …  model line …
     0 …  aoti_torch_cpu_mm_out …  slow.py:25 …
"""

from __future__ import annotations

import sys

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(1500, 256))
        self.head = nn.Linear(256, 10)

    def forward(self, index: torch.Tensor) -> torch.Tensor:
        likeness = self.table @ self.table.T
        mixed = likeness[index].softmax(-1) @ self.table
        return self.head(mixed)


def main() -> None:
    torch.manual_seed(0)
    with torch.no_grad():
        torch.export.save(torch.export.export(Model().eval(), (torch.arange(8),)), sys.argv[1])


if __name__ == "__main__":
    main()
