"""Gives a request other bits when it is computed alone than when it is computed with others.

$ python examples/batch.py batch.pt2
$ aoti-debug invariance batch.pt2
0.1 aoti_torch_cpu_addmm_out: read the same bits of the sample, and wrote others
  model    …batch.py:32  in hidden
  at       all other runs
  buf4     … of 256 elements of the sample differ, at most … ULP
  read     buf3 [1, 512] and [4, 512]: the same bits of the sample
  why      rounding suffices to explain it: buf4 differs by …, with errors of … alone and … here
  known    aten.addmm.out is a routine of a library: it may choose its algorithm by the sizes
works: sizes from 4 to 16 (fill smaller ones up): the same bits in all other runs
VARIES from 0.1 aoti_torch_cpu_addmm_out on
"""

from __future__ import annotations

import sys

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(512)
        self.hidden = nn.Linear(512, 256)
        self.head = nn.Linear(256, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(self.hidden(self.norm(x)))
        return self.head(hidden).softmax(-1)


def main() -> None:
    torch.manual_seed(0)
    batch = torch.export.Dim("batch", min=1, max=64)
    with torch.no_grad():
        program = torch.export.export(Model().eval(), (torch.randn(8, 512),), dynamic_shapes={"x": {0: batch}})
    torch.export.save(program, sys.argv[1])


if __name__ == "__main__":
    main()
