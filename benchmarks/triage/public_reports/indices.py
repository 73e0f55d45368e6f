"""Programs after public reports of indices that are out of bounds."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.triage.public_reports.report import CHANGED, REFUSED, Example, Report


class Before(nn.Module):
    def forward(self, table: Tensor, places: Tensor) -> Tensor:
        return table[places - 1] * 2  # culprit


def _before() -> Example:
    table, good = torch.arange(20.0), torch.arange(1, 9)
    bad = good.clone()
    bad[6] = 4_000_000_000
    return Example(Before(), (table, good), (table, bad))


class Scattered(nn.Module):
    def forward(self, sums: Tensor, rows: Tensor, updates: Tensor) -> Tensor:
        return sums.index_add(0, rows, updates.sin())  # culprit


def _scattered() -> Example:
    sums, updates = torch.zeros(6, 5), torch.ones(4, 5)
    return Example(
        Scattered(), (sums, torch.tensor([0, 3, 5, 1]), updates), (sums, torch.tensor([0, 3, 700_000_000, 1]), updates)
    )


class Chosen(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("chosen", torch.tensor([1, 0, 2, 3_000_000_000, 2]))

    def forward(self, x: Tensor) -> Tensor:
        return torch.index_select(x.exp(), 0, self.chosen)  # culprit


class Embedded(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(6)
        self.words = nn.Embedding(9, 4)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.words(tokens).sum(1)  # culprit


class Counted(nn.Module):
    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        ends = lengths.cumsum(0)
        return x[ends + 1].relu()  # culprit


class Unpooled(nn.Module):
    def forward(self, x: Tensor, indices: Tensor) -> Tensor:
        return nn.functional.max_unpool2d(x + 1, indices, 2)  # culprit


def _unpooled() -> Example:
    x, good = nn.functional.max_pool2d(torch.arange(64.0).reshape(1, 1, 8, 8), 2, return_indices=True)
    bad = good.clone()
    bad[0, 0, 2, 1] = 5_000_000_000
    return Example(Unpooled(), (x, good), (x, bad))


class Nearest(nn.Module):
    def forward(self, x: Tensor, table: Tensor) -> Tensor:
        nearest = (x - 0.25).abs().argmin(1)  # culprit
        return table[nearest]


def _nearest() -> Example:
    torch.manual_seed(0)
    x = torch.randn(6, 16)
    x[:, -1] = 9.0  # the last one is never the nearest, so that the fault stays inside of the table
    return Example(Nearest(), (x, torch.arange(16.0)))


class Flattened(nn.Module):
    def forward(self, grid: Tensor, row: Tensor, column: Tensor) -> Tensor:
        at = row * 1000 + column
        return torch.gather(grid.flatten(), 0, at).tanh()  # culprit


def _flattened() -> Example:
    grid, good = torch.ones(30, 1000), torch.arange(12) * 2
    bad = good.clone()
    bad[7] = 90_000_000
    return Example(Flattened(), (grid, good, good + 5), (grid, bad, good + 5))


REPORTS = (
    Report(
        97365,
        "an index, less one, is out of bounds",
        _before,
        "both raise",
        ("fault",),
        (r"aten\.index",),
        ("places[6]",),
    ),
    Report(
        97365,
        "an index, less one, is out of bounds; run and show",
        _before,
        "both raise",
        ("fault",),
        command="run",
        part="-run",
    ),
    Report(
        95143,
        "index_add past the last row",
        _scattered,
        "both raise",
        ("fault",),
        (r"aten\.index_(add|put)",),
        ("rows[2]",),
    ),
    Report(
        121251,
        "index_select by a buffer that is out of bounds",
        lambda: Example(Chosen(), (torch.zeros(4, 3),)),
        "both raise",
        ("fault",),
        (r"aten\.index",),
        ("chosen[3]",),
    ),
    Report(
        183608,
        "an embedding takes a negative index",
        lambda: Example(Embedded(), (torch.zeros(2, 3, dtype=torch.int64),), (torch.tensor([[1, 2, 0], [4, -2, 8]]),)),
        "both raise",
        ("fault", *REFUSED),
        (r"aten\.embedding|aten\.index",),
        ("tokens[1, 1]",),
    ),
    Report(
        111952,
        "an index that sums make is out of bounds",
        lambda: Example(
            Counted(), (torch.ones(10), torch.tensor([1, 2, 2])), (torch.ones(10), torch.tensor([1, 5, 6]))
        ),
        "both raise",
        ("fault",),
        (r"aten\.index",),
        ("lengths",),
    ),
    Report(
        144836,
        "max_unpool2d with an index that is out of bounds",
        _unpooled,
        "both raise",
        ("fault", *REFUSED),
        (r"aten\.(max_unpool2d|index_put|index)",),
        ("indices[0, 0, 2, 1]",),
    ),
    Report(
        99879,
        "argmin returns another index",
        _nearest,
        "differs",
        CHANGED,
        (r"aten\.argmin",),
        plant="argmin is one too far",
    ),
    Report(
        94830,
        "an index of two inputs is out of bounds, in a compiled package",
        _flattened,
        "both raise",
        ("fault",),
        (r"aten\.gather|gather",),
        ("row[7]",),
        command="compiled",
    ),
)
