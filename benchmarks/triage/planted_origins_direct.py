"""Planted faults of origins.py: an index that comes in, or is computed by the launch that uses it."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from benchmarks.triage.planted_origins import FAR, UNCHECKED, Case, Program, Table, at, hashed, ids, numbers


class Embedded(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(50, 8)

    def forward(self, tokens: Tensor, scale: Tensor) -> Tensor:
        return self.words(tokens).sum(1) * scale  # fault


class Paired(Table):
    def forward(self, rows: Tensor, columns: Tensor) -> Tensor:
        return self.table[rows, columns].sin() + 1  # fault


class Gathered(nn.Module):
    def forward(self, x: Tensor, index: Tensor) -> Tensor:
        return x.exp().gather(1, index) * 2  # fault


class Taken(nn.Module):
    """As if the table had one dimension."""

    def forward(self, x: Tensor, place: Tensor) -> Tensor:
        return torch.take(x * 3, place) - 1  # fault


class Selected(nn.Module):
    def forward(self, x: Tensor, index: Tensor, seed: Tensor) -> Tensor:
        return x.index_select(0, index) + seed % 7  # fault


class Scattered(nn.Module):
    def forward(self, x: Tensor, index: Tensor, values: Tensor) -> Tensor:
        return x.sin().scatter(1, index, values)  # fault


class Filled(nn.Module):
    def forward(self, x: Tensor, index: Tensor) -> Tensor:
        return x.cos().index_fill(0, index, 3.0) + 1  # fault


class Put(nn.Module):
    def forward(self, x: Tensor, index: Tensor, values: Tensor) -> Tensor:
        return (x * 2).index_put((index,), values, accumulate=True)  # fault


class IndexAdded(nn.Module):
    def forward(self, x: Tensor, index: Tensor, values: Tensor) -> Tensor:
        return (x * 2).index_add(0, index, values, alpha=0.5)  # fault


class Masked(Table):
    """Bad numbers count only where the mask is true."""

    def forward(self, index: Tensor, mask: Tensor) -> Tensor:
        chosen = torch.where(mask, index, 0)
        return self.table[chosen] * 2  # fault


class Clamped(Table):
    """Clamped below, and not above."""

    def forward(self, index: Tensor) -> Tensor:
        return self.table[index.clamp(min=0)].relu()  # fault


class Column(Table):
    """Only one column of the indices is used."""

    def forward(self, pairs: Tensor) -> Tensor:
        return self.table[pairs[:, 1]] - 1  # fault


class Joined(Table):
    """Two inputs one after another; a third holds larger numbers."""

    def forward(self, left: Tensor, right: Tensor, key: Tensor) -> Tensor:
        index = torch.cat([left, right])
        return self.table[index] * (key % 5)[:, None]  # fault


class Alike(Table):
    """The same number as an index and as a number."""

    def forward(self, count: Tensor, index: Tensor) -> Tensor:
        return self.table[index] * count[:, None]  # fault


class TwoTables(nn.Module):
    """Users are many, items are few."""

    def __init__(self) -> None:
        super().__init__()
        self.users, self.items = nn.Embedding(1000, 8), nn.Embedding(50, 8)

    def forward(self, user: Tensor, item: Tensor) -> Tensor:
        return (self.users(user) * self.items(item)).sum(-1)  # fault


class Difference(Table):
    def forward(self, end: Tensor, begin: Tensor) -> Tensor:
        length = end - begin  # made
        return self.table[length] * 2  # fault


class Remainder(Table):
    """The modulus is larger than the table."""

    def forward(self, key: Tensor) -> Tensor:
        slot = key % 64  # made
        return self.table[slot] + 1  # fault


class Quotient(Table):
    def forward(self, position: Tensor) -> Tensor:
        page = position // 16  # made
        return self.table[page] + 1  # fault


class Narrowed(Table):
    """int32 and uint8 make an index."""

    def forward(self, high: Tensor, low: Tensor) -> Tensor:
        index = high.long() * 16 + low.long()  # made
        return self.table[index] + 1  # fault


class Floored(Table):
    def forward(self, x: Tensor) -> Tensor:
        cell = (x * 50).floor().long()  # made
        return self.table[cell] * x[:, None]  # fault


class Remapped(nn.Module):
    """Indices are looked up in a buffer first."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("remap", ids(20))
        self.table = nn.Parameter(numbers(50, 8))

    def forward(self, word: Tensor) -> Tensor:
        return self.table[self.remap[word]] * 2  # fault


class RemappedInput(Table):
    def forward(self, remap: Tensor, word: Tensor) -> Tensor:
        return self.table[remap[word]] * 2  # fault


class Broadcast(Table):
    """Rows of a batch begin at offsets."""

    def forward(self, position: Tensor, offset: Tensor) -> Tensor:
        index = position + offset[:, None]  # made
        return self.table[index].sum(1)  # fault


class Turned(Table):
    def forward(self, index: Tensor) -> Tensor:
        return self.table[index.t().expand(2, 6, 4)].sum(2)  # fault


class Loss(nn.Module):
    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(logits, target)  # fault


class Literal(Table):
    """The model holds the bad index itself."""

    def forward(self, x: Tensor) -> Tensor:
        index = torch.tensor([4, 8, 15, 16, 23, 42, 108])  # made
        return self.table[index] * x  # fault


