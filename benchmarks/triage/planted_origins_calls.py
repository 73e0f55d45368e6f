"""Planted faults of origins.py: operators that raise or crash, loops and branches."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch._higher_order_ops.scan import scan

from benchmarks.triage.planted_origins import UNCHECKED, Case, Program, Table, at, hashed, ids, numbers
from benchmarks.triage.planted_origins_operators import aborts, checked, kept, looked_up, pooled, reads_nowhere


class Pooled(Table):
    def forward(self, lengths: Tensor, tokens: Tensor) -> Tensor:
        return pooled(lengths, tokens, self.table.tanh()).sigmoid()  # fault


class Checked(nn.Module):
    def forward(self, x: Tensor, key: Tensor) -> Tensor:
        return checked(x * 2, key) + key % 5  # fault


class Aborts(nn.Module):
    def forward(self, x: Tensor, key: Tensor) -> Tensor:
        return aborts(x.sin(), key).cos()  # fault


class ReadsNowhere(nn.Module):
    def forward(self, x: Tensor, key: Tensor) -> Tensor:
        return reads_nowhere(x.exp(), key + 1) * 2  # fault


class LookedUp(Table):
    """Eager's own check, in an operator."""

    def forward(self, index: Tensor, key: Tensor) -> Tensor:
        return looked_up(self.table.sin(), index * 2) + (key % 3)[:, None]  # fault # made


class Inverted(nn.Module):
    """A matrix that has no inverse."""

    def forward(self, x: Tensor, key: Tensor) -> Tensor:
        return torch.linalg.inv(x * 2) + key % 3  # fault


class Drawn(nn.Module):
    """Probabilities below zero."""

    def forward(self, weights: Tensor, key: Tensor) -> Tensor:
        return torch.multinomial(weights * 2, 3, replacement=True) + key % 3  # fault


