"""Models of the CUDA tests. Importing this module registers the operators that they use (needs triton)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
import triton
import triton.language as tl
from torch import nn
from torch.export import Dim, ExportedProgram
from torch.library import triton_op, wrap_triton


@triton.jit
def scaled_add_kernel(x, y, out, n, alpha, DOUBLE: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = index < n
    value = tl.load(x + index, mask=inside) + tl.load(y + index, mask=inside) * alpha
    if DOUBLE:
        value = value * 2
    tl.store(out + index, value, mask=inside)


@triton.jit
def gather_kernel(table, index, out, width, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    source = tl.load(index + row)
    values = tl.load(table + source * width + column, mask=column < width)
    tl.store(out + row * width + column, values, mask=column < width)


@triton.autotune(
    configs=[triton.Config({"BLOCK": 64}, num_warps=1), triton.Config({"BLOCK": 128}, num_warps=2)], key=["n"]
)
@triton.jit
def tuned_kernel(x, out, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + index, mask=index < n)
    tl.store(out + index, tl.sigmoid(value) * value, mask=index < n)


SCALE = tl.constexpr(0.5)
ROUNDS = tl.constexpr(3)


@triton.jit
def halved(x, shift):  # type: ignore[no-untyped-def]
    return (x + shift) * SCALE


@triton.jit
def smoothed(x):  # type: ignore[no-untyped-def]
    for round in tl.static_range(ROUNDS):
        x = halved(x, round)
    return x


@triton.jit
def smooth_kernel(x, out, stride, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = index < n
    tl.store(out + index, smoothed(tl.load(x + index * stride, mask=inside)), mask=inside)


@triton.jit
def count_kernel(values, counts, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(values + index, mask=index < n)
    tl.atomic_add(counts + value, 1, mask=index < n)


@triton.jit
def split_sum_kernel(x, out, WIDTH: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    row = tl.program_id(0)
    parts = 8 // tl.minimum(tl.num_programs(0), 8)
    length = WIDTH // parts
    total = 0.0
    for part in range(parts):
        column = part * length + tl.arange(0, WIDTH)
        own = tl.load(x + row * WIDTH + column, mask=column < (part + 1) * length, other=0.0)
        total += tl.sum(own, axis=0)
    tl.store(out + row, total)


@triton.jit
def split_product_kernel(x, weight, out, length, WIDTH: tl.constexpr, COLUMNS: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    row, part = tl.program_id(0), tl.program_id(1)
    column = tl.arange(0, COLUMNS)
    total = tl.zeros((COLUMNS,), dtype=tl.float32)
    for k in range(part * length, tl.minimum((part + 1) * length, WIDTH)):
        total += tl.load(x + row * WIDTH + k) * tl.load(weight + k * COLUMNS + column)
    tl.atomic_add(out + row * COLUMNS + column, total)


@triton.autotune(
    configs=[triton.Config({"BLOCK": 256}, num_warps=2), triton.Config({"BLOCK": 1024}, num_warps=4)], key=["n"]
)
@triton.jit
def tuned_sum_kernel(x, out, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    row = tl.program_id(0)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for begin in range(0, n, BLOCK):
        column = begin + tl.arange(0, BLOCK)
        total += tl.load(x + row * n + column, mask=column < n, other=0.0)
    tl.store(out + row, tl.sum(total, axis=0))


@triton_op("gputest::split_sum", mutates_args={})
def split_sum(x: torch.Tensor) -> torch.Tensor:
    out = x.new_empty(x.shape[0])
    wrap_triton(split_sum_kernel)[(x.shape[0],)](x, out, WIDTH=4096)
    return out


@triton_op("gputest::split_product", mutates_args={})
def split_product(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    out = x.new_zeros(x.shape[0], 64)
    parts = 16 // x.shape[0]
    length = (4096 + parts - 1) // parts
    wrap_triton(split_product_kernel)[(x.shape[0], parts)](x, weight, out, length, WIDTH=4096, COLUMNS=64)
    return out


@triton_op("gputest::tuned_sum", mutates_args={})
def tuned_sum(x: torch.Tensor) -> torch.Tensor:
    out = x.new_empty(x.shape[0])
    wrap_triton(tuned_sum_kernel)[(x.shape[0],)](x, out, x.shape[1])
    return out


@triton_op("gputest::tuned", mutates_args={})
def tuned(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    wrap_triton(tuned_kernel)[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, out, x.numel())
    return out


@triton_op("gputest::smooth", mutates_args={})
def smooth(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty(x.numel(), device=x.device)
    wrap_triton(smooth_kernel)[(triton.cdiv(x.numel(), 128),)](x, out, x.stride(0), x.numel(), BLOCK=128)
    return out


@triton_op("gputest::count", mutates_args={"counts"})
def count(values: torch.Tensor, counts: torch.Tensor) -> None:
    wrap_triton(count_kernel)[(triton.cdiv(values.numel(), 64),)](values, counts, values.numel(), BLOCK=64)


@triton_op("gputest::scaled_add", mutates_args={})
def scaled_add(x: torch.Tensor, y: torch.Tensor, double: bool, block: int) -> torch.Tensor:
    out = torch.empty_like(x)
    grid = (triton.cdiv(x.numel(), block),)
    wrap_triton(scaled_add_kernel)[grid](x, y, out, x.numel(), 0.25, double, BLOCK=block)
    return out


@triton_op("gputest::gather", mutates_args={})
def gather(table: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    out = table.new_empty(index.shape[0], table.shape[1])
    wrap_triton(gather_kernel)[(index.shape[0],)](table, index, out, table.shape[1], BLOCK=64)
    return out


@dataclass(frozen=True)
class Case:
    """A module, its example inputs and how to export and compile it."""

    module: nn.Module
    args: tuple[Any, ...]
    dynamic_shapes: Any = None
    inductor_configs: Mapping[str, Any] = field(default_factory=dict)

    def export(self) -> ExportedProgram:
        with torch.no_grad():
            return torch.export.export(self.module, self.args, dynamic_shapes=self.dynamic_shapes, strict=False)


class Mixed(nn.Module):
    """Inductor's and the user's Triton kernels, extern and proxy operators, views, scalars, a branch."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(64, 64), nn.Linear(64, 128)
        self.register_buffer("cache", torch.zeros(4, 64))

    def forward(self, x: torch.Tensor, rows: torch.Tensor, switch: torch.Tensor) -> tuple[torch.Tensor, ...]:
        hidden = F.layer_norm(F.gelu(self.first(x)), (64,))
        wide = self.second(hidden).softmax(-1)
        added = scaled_add(wide, wide * 0.5, True, 256)
        put = torch.index_put(added, (rows,), torch.ones_like(added[:4]), accumulate=False)
        values, _ = torch.sort(put, dim=1, stable=True)
        column = (x.t()[1:] + 1).sum(0)
        branch = torch.cond(switch.sum() > 0, lambda a: a.sin() @ a.t(), lambda a: a.cos() @ a.t(), (x,))
        total = (wide.t() @ wide).sum()
        self.cache.copy_(x[:4])
        return put, values, column, branch, total, torch.cumsum(put, 0), torch.complex(hidden, hidden), self.cache + 1


