"""Operators that keep memory at every call (`--import tests.growing_ops`), and a model with them."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor, nn

KEPT: list[Tensor] = []
_MALLOC = ctypes.CDLL(None).malloc
_MALLOC.restype, _MALLOC.argtypes = ctypes.c_void_p, (ctypes.c_size_t,)
LEAK = 40_000  # bytes


@torch.library.custom_op("growingops::keep", mutates_args=())
def keep(x: Tensor) -> Tensor:
    """Twice x; it keeps a copy of x in a list."""
    KEPT.append(x.clone())
    return x * 2


@keep.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("growingops::leak", mutates_args={"x"})
def leak(x: Tensor) -> None:
    """Adds 1 to x, and never frees what it has allocated."""
    _MALLOC(LEAK)
    x.add_(1)


@leak.register_fake
def _(x: Tensor) -> None:
    return None


class Growing(nn.Module):
    """Launches that keep nothing, then one that keeps a copy, and one that leaks."""

    def forward(self, x: Tensor) -> Tensor:
        wide = torch.cumsum(x.sin() @ x, 0)
        doubled = torch.ops.growingops.keep(wide).cos()
        torch.ops.growingops.leak(doubled)
        return torch.sort(doubled @ x)[0]


def inputs() -> tuple[Tensor, ...]:
    return (torch.linspace(-1, 1, 64 * 64).reshape(64, 64),)
