"""The models of the CPU tests, by name: each brings out some forms in which generated code launches kernels.

Importing this module registers the operators that the models use (`--import tests.models`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram


@torch.library.custom_op("aotidebugtest::scale_all", mutates_args=())
def scale_all(xs: list[Tensor], factor: float, mode: str) -> list[Tensor]:
    """Tensor[] in and out, a float and a string."""
    return [torch.mul(x, factor) if mode == "mul" else x + factor for x in xs]


@scale_all.register_fake
def _(xs: list[Tensor], factor: float, mode: str) -> list[Tensor]:
    return [torch.empty_like(x) for x in xs]


@torch.library.custom_op("aotidebugtest::accumulate_", mutates_args={"total"})
def accumulate_(total: Tensor, x: Tensor, times: int) -> None:
    """Writes to an argument and returns nothing."""
    total.add_(x, alpha=times)


@accumulate_.register_fake
def _(total: Tensor, x: Tensor, times: int) -> None:
    return None


@torch.library.custom_op("aotidebugtest::join", mutates_args=())
def join(x: Tensor, bias: Tensor | None, sizes: list[int]) -> Tensor:
    """An optional tensor and an int[]."""
    y = x.reshape(sizes).clone()
    return y if bias is None else y + bias


@join.register_fake
def _(x: Tensor, bias: Tensor | None, sizes: list[int]) -> Tensor:
    return x.new_empty(sizes)


@torch.library.custom_op("aotidebugtest::shimmed", mutates_args=())
def shimmed(x: Tensor, factor: float) -> Tensor:
    """Lowered to a call of a C shim of its own (see SHIM_DECLARATION)."""
    return x * factor


@shimmed.register_fake
def _(x: Tensor, factor: float) -> Tensor:
    return torch.empty_like(x)


SHIM_DECLARATION = "AOTITorchError aoti_torch_cpu_shimmed(AtenTensorHandle x, double factor, AtenTensorHandle* ret0)"


@dataclass(frozen=True)
class Case:
    """A model and what it is exported and lowered with.

    Attributes:
        module: makes the model, with the same weights every time.
        inputs: makes its example inputs, the same every time.
        dynamic: dynamic shapes, as torch.export takes them.
        configs: Inductor settings.
    """

    module: Callable[[], nn.Module]
    inputs: Callable[[], tuple[Any, ...]]
    dynamic: Any = None
    configs: dict[str, Any] = field(default_factory=dict)


def program(name: str) -> ExportedProgram:
    """The exported program of a model."""
    case = CASES[name]
    torch.manual_seed(0)
    with torch.no_grad():
        return torch.export.export(case.module().eval(), inputs(name), dynamic_shapes=case.dynamic, strict=False)


def inputs(name: str) -> tuple[Any, ...]:
    """The example inputs of a model."""
    torch.manual_seed(1)
    return CASES[name].inputs()


class Mixed(nn.Module):
    """C++ kernels, out, alloc and many-output calls, an optional, scatter_reduce, randint, a proxy call, complex."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(32, 64)
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.bag = nn.EmbeddingBag(50, 16, mode="mean")
        self.norm = nn.LayerNorm(64)
        self.register_buffer("table", torch.randn(16, 8))
        self.register_buffer("cache", torch.zeros(4, 8))

    def forward(self, x: Tensor, image: Tensor, ids: Tensor, offsets: Tensor, rows: Tensor, src: Tensor) -> Any:
        hidden = self.norm(F.gelu(self.linear(x)))
        picture = self.conv(image).relu()
        bag = self.bag(ids, offsets)
        ordered, order = torch.sort(x, dim=1, stable=True)
        top, where = torch.topk(hidden, 3)
        put = torch.index_put(self.table.clone(), (rows,), src, accumulate=True)
        index = rows.unsqueeze(1).expand(-1, 8) % 16
        mean = torch.zeros_like(self.table).scatter_reduce(0, index, src, "mean", include_self=False)
        dropped = F.dropout(hidden, 0.3, training=True)
        z = torch.complex(hidden, hidden)
        self.cache.copy_(src)
        found = torch.nonzero(rows > 2)
        square = torch.view_as_real(z * z)
        return hidden, picture, bag, ordered, order, top, where, put, mean, dropped, square, found, hidden.sum()