PROGRAMS = {
    "embedding": Program(Embedded, lambda: (ids(6, 5), numbers(8))),
    "embedding, far": Program(Embedded, lambda: (ids(6, 5), numbers(8)), UNCHECKED),
    "index": Program(Paired, lambda: (ids(12), ids(12, below=8))),
    "gather": Program(Gathered, lambda: (numbers(4, 20), ids(4, 6, below=20))),
    "take": Program(Taken, lambda: (numbers(4, 20), ids(4, 5, below=80))),
    "index_select": Program(Selected, lambda: (numbers(20, 8), ids(6, below=20), hashed(8))),
    "scatter": Program(Scattered, lambda: (numbers(4, 20), ids(4, 3, below=20), numbers(4, 3))),
    "index_fill": Program(Filled, lambda: (numbers(20, 4), ids(6, below=20))),
    "index_put": Program(Put, lambda: (numbers(20, 4), ids(6, below=20), numbers(6, 4))),
    "index_add": Program(IndexAdded, lambda: (numbers(20, 4), ids(6, below=20), numbers(6, 4))),
    "masked": Program(Masked, lambda: (ids(12), ids(12) % 3 > 0)),
    "clamp": Program(Clamped, lambda: (ids(12),)),
    "column": Program(Column, lambda: (ids(12, 3),)),
    "cat": Program(Joined, lambda: (ids(5), ids(7), hashed(12))),
    "alike": Program(Alike, lambda: (ids(12), ids(12))),
    "two tables": Program(TwoTables, lambda: (ids(12, below=1000) + 12, ids(12))),
    "difference": Program(Difference, lambda: (ids(12) + 200, ids(12) + 200)),
    "remainder": Program(Remainder, lambda: (hashed(12) // 64 * 64 + ids(12),)),
    "quotient": Program(Quotient, lambda: (ids(12) * 16 + 5,)),
    "narrow": Program(
        Narrowed, lambda: (ids(12, below=3, dtype=torch.int32), ids(12, below=16).to(torch.uint8))
    ),
    "floor": Program(Floored, lambda: (numbers(12).abs() * 0.9,)),
    "remap": Program(Remapped, lambda: (ids(12, below=20),)),
    "remap input": Program(RemappedInput, lambda: (ids(20), ids(12, below=20))),
    "broadcast": Program(Broadcast, lambda: (ids(4, 6, below=10), ids(4, below=40))),
    "turned": Program(Turned, lambda: (ids(4, 6),)),
    "loss": Program(Loss, lambda: (numbers(6, 10), ids(6, below=10))),
    "literal": Program(Literal, lambda: (numbers(8),)),
}  # fmt: skip
CASES = (
    Case("embedding past the end", "embedding", at("tokens", 4, 2, 50)),
    Case("embedding before the beginning", "embedding", at("tokens", 1, 0, -51), is_compiled=True),
    Case("embedding far away", "embedding, far", at("tokens", 3, 3, FAR)),
    Case("index: the second of two", "index", at("columns", 7, 8), at("rows", 3, 49)),
    Case("index: the first of two", "index", at("rows", 11, 77), is_compiled=True),
    Case("gather past the end", "gather", at("index", 2, 5, 20)),
    Case("take past the end", "take", at("place", 3, 1, 80), is_compiled=True),
    Case("index_select beside a seed", "index_select", at("index", 4, 31), at("seed", 2, 10**12)),
    Case("scatter past the end", "scatter", at("index", 1, 2, 21)),
    Case("index_fill past the end", "index_fill", at("index", 5, 20)),
    Case("index_put before the beginning", "index_put", at("index", 3, -21)),
    Case("index_add past the end", "index_add", at("index", 0, 20)),
    Case("masked: a bad number that counts", "masked", at("index", 4, 99), at("index", 0, 900), is_compiled=True),
    Case("clamp that misses", "clamp", at("index", 9, 50), at("index", 2, -700)),
    Case("column: another holds the same number", "column", at("pairs", 8, 1, 66), at("pairs", 2, 0, 66)),
    Case("cat: in the second", "cat", at("right", 6, 51), is_compiled=True),
    Case("alike: used as a number", "alike", at("index", 10, 88), at("count", 2, 88), is_compiled=True),
    Case("two tables: valid for the other", "two tables", at("item", 5, 60), is_compiled=True),
    Case("difference below zero", "difference", at("begin", 3, 900)),
    Case("remainder above the table", "remainder", at("key", 6, 64 * 5 + 55), is_compiled=True),
    Case("quotient above the table", "quotient", at("position", 2, 1600)),
    Case("cast of a byte", "narrow", at("low", 4, 250)),
    Case("floor of a number", "floor", at("x", 7, 1.25)),
    Case("remap: a buffer's number", "remap", at("remap", 17, 50)),
    Case("remap: an input's number", "remap input", at("remap", 13, -60), is_compiled=True),
    Case("broadcast: the offset", "broadcast", at("offset", 2, 60)),
    Case("turned and expanded", "turned", at("index", 2, 5, 58)),
    Case("loss: the target", "loss", at("target", 4, 10)),
    Case("literal of the model", "literal", is_element=False),
)  # fmt: skip
