"""Planted faults of origins.py: an index that passes through one to four launches before it is used."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from benchmarks.triage.planted_origins import FAR, SEPARATE, UNCHECKED, Case, Program, Table, at, hashed, ids, numbers
from benchmarks.triage.planted_origins_operators import kept


class Once(Table):
    """A copy is between."""

    def forward(self, index: Tensor) -> Tensor:
        return self.table[kept(index)] * 2  # fault


class Shifted(Table):
    """Computed in one launch and used in another."""

    def forward(self, index: Tensor, shift: Tensor) -> Tensor:
        moved = index - shift  # made
        return self.table[kept(moved)] * 2  # fault


class Largest(Table):
    """The largest of a row of indices: a launch of its own."""

    def forward(self, index: Tensor, key: Tensor) -> Tensor:
        last = index.amax(-1)
        return self.table[kept(last)] + key[:, None] % 3  # fault


class Sorted(Table):
    """Sorting moves the number to another place."""

    def forward(self, index: Tensor) -> Tensor:
        ordered = index.sort(dim=-1).values
        return self.table[ordered] - 1  # fault


class Best(nn.Module):
    """The place of the largest of 60 scores, for 50 rows."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(numbers(50, 8))

    def forward(self, scores: Tensor, index: Tensor) -> Tensor:
        best = scores.argmax(-1)  # made
        return self.table[best] * index[:, None]  # fault


class TopK(Table):
    def forward(self, scores: Tensor) -> Tensor:
        places = scores.topk(3, dim=-1).indices  # made
        return self.table[places].sum(1)  # fault


class Summed(Table):
    """Lengths become places where rows begin."""

    def forward(self, lengths: Tensor) -> Tensor:
        ends = lengths.cumsum(0)  # made
        return self.table[ends] * 2  # fault


class NonZero(Table):
    def forward(self, mask: Tensor) -> Tensor:
        chosen = mask.nonzero().squeeze(1)  # made
        return self.table[chosen].exp()  # fault


class Bucketed(Table):
    """A number behind the last boundary has a bucket that the table has no row for."""

    def __init__(self) -> None:
        super().__init__(20)

    def forward(self, x: Tensor, boundaries: Tensor) -> Tensor:
        bucket = torch.bucketize(x, boundaries)  # made
        return self.table[kept(bucket)]  # fault


class ThreeTables(nn.Module):
    """Each table holds indices of the next."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("parent", ids(30, below=25))
        self.register_buffer("group", ids(25, below=40))
        self.rows = nn.Embedding(40, 8)

    def forward(self, leaf: Tensor) -> Tensor:
        parent = kept(self.parent[leaf])  # fault
        group = kept(self.group[parent])  # fault
        return self.rows(group) * 2  # fault


class Chain(Table):
    """Four launches, of which two compute."""

    def forward(self, page: Tensor, size: Tensor, key: Tensor) -> Tensor:
        start = kept(page * size)  # made
        turned = start.flip(0).sort().values
        index = kept(turned) + 1  # made
        return self.table[kept(index)] * (key % 3)[:, None]  # fault


class Stacked(Table):
    """Stacked, permuted, sliced, expanded between the launches."""

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        both = kept(torch.stack([left, right], dim=1))
        turned = kept(both.permute(1, 0)[1:])
        return self.table[turned.reshape(-1).expand(2, -1)].mean(0)  # fault


class Separate(Table):
    """Plain arithmetic, each operator in a launch of its own."""

    def forward(self, index: Tensor, count: Tensor) -> Tensor:
        row = (index * 4).amax(-1)  # made
        slot = (row[:, None] + count).amax(-1) // 4  # made
        return self.table[slot].relu()  # fault


class Converted(Table):
    """Numbers become indices in another launch."""

    def forward(self, x: Tensor, key: Tensor) -> Tensor:
        cell = kept((x * 49).to(torch.int32))  # made
        return self.table[cell] + key[:, None] % 2  # fault


class FromZero(Table):
    """A division by zero makes an infinity, and that an index."""

    def forward(self, x: Tensor, norm: Tensor) -> Tensor:
        index = (x / norm).amax(-1).int()  # made
        return self.table[kept(index)] * 2  # fault


class ScatteredLater(nn.Module):
    """Scatters with an index of another launch."""

    def forward(self, x: Tensor, slot: Tensor, values: Tensor) -> Tensor:
        place = kept(slot + 2)  # made
        return x.cos().index_put((place,), values)  # fault


class GatheredLater(nn.Module):
    """Gathers indices, and with them."""

    def forward(self, x: Tensor, order: Tensor, pick: Tensor) -> Tensor:
        index = kept(order.gather(1, pick))
        return x.sin().gather(1, index)  # fault


class ChosenLater(Table):
    """One of two inputs, by a mask; the other holds larger numbers where it is not chosen."""

    def forward(self, mask: Tensor, index: Tensor, other: Tensor) -> Tensor:
        chosen = kept(torch.where(mask, index, other))
        return self.table[chosen] + 1  # fault


class LossLater(nn.Module):
    """Targets are mapped to classes first."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("classes", ids(30, below=10))
        self.head = nn.Linear(8, 10)

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        label = kept(self.classes[target])
        return F.cross_entropy(self.head(x), label)  # fault