def _mixed_inputs() -> tuple[Tensor, ...]:
    return (
        torch.randn(8, 32),
        torch.randn(2, 3, 16, 16),
        torch.randint(0, 50, (20,)),
        torch.tensor([0, 4, 8, 12]),
        torch.randint(0, 16, (4,)),
        torch.randn(4, 8),
    )


class Control(nn.Module):
    """cond, a while loop around it, numbers read from tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: Tensor, n: Tensor) -> Any:
        def positive(x: Tensor) -> Tensor:
            return self.linear(x).sin() + 1

        def negative(x: Tensor) -> Tensor:
            return (x @ x.t() @ x).cos()

        y = torch.cond(x.sum() > 0, positive, negative, (x,))

        def more(i: Tensor, a: Tensor) -> Tensor:
            return i < n

        def step(i: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
            return i + 1, torch.tanh(a @ a.t() @ a) + i

        i, z = torch.while_loop(more, step, (torch.zeros((), dtype=torch.int64, device=y.device), y))
        k = n.item()
        return y, z, i, x + k


def _control_inputs() -> tuple[Tensor, ...]:
    return torch.randn(8, 8).abs(), torch.tensor(3)


class Fold(nn.Module):
    """Work on weights alone, which goes to _const_run_impl."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.randn(16, 16))
        self.b = nn.Parameter(torch.randn(16))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, (self.w @ self.w.t()).relu() + 1, self.b)


class Custom(nn.Module):
    """Operators behind the proxy executor: lists, strings, None, and writing to an input and to a constant."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 8))
        self.register_buffer("total", torch.zeros(4, 8))

    def forward(self, x: Tensor, y: Tensor) -> Any:
        hidden = x * 2
        first, second, third = torch.ops.aotidebugtest.scale_all([hidden, y, self.weight], 1.5, "mul")
        torch.ops.aotidebugtest.accumulate_(self.total, first, 2)
        torch.ops.aotidebugtest.accumulate_(y, second, 1)
        joined = torch.ops.aotidebugtest.join(third, None, [8, 4])
        biased = torch.ops.aotidebugtest.join(third, joined.t().reshape(-1)[:4], [8, 4])
        return joined + 1, biased, self.total + first


class Shimmed(nn.Module):
    """An operator with a C shim of its own."""

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = torch.ops.aotidebugtest.shimmed(x + 1, 3.0)
        return result.relu()


class Mutation(nn.Module):
    """Calls that write in place and whose code nobody checks, and a constant that is returned."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("cache", torch.zeros(6, 8))

    def forward(self, x: Tensor, rows: Tensor, values: Tensor, mask: Tensor, keep: Tensor) -> Any:
        self.cache[:, rows] = values
        self.cache[:, keep] = values[:, 0:1]
        put = torch.index_put(x.sin(), (rows,), x[0], accumulate=True)
        filled = torch.scatter(x.cos(), 1, rows.unsqueeze(1), 7.0, reduce="multiply")
        moved = torch.scatter(x.exp(), 1, rows.unsqueeze(1), x[:, :1], reduce="add")
        chosen = torch.where(torch.empty_like(x).bernoulli_(0.3) > 0, x, put)
        masked = torch.masked_select(x, mask)
        widened = x.to(torch.complex64)
        return put, filled, moved, chosen, masked, torch.view_as_real(widened), self.cache


def _mutation_inputs() -> tuple[Tensor, ...]:
    rows = torch.tensor([0, 2, 5, 4, 1, 3])
    return torch.randn(6, 8), rows, torch.randn(6, 6), torch.rand(6, 8) > 0.5, torch.arange(8) > 4


class Attention(nn.Module):
    """Flash attention with an optional mask, concatenation into views, a list of tensors."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Any:
        plain = F.scaled_dot_product_attention(q, k, v)
        masked = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        both = torch.cat([q @ k.transpose(-1, -2), masked @ v.transpose(-1, -2)], dim=-1)
        return plain, both


def _attention_inputs() -> tuple[Tensor, ...]:
    return (*(torch.randn(2, 4, 16, 16) for _ in range(3)), torch.zeros(2, 1, 16, 16))


class Views(nn.Module):
    """Products written into slices of a result, another dtype's view of a tensor, a proxy call inside a branch."""

    def __init__(self) -> None:
        super().__init__()
        self.left = nn.Linear(16, 8)
        self.right = nn.Linear(16, 8)

    def forward(self, x: Tensor) -> Any:
        both = torch.cat([self.left(x), self.right(x)], dim=1)
        order, _ = torch.sort(both.view(torch.int32), dim=1, stable=True)

        def turned(x: Tensor) -> Tensor:
            return torch.view_as_real(torch.complex(x, x.sin()))

        def doubled(x: Tensor) -> Tensor:
            return torch.stack([x, x * 2], dim=-1)

        return both, order, torch.cond(x.sum() > 0, turned, doubled, (x,))


