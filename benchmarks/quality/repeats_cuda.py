"""Triton kernels that add rows to others: threads that race, and sums without a first zero."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor
from torch.library import triton_op, wrap_triton


@triton.jit
def racing_kernel(rows, index, out, n, WIDTH: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    column = tl.arange(0, WIDTH)
    inside = (row < n)[:, None] & (column < WIDTH)[None, :]
    to = tl.load(index + row, mask=row < n, other=0)[:, None] * WIDTH + column[None, :]
    value = tl.load(rows + row[:, None] * WIDTH + column[None, :], mask=inside)
    tl.store(out + to, tl.load(out + to, mask=inside) + value, mask=inside)


@triton.jit
def adding_kernel(rows, index, out, n, WIDTH: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    column = tl.arange(0, WIDTH)
    inside = (row < n)[:, None] & (column < WIDTH)[None, :]
    to = tl.load(index + row, mask=row < n, other=0)[:, None] * WIDTH + column[None, :]
    value = tl.load(rows + row[:, None] * WIDTH + column[None, :], mask=inside)
    tl.atomic_add(out + to, value, mask=inside)


def _grid(rows: Tensor) -> tuple[int]:
    return (triton.cdiv(rows.shape[0], 64),)


@triton_op("repeats::raced", mutates_args={})
def raced(rows: Tensor, index: Tensor) -> Tensor:
    """Sums of rows by their index, [4, columns], without atomics: a thread may overwrite the sum of another."""
    out = rows.new_zeros(4, rows.shape[1])
    wrap_triton(racing_kernel)[_grid(rows)](rows, index, out, rows.shape[0], WIDTH=rows.shape[1], BLOCK=64)
    return out


@triton_op("repeats::unwritten", mutates_args={})
def unwritten(rows: Tensor, index: Tensor) -> Tensor:
    """Sums of rows by their index, [4, columns], that begin with what is in the memory."""
    out = rows.new_empty(4, rows.shape[1])
    wrap_triton(adding_kernel)[_grid(rows)](rows, index, out, rows.shape[0], WIDTH=rows.shape[1], BLOCK=64)
    return out