class Key(Table):
    """The same number in a key and in what becomes the index, both through launches of their own."""

    def forward(self, key: Tensor, index: Tensor) -> Tensor:
        scale, row = kept(key), kept(index)
        return self.table[kept(row)] * scale[:, None]  # fault


class Copied(nn.Module):
    """Rows are copied to an index of another launch."""

    def forward(self, x: Tensor, index: Tensor, rows: Tensor) -> Tensor:
        place = kept(index.flip(0))
        return x.sin().index_copy(0, place, rows)  # fault


class Rolled(Table):
    """Rolled, cut, and put together with another input, in launches of their own."""

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        joined = kept(torch.cat([left.roll(2), right[3:]]))
        return self.table[kept(joined[1:-1])].tanh()  # fault


class Bag(nn.Module):
    """Bags of embeddings are computed by eager."""

    def __init__(self) -> None:
        super().__init__()
        self.bag = nn.EmbeddingBag(50, 8, mode="sum")

    def forward(self, tokens: Tensor, offsets: Tensor) -> Tensor:
        return self.bag(tokens + 1, offsets).relu()  # fault # made


class Overflown(Table):
    """int32: nothing that comes in is larger than the table."""

    def __init__(self) -> None:
        super().__init__(40)

    def forward(self, index: Tensor) -> Tensor:
        offset = kept(index * 100_000_000)  # made
        return self.table[offset // 50_000_000] * 2  # fault


PROGRAMS = {
    "once": Program(Once, lambda: (ids(12),)),
    "once, unchecked": Program(Once, lambda: (ids(12),), UNCHECKED),
    "shifted": Program(Shifted, lambda: (ids(12), ids(12))),
    "largest": Program(Largest, lambda: (ids(6, 40), hashed(6))),
    "sorted": Program(Sorted, lambda: (ids(3, 12),)),
    "best": Program(Best, lambda: (numbers(4, 60).flip(1), ids(4) * 100)),
    "topk": Program(TopK, lambda: (numbers(4, 60).flip(1),)),
    "summed": Program(Summed, lambda: (ids(12, below=4),)),
    "nonzero": Program(NonZero, lambda: (torch.arange(80) % 7 + torch.arange(80) // 50 * 100 == 2,)),
    "bucketed": Program(Bucketed, lambda: (numbers(12), numbers(20))),
    "three tables": Program(ThreeTables, lambda: (ids(12, below=30),)),
    "chain": Program(Chain, lambda: (ids(12, below=7), ids(12, below=6), hashed(12))),
    "stacked": Program(Stacked, lambda: (ids(12) + 1000, ids(12))),
    "separate": Program(Separate, lambda: (ids(6, 40, below=40), ids(6, 40, below=20)), SEPARATE),
    "converted": Program(Converted, lambda: (numbers(12).abs(), hashed(12))),
    "from zero": Program(FromZero, lambda: (numbers(4, 40) + 2, numbers(4, 40) * 0 + 1)),
    "scattered later": Program(ScatteredLater, lambda: (numbers(20, 4), ids(6, below=17), numbers(6, 4))),
    "gathered later": Program(
        GatheredLater, lambda: (numbers(4, 20), ids(4, 12, below=20), ids(4, 6, below=12))
    ),
    "chosen later": Program(ChosenLater, lambda: (ids(12) % 3 > 0, ids(12), ids(12, below=47))),
    "loss later": Program(LossLater, lambda: (numbers(6, 8), ids(6, below=30))),
    "key": Program(Key, lambda: (ids(12), ids(12))),
    "copied": Program(Copied, lambda: (numbers(20, 4), torch.arange(6) * 3, numbers(6, 4))),
    "rolled": Program(Rolled, lambda: (ids(8), ids(8))),
    "bag": Program(Bag, lambda: (ids(20, below=49), torch.tensor([0, 4, 8, 12]))),
    "overflown": Program(Overflown, lambda: (ids(12, below=20, dtype=torch.int32),)),
}  # fmt: skip
CASES = (
    Case("once: past the end", "once", at("index", 5, 53)),
    Case("once: far away", "once, unchecked", at("index", 8, -FAR), is_compiled=True),
    Case("shifted: by too much", "shifted", at("shift", 4, 120)),
    Case("shifted: too large", "shifted", at("index", 7, 149), is_compiled=True),
    Case("largest of a row", "largest", at("index", 3, 31, 50)),
    Case("sorted to another place", "sorted", at("index", 1, 2, 61), is_compiled=True),
    Case("argmax beyond the table", "best", at("scores", 2, 55, 9), is_element=False),
    Case("topk beyond the table", "topk", at("scores", 1, 58, 7), is_element=False),
    Case("cumsum beyond the table", "summed", at("lengths", 5, 40), is_element=False),
    Case("nonzero beyond the table", "nonzero", at("mask", 71, 1), is_element=False),
    Case("bucket beyond the table", "bucketed", at("x", 9, 3), is_element=False),
    Case("three tables: the first", "three tables", at("parent", 13, 26), line="self.group["),
    Case("three tables: the second", "three tables", at("group", 10, 41), line="self.rows(", is_compiled=True),
    Case("three tables: the input", "three tables", at("leaf", 6, 30), line="self.parent["),
    Case("chain of four launches", "chain", at("page", 8, 900)),
    Case("chain: the other factor", "chain", at("size", 4, 700), is_compiled=True),
    Case("stacked, permuted, sliced", "stacked", at("right", 3, 55), is_compiled=True),
    Case("separate launches", "separate", at("index", 2, 17, 300)),
    Case("separate launches: the addend", "separate", at("count", 5, 3, 999), is_compiled=True),
    Case("converted elsewhere", "converted", at("x", 8, 1.5)),
    Case("infinity as an index", "from zero", at("norm", 2, 6, 0.0)),
    Case("scatter with a shifted slot", "scattered later", at("slot", 1, 18), is_compiled=True),
    Case("gather of gathered", "gathered later", at("order", 2, 5, 20)),
    Case("chosen of two", "chosen later", at("other", 0, 58), at("index", 0, 900), is_compiled=True),
    Case("loss: a class of a buffer", "loss later", at("classes", 24, 10)),
    Case("key: another input holds the same number", "key", at("index", 7, 73), at("key", 1, 73)),
    Case("key, in a package", "key", at("index", 2, -99), at("key", 0, -99), is_compiled=True),
    Case("index_copy with a turned index", "copied", at("index", 1, 25)),
    Case("rolled and joined", "rolled", at("left", 7, 64)),
    Case("rolled and joined, in a package", "rolled", at("right", 5, 64), is_compiled=True),
    Case("bag of embeddings", "bag", at("tokens", 7, 49)),
    Case("bag of embeddings: where the first begins", "bag", at("offsets", 0, 1), is_element=False),
    Case("int32 overflow", "overflown", at("index", 6, 22), is_compiled=True),
)  # fmt: skip
