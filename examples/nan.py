"""Divides each row by its sum, which is zero in one row: zero divided by zero is NaN.

$ python examples/nan.py nan.pt2
$ aoti-debug triage nan.pt2
NOT FINITE your model computes NaN in eager, too: NaN in buf2: aten.div.Tensor: relu[2, 0] = 0 / sum_1[2, 0] = 0, …
  where    examples/nan.py:26 in forward: return (hidden / hidden.sum(-1, keepdim=True)).tanh()
  origin   0.1  cpp_fused_div_relu_sum_tanh_0  (aten.div.Tensor)  buf2[2, 0]
  because  buf2[2, 0] is NaN, the first of 16 (shown by native)
"""

from __future__ import annotations

import sys

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(16, 16, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.linear(x).relu()
        return (hidden / hidden.sum(-1, keepdim=True)).tanh()


def main() -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 16)
    x[2] = 0
    torch.export.save(torch.export.export(Model().eval(), (x,)), sys.argv[1])


if __name__ == "__main__":
    main()
