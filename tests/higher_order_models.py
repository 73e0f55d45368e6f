"""Models of operators whose arguments are graphs, several in each: what the CPU can lower."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch._higher_order_ops.out_dtype import out_dtype
from torch._higher_order_ops.scan import scan
from torch.nn.attention.flex_attention import flex_attention


@torch.library.custom_op("higher_order_models::bump", mutates_args={"x"})
def bump(x: Tensor, by: Tensor) -> None:
    x.add_(by)


class Loops(nn.Module):
    """A scan, a map, a branch in the body of a loop, and beside the loop another branch of the same name."""

    def forward(self, x: Tensor, y: Tensor) -> Any:
        last, rows = scan(lambda c, row: (c * 0.5 + row, c.relu()), y, x)
        mapped = torch._higher_order_ops.map(lambda row, by: (row * by).sin(), x, y)

        def step(i: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
            return i + 1, torch.cond(a.sum() > 0, lambda u: u.sin() - 1, lambda u: u.cos() + 1, (a,))

        count = torch.zeros((), dtype=torch.int64)
        looped = torch._higher_order_ops.while_loop(lambda i, _: i < 3, step, (count, y.exp()))[1]
        return last, rows, mapped, torch.cond(looped.sum() > 9, lambda u, w: u * w, lambda u, w: u - w, (looped, y))


class Overwrites(nn.Module):
    """An operator that overwrites a tensor and a part of it, also in the body of a loop; a sum in another dtype."""

    def forward(self, x: Tensor, y: Tensor, small: Tensor) -> Any:
        z = x.sin()
        bump(z, y)
        bump(z[:4], y[4:])

        def step(i: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
            own = a.clone()
            bump(own, y)
            return i + 1, own * 0.5

        count = torch.zeros((), dtype=torch.int64)
        looped = torch._higher_order_ops.while_loop(lambda i, _: i < 2, step, (count, y.cos()))[1]
        with torch.no_grad():
            ends = (z * 2 + looped).exp()
        return ends, out_dtype(torch.ops.aten.mm.default, torch.int32, small, small) + 1


class Attention(nn.Module):
    """Scores from a table, by rows that memory says, and a mask. torch saves no such program."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("bias", torch.linspace(-1, 1, 64))

    def forward(self, q: Tensor, k: Tensor, v: Tensor, offset: Tensor) -> Tensor:
        bias = self.bias

        def score(s: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return torch.where(i + h >= j, s + bias[offset[j] + i], -float("inf"))

        result: Tensor = flex_attention(q.sin(), k, v, score_mod=score)
        return result


def _attention_inputs() -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(0)
    return (*(torch.randn(1, 2, 32, 16, generator=generator) for _ in range(3)), torch.arange(32) % 8)


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], tuple[Tensor, ...]]]] = {
    "loops": (Loops, lambda: (torch.arange(12.0).reshape(3, 4).sin(), torch.arange(4.0).cos())),
    "overwrites": (
        Overwrites,
        lambda: (torch.arange(8.0), torch.arange(8.0).cos(), (torch.arange(64) % 7).to(torch.int8).reshape(8, 8)),
    ),
    "attention": (Attention, _attention_inputs),
}


def exported(name: str) -> Any:
    """The exported program of a model."""
    model, inputs = MODELS[name]
    with torch.no_grad():
        return torch.export.export(model(), inputs())
