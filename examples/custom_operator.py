"""Calls a custom operator that promises a contiguous result and returns a transposed one.

$ python examples/custom_operator.py operator.pt2
$ aoti-debug triage operator.pt2 --import examples.custom_operator
BROKEN CONTRACT examples::columns.default returned float32[4, 8] with strides [1, 4] where float32[4, 8] with strides …
  where    examples/custom_operator.py:32 in forward: return columns(x.sin()).cos() + 1
           0.1  examples::columns.default  buf2
  because  buf2 was promised as float32[4, 8], strides [8, 1], on cpu (shown by operator)
"""

from __future__ import annotations

import sys

import torch
from torch import nn
from torch.library import custom_op


@custom_op("examples::columns", mutates_args=())
def columns(x: torch.Tensor) -> torch.Tensor:
    return x.t().contiguous().t() * 2


@columns.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return x.new_empty(x.shape)


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return columns(x.sin()).cos() + 1


def main() -> None:
    torch.manual_seed(0)
    torch.export.save(torch.export.export(Model(), (torch.randn(4, 8),)), sys.argv[1])


if __name__ == "__main__":
    main()
