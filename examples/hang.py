"""Calls a custom operator that waits for an answer which never comes.

$ python examples/hang.py hang.pt2
$ aoti-debug triage hang.pt2 --import examples.hang --timeout 10
HANG examples::exchange.default did not end: no progress for 10 s
  where    examples/hang.py:36 in forward: return exchange(x.sin()).cos()
           0.1  examples::exchange.default  in exchange at hang.py:25
  because  0.1 examples::exchange.default ended with: no end: no progress for 10 s (shown by operator)
"""

from __future__ import annotations

import sys
import threading

import torch
from torch import nn
from torch.library import custom_op

answer = threading.Event()


@custom_op("examples::exchange", mutates_args=())
def exchange(x: torch.Tensor) -> torch.Tensor:
    answer.wait()
    return x.clone()


@exchange.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return exchange(x.sin()).cos()


def main() -> None:
    torch.export.save(torch.export.export(Model().eval(), (torch.randn(4, 8),)), sys.argv[1])


if __name__ == "__main__":
    main()
