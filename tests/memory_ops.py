"""Operators that write outside of their buffers or leave them unwritten (`--import tests.memory_ops`), with models.

They write through raw addresses, as a kernel with a wrong index does.
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch import Tensor, nn


@torch.library.custom_op("memoryops::spill", mutates_args={"out"})
def spill(out: Tensor, x: Tensor, first: int, count: int) -> None:
    """Writes x to `out`, and 1.5 to `count` elements from element `first` on, wherever they are."""
    out.copy_(x)
    values = (ctypes.c_float * count)(*[1.5] * count)
    ctypes.memmove(out.data_ptr() + 4 * first, values, ctypes.sizeof(values))


@spill.register_fake
def _(out: Tensor, x: Tensor, first: int, count: int) -> None:
    return None


@torch.library.custom_op("memoryops::fill_rows", mutates_args={"out"})
def fill_rows(out: Tensor, x: Tensor, rows: int) -> None:
    """Writes the first rows of `out` only."""
    out[:rows].copy_(x[:rows])


@fill_rows.register_fake
def _(out: Tensor, x: Tensor, rows: int) -> None:
    return None


class Spilling(nn.Module):
    """The second operator writes beside its buffer."""

    def __init__(self, first: int, count: int) -> None:
        super().__init__()
        self.first, self.count = first, count

    def forward(self, x: Tensor) -> Any:
        one, two = torch.empty_like(x), torch.empty_like(x)
        torch.ops.memoryops.spill(one, x + 1, 0, 1)
        torch.ops.memoryops.spill(two, one.sin(), self.first, self.count)
        return two.cos(), one * 2


class Unwritten(nn.Module):
    """The sum of a matrix of which some rows were written only."""

    def __init__(self, rows: int) -> None:
        super().__init__()
        self.rows = rows

    def forward(self, x: Tensor) -> Any:
        rows = torch.empty_like(x)
        torch.ops.memoryops.fill_rows(rows, x.sin(), self.rows)
        return rows.cos().sum(1), x + 1


def inputs() -> tuple[Tensor, ...]:
    return (torch.linspace(-1, 1, 64).reshape(8, 8),)
