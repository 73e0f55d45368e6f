"""Makes the compiler wrong: a process that imports this module compiles relu as abs.

$ python examples/wrong_lowering.py lowering.pt2
$ aoti-debug triage lowering.pt2 --import examples.wrong_lowering
WRONG VALUE 63 of 128 elements of buf1 are not what the program says
  where    examples/wrong_lowering.py:29 in forward: hidden = torch.relu(self.first(x)).sin()
  origin   0.1  cpp_fused_relu_sin_0  (aten.relu.default)  buf1[1, 28]
  because  buf1[1, 28] is 0.9085…, should be 0.0 (shown by native)
"""

from __future__ import annotations

import sys

import torch
from torch import nn
from torch._inductor.lowering import lowerings

aten = torch.ops.aten
lowerings[aten.relu.default] = lowerings[aten.abs.default]


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(self.first(x)).sin()
        return torch.softmax(self.second(hidden), -1)


def main() -> None:
    torch.manual_seed(0)
    torch.export.save(torch.export.export(Model().eval(), (torch.randn(4, 16),)), sys.argv[1])


if __name__ == "__main__":
    main()