class WhileLoop(Table):
    """The index grows in every iteration."""

    def forward(self, x: Tensor, index: Tensor, step: Tensor) -> Any:
        def more(i: Tensor, index: Tensor, total: Tensor) -> Tensor:
            return i < 6

        def body(i: Tensor, index: Tensor, total: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            return i + 1, index + step, total + self.table[index]  # fault # made

        start = (torch.zeros((), dtype=torch.int64), index.clone(), x)
        return torch.while_loop(more, body, start)  # fault # made


class Scanned(Table):
    """One step for each row of indices."""

    def forward(self, x: Tensor, rows: Tensor) -> Any:
        def step(total: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
            found = total + self.table[row]  # fault
            return found, found * 2

        return scan(step, x, rows)  # fault


class Branch(Table):
    """Only one branch fails."""

    def forward(self, x: Tensor, index: Tensor) -> Tensor:
        def shifted(x: Tensor, index: Tensor) -> Tensor:
            return self.table[index + 10] * x  # fault # made

        def plain(x: Tensor, index: Tensor) -> Tensor:
            return self.table[index] + x

        result: Tensor = torch.cond(x.sum() > 0, shifted, plain, (x, index))  # fault # made
        return result


class DividingLoop(nn.Module):
    """A division in a loop."""

    def forward(self, total: Tensor, size: Tensor) -> Any:
        def more(i: Tensor, total: Tensor) -> Tensor:
            return i < 4

        def body(i: Tensor, total: Tensor) -> tuple[Tensor, Tensor]:
            return i + 1, total // (size - i)  # fault # made

        return torch.while_loop(more, body, (torch.zeros((), dtype=torch.int64), total))  # fault # made


class BeforeLoop(Table):
    """The index of a loop is computed before it."""

    def forward(self, x: Tensor, index: Tensor, shift: Tensor) -> Any:
        moved = kept(index + shift)  # made

        def more(i: Tensor, total: Tensor) -> Tensor:
            return i < 3

        def body(i: Tensor, total: Tensor) -> tuple[Tensor, Tensor]:
            return i + 1, total + self.table[moved]  # fault

        return torch.while_loop(more, body, (torch.zeros((), dtype=torch.int64), x))  # fault


class Picked(Table):
    """A row whose number is read from a tensor."""

    def forward(self, x: Tensor, index: Tensor) -> Tensor:
        row = index[2].item()
        torch._check(row >= 0)
        torch._check(row < 50)  # fault
        return self.table[row] * x  # fault


class Always(Table):
    """The model's own mistake: nothing that comes in is bad."""

    def forward(self, x: Tensor, index: Tensor) -> Tensor:
        offset = kept(torch.arange(12) * 5)  # made
        return self.table[offset] + x * index[:, None]  # fault


class Unchecked(Table):
    def forward(self, index: Tensor, key: Tensor) -> Tensor:
        far = kept(index * (1 << 33))  # made
        return self.table[far] + (key % 3)[:, None]  # fault


PROGRAMS = {
    "pooled": Program(Pooled, lambda: (torch.tensor([3, 1, 4, 2]), hashed(10))),
    "checked": Program(Checked, lambda: (numbers(8).abs(), hashed(8))),
    "aborts": Program(Aborts, lambda: (numbers(8), hashed(8) // 2 * 2)),
    "reads nowhere": Program(ReadsNowhere, lambda: (numbers(8), hashed(8))),
    "operator looks up": Program(LookedUp, lambda: (ids(12, below=25), hashed(12))),
    "inverted": Program(Inverted, lambda: (torch.eye(4) + numbers(4, 4) / 9, hashed(4, 4))),
    "drawn": Program(Drawn, lambda: (numbers(4, 8).abs(), hashed(4, 3))),
    "while_loop": Program(WhileLoop, lambda: (numbers(12, 8), ids(12, below=30), ids(12, below=4)), strict=True),
    "scan": Program(Scanned, lambda: (numbers(6, 8), ids(5, 6)), strict=True),
    "cond": Program(Branch, lambda: (numbers(12, 8).abs(), ids(12, below=40)), strict=True),
    "dividing loop": Program(DividingLoop, lambda: (hashed(12), ids(12) + 10), strict=True),
    "before the loop": Program(BeforeLoop, lambda: (numbers(12, 8), ids(12, below=40), ids(12, below=10)), strict=True),
    "picked": Program(Picked, lambda: (numbers(8), ids(4))),
    "always": Program(Always, lambda: (numbers(12, 8), hashed(12))),
    "far": Program(Unchecked, lambda: (ids(12, below=1), hashed(12)), UNCHECKED),
}
CASES = (
    Case("operator: lengths that do not add up", "pooled", at("lengths", 2, 5), is_element=False),
    Case("operator: lengths, in a package", "pooled", at("lengths", 0, 2), is_element=False, is_compiled=True),
    Case("operator: a negative number", "checked", at("x", 6, -0.5), is_element=False),
    Case("operator: a negative number, in a package", "checked", at("x", 2, -3.0), is_element=False, is_compiled=True),
    Case("operator aborts", "aborts", at("key", 4, 77), is_element=False),
    Case("operator reads nowhere", "reads nowhere", at("x", 3, 9.0), is_element=False, is_compiled=True),
    Case("operator that looks up", "operator looks up", at("index", 8, 25), is_element=False),
    Case("operator that looks up, in a package", "operator looks up", at("index", 1, -26), is_element=False,
         is_compiled=True),
    Case("a matrix without an inverse", "inverted", tuple(e for c in range(4) for e in at("x", 2, c, 0.0)),
         is_element=False),
    Case("probabilities below zero", "drawn", at("weights", 1, 3, -0.5), is_element=False, is_compiled=True),
    Case("while_loop: an iteration", "while_loop", at("step", 5, 11)),
    Case("while_loop: the start", "while_loop", at("index", 3, 60), is_compiled=True),
    Case("scan: a row", "scan", at("rows", 3, 2, 77)),
    Case("cond: the branch that is taken", "cond", at("index", 7, 45)),
    Case("cond, in a package", "cond", at("index", 2, -61), is_compiled=True),
    Case("division in a loop", "dividing loop", at("size", 6, 2)),
    Case("index of a loop, made before it", "before the loop", at("shift", 9, 88)),
    Case("a row whose number is read", "picked", at("index", 2, 51), at("index", 1, 700), is_element=False),
    Case("the model's own mistake", "always", is_element=False),
    Case("the model's own mistake, in a package", "always", is_element=False, is_compiled=True),
    Case("far away, computed elsewhere", "far", at("index", 4, 8)),
)  # fmt: skip
