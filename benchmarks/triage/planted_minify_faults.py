"""Programs with one planted fault each, for planted_minify.py.

`--import benchmarks.triage.planted_minify_faults` plants a lowering. AOTI_PLANTED_LOWERING=far makes `embedding` read
far outside of its table.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

VARIABLE = "AOTI_PLANTED_LOWERING"
FAR = 1 << 38  # rows


class Net(nn.Module):
    """A network around something that is called in its middle."""

    def __init__(self, inner: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(16, 32), nn.Linear(32, 16)
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.nn.functional.gelu(self.first(x)) + 0.5
        return torch.softmax(self.second(self.inner(hidden)).tanh() * 3, -1)


class Words(nn.Module):
    """A network with a table of words."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.net = nn.Embedding(32, 16), Net(torch.sigmoid)

    def forward(self, index: Tensor) -> Tensor:
        return self.net(self.table(index).sin())


def by_zero(x: Tensor) -> Tensor:
    """Divides by the sum of each row, which is zero in one of them."""
    rows = x.clamp(min=0) * (torch.arange(x.shape[0])[:, None] > 2)
    return rows / rows.sum(-1, keepdim=True)


def spilled(x: Tensor) -> Tensor:
    """Writes 4 GiB behind its buffer."""
    out = torch.empty_like(x)
    torch.ops.memoryops.spill(out, x * 2, 1 << 30, 1)
    return out


def waited(x: Tensor) -> Tensor:
    """Waits for ever."""
    return torch.ops.corpus.waits(x * 2)


def transposed(x: Tensor) -> Tensor:
    """Has other strides than its fake kernel says."""
    return torch.ops.corpus.column_major(x * 2)


def program(name: str) -> torch.export.ExportedProgram:
    """The exported program of a name: "words", or a function of this module."""
    torch.manual_seed(0)
    if name == "words":
        return torch.export.export(Words().eval(), (torch.randint(32, (8, 12)),))
    return torch.export.export(Net(globals()[name]).eval(), (torch.randn(8, 16),))


def _plant() -> None:
    from torch._inductor.lowering import lowerings

    target = torch.ops.aten.embedding.default
    right = lowerings[target]
    add = lowerings[torch.ops.aten.add.Tensor]

    def wrong(table: Any, index: Any, *args: Any, **kwargs: Any) -> Any:
        return right(table, add(index, FAR), *args, **kwargs)

    lowerings[target] = wrong


if os.environ.get(VARIABLE) == "far":
    _plant()