class Loop(nn.Module):
    """A while loop whose body launches."""

    def forward(self, x: torch.Tensor, n: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        def proceed(i: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
            return i < n

        def body(i: torch.Tensor, a: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return i + 1, torch.tanh(a @ a.t() @ a) + i

        start = torch.zeros((), dtype=torch.int64, device=x.device)
        i, y = torch.while_loop(proceed, body, (start, x))
        return i, y


class TwoSpecialisations(nn.Module):
    """One user kernel, compiled twice under one name."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return scaled_add(scaled_add(x, x.sin(), True, 256), x.cos(), False, 64)


class Dtypes(nn.Module):
    """Tensors of many dtypes."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        fp8 = x.to(torch.float8_e4m3fn)
        return (
            x.half().sin(),
            x.bfloat16() + 1,
            x.double().exp(),
            (x > 0),
            (x * 10).to(torch.int8),
            fp8,
            fp8.float() * 2,
        )


class Reductions(nn.Module):
    """Looped, persistent and split reductions, scans, atomics; whole numbers where the order of additions varies."""

    def forward(self, x: torch.Tensor, rows: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        whole = (y[:64, :64] * 8).round()
        table = torch.zeros(50, 64, device=x.device)
        variance, mean = torch.var_mean(x, dim=1)
        return (
            torch.softmax(x, -1),
            F.gelu(y).sum(),
            table.index_add(0, rows, whole),
            table.scatter_add(0, rows[:32, None].expand(32, 64), whole[:32]),
            tuned(y[:40, :50].contiguous()),
            variance,
            mean,
            torch.argmax(x, dim=1),
            F.layer_norm(x, (x.shape[1],)),
            y[:4].to(torch.bfloat16).cumsum(1),
        )


class Functions(nn.Module):
    """What Inductor's helpers and libdevice compute."""

    def forward(self, x: torch.Tensor, i: torch.Tensor, edges: torch.Tensor) -> tuple[torch.Tensor, ...]:
        near, positive = x.clamp(-0.9, 0.9), x.abs() + 0.1
        unary = torch.erf(x) + torch.tanh(x) + torch.expm1(near) + torch.asinh(x) + torch.atan(x) + torch.sinh(near)
        logs = torch.lgamma(positive) + torch.log1p(positive) + torch.rsqrt(positive) + torch.acos(near)
        binary = torch.atan2(x, positive) + torch.fmod(x, positive) + torch.pow(positive, x) + torch.hypot(x, positive)
        return (
            unary,
            logs,
            binary,
            torch.floor(x) + torch.trunc(x * 3) + torch.round(x * 5) + torch.copysign(positive, x),
            x.amax(1),
            x.amin(1),
            x.argmin(1),
            near.prod(1),
            (x > 2).any(1),
            torch.maximum(x, unary) + torch.minimum(x, logs),
            i // 3,
            i % 7,
            i.cumsum(0),
            torch.bucketize(x[:4], edges),
            torch.sort(x[:4, :64], dim=1, descending=True, stable=True)[0],
            torch.rand_like(x[:4]),
        )


class UserKernels(nn.Module):
    """Kernels with functions and constants of their own, in place, atomic, over a view that is not aligned."""

    def forward(self, x: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        flat = (x + 1).flatten()
        counts = torch.zeros(16, dtype=torch.int32, device=x.device)
        count(values, counts)
        return smooth(flat[1::3]), smooth(flat), counts, tuned(x), scaled_add(x, x.cos(), False, 128)


class Rows(nn.Module):
    """Waits for the GPU, to know how many rows there are."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nonzero((x * 2).relu()) + 1


class Gather(nn.Module):
    """A user gather with forty launches behind it."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(1000, 64))
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(20))

    def forward(self, index: torch.Tensor) -> torch.Tensor:
        rows = gather(self.table.sin(), index * 2)
        for layer in self.layers:
            rows = layer(rows).relu()
        return rows


def uneven() -> Case:
    """Kernels that take from 2 to 350 µs on an H100, and one of a library."""
    from tests.models import Uneven  # tests/models.py, which processes that run a package need not find

    example = torch.randn(1024, 1024, device="cuda"), torch.randn(512, 1024, device="cuda")
    return Case(Uneven(4096).cuda().eval(), example)


def case(name: str) -> Case:
    """A test case on cuda:0 by name."""
    torch.manual_seed(0)
    x = torch.randn(32, 64, device="cuda")
    rows, switch = torch.tensor([0, 3, 5, 7], device="cuda"), torch.ones(3, device="cuda")
    dynamic = ({0: Dim.AUTO}, None, None)
    cases: dict[str, Callable[[], Case]] = {
        "mixed": lambda: Case(Mixed().cuda().eval(), (x, rows, switch)),
        "dynamic": lambda: Case(Mixed().cuda().eval(), (x, rows, switch), dynamic),
        "multi_kernel": lambda: Case(
            Mixed().cuda().eval(), (x, rows, switch), inductor_configs={"triton.multi_kernel": 2}
        ),
        "loop": lambda: Case(Loop(), (x[:8, :8].contiguous(), torch.tensor(3, device="cuda"))),
        "two_specialisations": lambda: Case(TwoSpecialisations(), (x,)),
        "dtypes": lambda: Case(Dtypes(), (x,)),
        "reductions": lambda: Case(
            Reductions(),
            (
                torch.randn(4, 6000, device="cuda"),
                torch.randint(0, 50, (64,), device="cuda"),
                torch.randn(512, 512, device="cuda"),
            ),
        ),
        "functions": lambda: Case(
            Functions(),
            (
                torch.randn(16, 600, device="cuda") * 2,
                torch.randint(-1000, 1000, (200_000,), device="cuda"),
                torch.linspace(-2, 2, 17, device="cuda"),
            ),
        ),
        "user_kernels": lambda: Case(UserKernels(), (x, torch.randint(0, 16, (1000,), device="cuda"))),
        "first_run": lambda: Case(
            UserKernels(),
            (x, torch.randint(0, 16, (1000,), device="cuda")),
            inductor_configs={"triton.autotune_at_compile_time": False},
        ),
        "uneven": uneven,
        "rows": lambda: Case(Rows(), (torch.randn(8, 8, device="cuda"),)),
        "gather": lambda: Case(Gather().cuda().eval(), (torch.randint(0, 500, (256,), device="cuda"),)),
    }
    return cases[name]()
