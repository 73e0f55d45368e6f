"""Models whose kernels benchmarks/comparison/compare.py makes wrong, and ordinary models that are hard to compare."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn


@dataclass(frozen=True)
class Example:
    """A model with its inputs.

    Attributes:
        dynamic: dynamic shapes, as torch.export takes them.
        configs: Inductor settings.
        imports: modules that register its operators.
    """

    module: Callable[[], nn.Module]
    inputs: Callable[[], tuple[Any, ...]]
    dtype: torch.dtype = torch.float32
    dynamic: Any = None
    configs: Mapping[str, Any] = field(default_factory=dict)
    imports: tuple[str, ...] = ()


class Operators(nn.Module):
    """Reductions, masks, indices, integers, casts and a state, in kernels of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(48, 40)
        self.norm = nn.LayerNorm(40)
        self.table = nn.Parameter(torch.randn(30, 48))
        self.register_buffer("state", torch.zeros(12, 40))

    def forward(self, x: Tensor, index: Tensor, mask: Tensor) -> Any:
        rows = self.table[index] + x
        hidden = self.norm(F.gelu(self.linear(rows)))
        probability = torch.softmax(hidden.masked_fill(mask, float("-inf")), dim=-1)
        picked = torch.argmax(hidden, dim=1)
        total = torch.cumsum(hidden.double().float(), dim=0)
        rounded = (hidden * 10).to(torch.int32)
        counted = (rounded * 3 + index.unsqueeze(1).to(torch.int32)) % 7
        pooled = F.avg_pool1d(hidden.unsqueeze(0), 4).squeeze(0)
        joined = torch.cat([hidden.t(), x.t()[:40] - hidden.t()], dim=1)
        spread = hidden.var(dim=1) + hidden.amax(dim=1)
        self.state.add_(hidden)
        return probability, picked, total, counted, pooled, joined.t(), spread, self.state * 2


class Mixer(nn.Module):
    """Two blocks of gated linear layers, with a normalisation and a softmax over time."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.ModuleList(nn.Linear(64, 128) for _ in range(2))
        self.down = nn.ModuleList(nn.Linear(64, 64) for _ in range(2))
        self.norm = nn.ModuleList(nn.LayerNorm(64) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        for up, down, norm in zip(self.up, self.down, self.norm, strict=True):
            gate, value = up(norm(x)).chunk(2, dim=-1)
            x = x + down(F.silu(gate) * value)
        return torch.softmax(x, dim=1) * x.sigmoid()


class Difficult(nn.Module):
    """Cancellation, ill-conditioned sums, ties, near ties, dropout, NaN that are handled, signed zeros."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(256, 64)

    def forward(self, x: Tensor, large: Tensor, holes: Tensor) -> Any:
        cancelled = (x + large) - large
        ill = (x.sum(dim=1) - x.flip(1).sum(dim=1)) * 1000
        alternating = (large * torch.where(torch.arange(256, device=x.device) % 2 == 0, 1, -1)).sum(dim=1)
        near = self.linear(x)
        best = torch.argmax(near.round(decimals=1), dim=1)
        order = torch.sort((x * 2).round(), dim=1, stable=True)
        dropped = F.dropout(near, 0.5, training=True)
        filled = torch.where(holes.isnan(), torch.zeros_like(holes), holes)
        ratio = torch.nan_to_num(x[:, :64] / (near - near), nan=1.0, posinf=2.0, neginf=3.0)
        zero = torch.minimum(x * 0, -x * 0) + 1e-30 * x
        spread = torch.exp(x * 20).log().sin()
        return cancelled, ill, alternating, near, best, *order, dropped, filled.sum(0), ratio, zero, spread


def _classifier() -> nn.Module:
    from examples.model import Classifier

    return Classifier()


def _operators() -> tuple[Any, ...]:
    return torch.randn(12, 48), torch.randint(0, 30, (12,)), torch.rand(12, 40) < 0.3


def _difficult(dtype: torch.dtype) -> tuple[Any, ...]:
    holes = torch.randn(16, 32)
    holes[::3, ::2] = float("nan")
    return torch.randn(16, 256).to(dtype), (torch.randn(16, 256) * 1e4).to(dtype), holes.to(dtype)


EXAMPLES: dict[str, Example] = {
    "classifier": Example(_classifier, lambda: (torch.randint(0, 1000, (8, 32)),)),
    "operators": Example(Operators, _operators),
    "mixer_bfloat16": Example(Mixer, lambda: (torch.randn(4, 16, 64).bfloat16(),), torch.bfloat16),
    "mixer_float16": Example(Mixer, lambda: (torch.randn(4, 16, 64).half(),), torch.float16),
}
DIFFICULT: dict[str, Example] = {
    "difficult": Example(Difficult, lambda: _difficult(torch.float32)),
    "difficult_bfloat16": Example(Difficult, lambda: _difficult(torch.bfloat16), torch.bfloat16),
    "difficult_float16": Example(Difficult, lambda: _difficult(torch.float16), torch.float16),
    "classifier_bfloat16": Example(_classifier, lambda: (torch.randint(0, 1000, (8, 32)),), torch.bfloat16),
    "classifier_float16": Example(_classifier, lambda: (torch.randint(0, 1000, (8, 32)),), torch.float16),
}


def module_of(example: Example, device: str) -> nn.Module:
    """The model, with the same weights every time."""
    torch.manual_seed(0)
    return example.module().eval().to(example.dtype).to(device)


def inputs_of(example: Example, device: str) -> tuple[Any, ...]:
    """Its inputs, the same every time."""
    torch.manual_seed(1)
    return tuple(x.to(device) if isinstance(x, Tensor) else x for x in example.inputs())


def program(example: Example, device: str = "cpu") -> torch.export.ExportedProgram:
    """The exported program, with the same weights and inputs every time."""
    module, inputs = module_of(example, device), inputs_of(example, device)
    with torch.no_grad():
        return torch.export.export(module, inputs, dynamic_shapes=example.dynamic, strict=False)
