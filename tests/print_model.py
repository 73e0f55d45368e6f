"""A model that prints: every kind of value, in a branch and in a loop."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from aoti_debug import print_

TORCH_PRINT = getattr(torch._higher_order_ops, "print", print_)


class Prints(nn.Module):
    """Print operators of torch, where it has one, and of aoti_debug."""

    def forward(self, x: Tensor, n: Tensor) -> Any:
        y = x * 2
        TORCH_PRINT("y={y} n={} {:.2f} {{}}", y.shape[0], 1.5, y=y)
        TORCH_PRINT('quotes "a" \\ tab\t newline\nunicode é?')
        k = n.item()
        print_("k {:>3} {}", k, [k, y[0, :2], {"a": None}])
        TORCH_PRINT("{} {:8.3f} {!r}", y[1, 2], y[0, 0].item(), y.to(torch.bfloat16)[0])

        def positive(a: Tensor) -> Tensor:
            print_("positive {}", a[0])
            return a + 1

        def negative(a: Tensor) -> Tensor:
            print_("negative {}", a[0])
            return a - 1

        z = torch.cond(y[0, 0] > 0, positive, negative, (y,))

        def more(i: Tensor, a: Tensor) -> Tensor:
            return i < 3

        def step(i: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
            print_("i={} a={}", i, a[0, 0])
            return i + 1, a * 2

        i, v = torch.while_loop(more, step, (torch.zeros((), dtype=torch.int64, device=x.device), z))
        TORCH_PRINT("end {}", v[0])
        return v, i


def program(device: str = "cpu") -> ExportedProgram:
    """The model, exported with a dynamic number of rows."""
    x = (torch.arange(20.0).reshape(5, 4) + 0.125).to(device)
    return torch.export.export(
        Prints().eval(),
        (x, torch.tensor(3, device=device)),
        dynamic_shapes={"x": {0: Dim("rows", min=2, max=64)}, "n": None},
    )
