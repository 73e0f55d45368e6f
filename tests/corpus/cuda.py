"""Faults of Triton kernels that a user wrote (CUDA). Importing this module registers their operators."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor, nn
from torch.library import triton_op, wrap_triton

from tests.corpus.case import CUDA, Case, Example, Expected, Make

# Triton takes a kernel's parameters untyped.


@triton.jit
def pick_kernel(table, index, out, width: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0)
    column = tl.arange(0, width)
    source = tl.load(index + row)
    tl.store(out + row * width + column, tl.load(table + source * width + column))


@triton.jit
def put_kernel(out, index, values, width: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0)
    column = tl.arange(0, width)
    target = tl.load(index + row)
    tl.store(out + target * width + column, tl.load(values + row * width + column))


@triton.jit
def page_kernel(pool, pages, out, size, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    """page * size is int32, and negative for page 3000 of a million elements."""
    page = tl.load(pages + tl.program_id(0))
    lane = tl.arange(0, BLOCK)
    tl.store(out + tl.program_id(0) * BLOCK + lane, tl.load(pool + page * size + lane))


@triton.jit
def wide_kernel(x, out, odd, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    """Reads float32 as int64; one float from the beginning if told to (never while the kernel is being tuned)."""
    lane = tl.arange(0, BLOCK)
    shift = tl.where(tl.load(odd) == 12345, 1, 0)
    pair = (x + shift).to(tl.pointer_type(tl.int64)) + lane
    tl.store(out + lane, tl.load(pair))


@triton.jit
def wait_kernel(flag, out, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    """Waits until somebody sets the flag."""
    seen = tl.atomic_add(flag, 0)
    while seen == 0:
        seen = tl.atomic_add(flag, 0)
    tl.store(out + tl.arange(0, BLOCK), 1.0)


@triton.jit
def root_kernel(x, out, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    lane = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + lane, mask=lane < n)
    tl.store(out + lane, tl.sqrt(value), mask=lane < n)


@triton.jit
def past_end_kernel(out, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    """A mask that lets one element too many through."""
    lane = tl.arange(0, BLOCK)
    tl.store(out + lane, 3.0, mask=lane <= n)


@triton_op("corpus_cuda::pick", mutates_args={})
def pick(table: Tensor, index: Tensor) -> Tensor:
    out = table.new_empty(index.shape[0], table.shape[1])
    wrap_triton(pick_kernel)[(index.shape[0],)](table, index, out, width=table.shape[1])
    return out


@triton_op("corpus_cuda::put", mutates_args={"out"})
def put(out: Tensor, index: Tensor, values: Tensor) -> None:
    wrap_triton(put_kernel)[(index.shape[0],)](out, index, values, width=out.shape[1])


@triton_op("corpus_cuda::paged", mutates_args={})
def paged(pool: Tensor, pages: Tensor, size: int) -> Tensor:
    out = pool.new_empty(pages.shape[0], 64)
    wrap_triton(page_kernel)[(pages.shape[0],)](pool, pages, out, size, BLOCK=64)
    return out


@triton_op("corpus_cuda::wide", mutates_args={})
def wide(x: Tensor, odd: Tensor) -> Tensor:
    out = torch.empty(64, dtype=torch.int64, device=x.device)
    wrap_triton(wide_kernel)[(1,)](x, out, odd, BLOCK=64)
    return out


@triton_op("corpus_cuda::wait", mutates_args={"flag"})
def wait(flag: Tensor) -> Tensor:
    out = torch.empty(64, device=flag.device)
    wrap_triton(wait_kernel)[(1,)](flag, out, BLOCK=64)
    return out


@triton_op("corpus_cuda::root", mutates_args={})
def root(x: Tensor) -> Tensor:
    out = torch.empty_like(x)
    wrap_triton(root_kernel)[(triton.cdiv(x.numel(), 64),)](x, out, x.numel(), BLOCK=64)
    return out


@triton_op("corpus_cuda::past_end", mutates_args={"out"})
def past_end(out: Tensor) -> None:
    wrap_triton(past_end_kernel)[(1,)](out, out.numel(), BLOCK=128)


class Pick(nn.Module):
    def forward(self, table: Tensor, index: Tensor) -> Tensor:
        rows = torch.ops.corpus_cuda.pick(table.sin(), index)
        return torch.relu(rows) + 1


class PickLater(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Linear(8, 8)

    def forward(self, table: Tensor, ids: Tensor, x: Tensor) -> Tensor:
        index = (ids * (1 << 33)).amax(-1)  # origin
        scale = torch.ops.corpus.count(index)
        weight = self.mix(self.mix(x * scale)).sum()
        return torch.ops.corpus_cuda.pick(table * weight, index)


class Put(nn.Module):
    def forward(self, x: Tensor, index: Tensor, values: Tensor) -> Tensor:
        out = x * 2
        torch.ops.corpus_cuda.put(out, index, values)
        return out + 1


class Paged(nn.Module):
    def forward(self, pool: Tensor, pages: Tensor) -> Tensor:
        rows = torch.ops.corpus_cuda.paged(pool + 1, pages, 1_000_000)  # origin
        return rows + 1


class Wide(nn.Module):
    def forward(self, x: Tensor, odd: Tensor) -> Tensor:
        pairs = torch.ops.corpus_cuda.wide(x + 1, odd)  # origin
        return pairs + 1


class Wait(nn.Module):
    def forward(self, flag: Tensor) -> Tensor:
        done = torch.ops.corpus_cuda.wait(flag * 0)  # origin
        return done + 1


class Root(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y = torch.ops.corpus_cuda.root(x - 2.5)  # origin
        return y + 1


class PastEnd(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        out = torch.empty_like(x)
        torch.ops.corpus_cuda.past_end(out)  # origin
        return out + x.sum()


FAR = 1 << 36


def index(device: str, bad: int | None = None) -> Tensor:
    values = [3, 1, 4, 15, 9, 26, 5, 35]
    if bad is not None:
        values[5] = bad
    return torch.tensor(values, device=device)


def table(device: str) -> Tensor:
    return torch.linspace(-1, 1, 64 * 64, device=device).view(64, 64)


def pick_far(device: str) -> Example:
    return Example(Pick(), (table(device), index(device)), inputs=(table(device), index(device, FAR)))


def pick_later(device: str) -> Example:
    ids = index(device).view(8, 1).expand(8, 32).contiguous()
    args = (table(device), ids * 0, torch.ones(2, 8, device=device))
    return Example(PickLater().to(device), args, inputs=(args[0], ids, args[2]))


def put_at(bad: int) -> Make:
    def make(device: str) -> Example:
        values = torch.ones(8, 64, device=device)
        args = (table(device), index(device), values)
        return Example(Put(), args, inputs=(args[0], index(device, bad), values))

    return make


def page_3000(device: str) -> Example:
    pool, pages = torch.ones(4096, device=device), torch.zeros(4, dtype=torch.int32, device=device)
    return Example(Paged(), (pool, pages), inputs=(pool, pages + 3000))


def odd(device: str) -> Example:
    return Example(Wide(), (torch.linspace(1, 4, 256, device=device), torch.tensor([12345], device=device)))


def numbers(module: type[nn.Module], count: int = 256) -> Make:
    return lambda device: Example(module(), (torch.linspace(2, 3, count, device=device),))


def waiting(device: str) -> Example:
    return Example(Wait(), (torch.zeros(1, dtype=torch.int32, device=device),))


USER = ("tests.corpus.ops", "tests.corpus.cuda")
CASES = (
    Case("triton_load_past_end", pick_far,
         Expected("fault", ("pick_kernel*",), ("*table*", "*buf*"), ("index",), confirmed="*"), CUDA, imports=USER),
    Case("triton_index_made_earlier", pick_later, Expected("fault", ("pick_kernel*",)), CUDA, imports=USER),
    Case("triton_store_past_end", put_at(FAR), Expected("fault", ("put_kernel*",), inputs=("index",)), CUDA,
         imports=USER),
    Case("triton_int32_overflow", page_3000, Expected("fault", ("page_kernel*",), inputs=("pages",)), CUDA,
         imports=USER),
    Case("triton_misaligned", odd, Expected("fault", ("wide_kernel*",)), CUDA, imports=USER),
    Case("triton_endless_loop", waiting, Expected("hang", ("wait_kernel*",)), CUDA, ("--timeout", "10"), imports=USER),
    Case("triton_root_of_negative", numbers(Root), Expected("nonfinite", ("root_kernel*",)), CUDA, imports=USER),
    Case("triton_store_into_neighbour", put_at(64), Expected("overrun", ("put_kernel*",), inputs=("index",)), CUDA,
         ("--guards",), imports=USER),
    Case("triton_mask_one_too_many", numbers(PastEnd, 64), Expected("overrun", ("past_end_kernel*",)), CUDA,
         ("--guards",), imports=USER),
)  # fmt: skip
