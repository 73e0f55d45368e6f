"""Looks up a row far past the end of a table; forty launches come after it.

$ python examples/faulty.py faulty.pt2
$ aoti-debug triage faulty.pt2 --inductor-config assert_indirect_indexing=false
FAULT index[100] is 1099511627776, so mul[100] is 2199023255552, sin has 1000 rows
  where    examples/faulty.py:28 in forward: rows = self.lookup(self.table.sin(), index * 2)
  origin   input index[100]
  because  aten.index.Tensor: mul[100] is 2199023255552, sin has 1000 rows; …
"""

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
    if device == "cuda":  # the Triton kernel of lookup_op.py reads the table: build and run with --import lookup_op
        from lookup_op import lookup
    torch.manual_seed(0)
    model = Model(lookup).to(device).eval()
    index = torch.randint(0, 500, (256,), device=device)
    index[100] = 1 << 40
    with torch.no_grad():
        torch.export.save(torch.export.export(model, (index,)), output)


if __name__ == "__main__":
    main()