class Sizes(nn.Module):
    """Symbolic sizes: numbers that C++ kernels take, an unbacked one, generated tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(16, 16)

    def forward(self, x: Tensor, n: Tensor) -> Any:
        count = n.item()
        torch._check(count >= 1)
        torch._check(count <= 64)
        return torch.softmax(self.linear(x), 0) / x.shape[0], torch.arange(count) * 2 + x.shape[0], torch.rand(count, 4)


class Half(nn.Module):
    """bfloat16 weights and activations."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(16, 32)
        self.to(torch.bfloat16)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x).relu() + 1


class Blocks(nn.Module):
    """Linear, GELU and LayerNorm, again and again."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.linear = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.norm = nn.ModuleList(nn.LayerNorm(width) for _ in range(depth))

    def forward(self, x: Tensor) -> Tensor:
        for linear, norm in zip(self.linear, self.norm, strict=True):
            x = norm(F.gelu(linear(x)))
        return x


class Uneven(nn.Module):
    """Generated kernels over tensors of very different sizes, and a product of large matrices.

    Takes tensors of (n, n) and (n / 2, n); `width` is 4 n.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x: Tensor, small: Tensor) -> tuple[Tensor, ...]:
        wide, rows = x.repeat(4, 8), x.repeat(6, 8)  # of other sizes each: never one kernel
        sums = x.repeat(3, 8).cumsum(-1)
        return wide.softmax(-1), sums, rows.sin(), (small.sin() + small).cumsum(-1), self.linear(x.repeat(4, 4))


_GEMM = {"freezing": True, "max_autotune": True, "max_autotune_gemm_backends": "CPP"}
_FOLD = {"aot_inductor.use_runtime_constant_folding": True}
_SHIM = {"aot_inductor.custom_ops_to_c_shims": {torch.ops.aotidebugtest.shimmed.default: [SHIM_DECLARATION]}}
_ARRAY_REF = {"aot_inductor.use_minimal_arrayref_interface": True, "aot_inductor.allow_stack_allocation": True}

CASES: dict[str, Case] = {
    "mixed": Case(Mixed, _mixed_inputs),
    "control": Case(Control, _control_inputs),
    "profiled": Case(Control, _control_inputs, configs={"cpp.enable_kernel_profile": True}),
    "fold": Case(Fold, lambda: (torch.randn(4, 16),), configs=_FOLD),
    "custom": Case(Custom, lambda: (torch.randn(4, 8), torch.randn(4, 8))),
    "shimmed": Case(Shimmed, lambda: (torch.randn(4, 8),), configs=_SHIM),
    "mutation": Case(Mutation, _mutation_inputs, configs={"fallback_random": True}),
    "attention": Case(Attention, _attention_inputs),
    "views": Case(Views, lambda: (torch.randn(4, 16).abs(),)),
    "sizes": Case(
        Sizes,
        lambda: (torch.randn(5, 16), torch.tensor(7)),
        dynamic=({0: Dim("rows", min=2, max=64)}, None),
        configs={"fallback_random": True},
    ),
    "half": Case(Half, lambda: (torch.randn(4, 16, dtype=torch.bfloat16),)),
    "gemm": Case(lambda: Blocks(64, 2), lambda: (torch.randn(32, 64),), configs=_GEMM),
    "blocks": Case(lambda: Blocks(64, 4), lambda: (torch.randn(16, 64),)),
    "planned": Case(lambda: Blocks(16, 2), lambda: (torch.randn(4, 16),), configs={"memory_planning": True}),
    "array_ref": Case(lambda: Blocks(16, 1), lambda: (torch.randn(4, 16),), configs=_ARRAY_REF),
}


class Counter(nn.Module):
    """Each call adds to a state, which all calls of a package share."""

    def __init__(self) -> None:
        super().__init__()
        self.count: Tensor
        self.register_buffer("count", torch.zeros(64))

    def forward(self, x: Tensor) -> Tensor:
        self.count.add_(1)
        return torch.softmax(x * self.count, -1)
