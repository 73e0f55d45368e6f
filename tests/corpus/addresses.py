"""Faults by addresses: indices past the end, before the beginning, overflown; tables without rows."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim

from tests.corpus.case import CPU, GENERATED, Case, Example, Expected, Make

FAR = 1 << 36  # rows: an address that is mapped nowhere
REDUCED = 32  # elements: a reduction of so many is a launch of its own
UNCHECKED = {"assert_indirect_indexing": False}  # Inductor's own checks of indices left out


class Table(nn.Module):
    """A table that is looked up."""

    def __init__(self, rows: int = 1000, width: int = 64) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.linspace(-1, 1, rows * width).view(rows, width))


class Lookup(Table):
    def forward(self, index: Tensor) -> Tensor:
        return self.table[index] * 2


class LookupLater(Table):
    """The index is made three launches before it is used: the operator and the two products are between."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Linear(8, 8)

    def forward(self, ids: Tensor, x: Tensor) -> Tensor:
        index = (ids * (1 << 33)).amax(-1)  # origin
        scale = torch.ops.corpus.count(index)
        weight = self.mix(self.mix(x * scale)).sum()
        return self.table[index] * weight


class Overflow32(Table):
    """int32: 3000 times a million is negative."""

    def forward(self, ids: Tensor) -> Tensor:
        offset = (ids * 1_000_000).amax(-1)  # origin
        scale = torch.ops.corpus.count(offset)
        return self.table[offset] * scale


class Overflow32Fused(Table):
    """The product is computed in the kernel that uses it."""

    def forward(self, ids: Tensor) -> Tensor:
        return self.table[ids * 1_000_000]  # origin


class FloatIndex(Table):
    """An index from a division by zero: Inf as an integer."""

    def forward(self, x: Tensor, norm: Tensor) -> Tensor:
        index = (x / norm).amax(-1).int()  # origin
        scale = torch.ops.corpus.count(index)
        return self.table[index] * scale


class Rows(nn.Module):
    def forward(self, table: Tensor, index: Tensor) -> Tensor:
        return torch.relu(table[index] * 2) + 1


class Scatter(nn.Module):
    def forward(self, x: Tensor, index: Tensor, values: Tensor) -> Tensor:
        out = x.sin()
        out[index] = values
        return out


class ScatterAdd(nn.Module):
    def forward(self, x: Tensor, index: Tensor, values: Tensor) -> Tensor:
        return torch.index_put(x.sin(), (index,), values, accumulate=True)


class Bag(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bag = nn.EmbeddingBag(50, 16, mode="sum")

    def forward(self, ids: Tensor, offsets: Tensor) -> Tensor:
        result: Tensor = self.bag(ids, offsets)
        return result.relu()


class Step(Table):
    """A cursor that moves on at every call."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("cursor", torch.zeros(4, REDUCED, dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        index = (self.cursor * FAR).amax(-1)  # origin
        scale = torch.ops.corpus.count(index)
        rows = self.table[index] * scale + x
        self.cursor.add_(1)
        return rows


class Branch(Table):
    def forward(self, x: Tensor, index: Tensor) -> Tensor:
        def far(x: Tensor, index: Tensor) -> Tensor:
            return self.table[index + FAR] * x  # origin

        def near(x: Tensor, index: Tensor) -> Tensor:
            return self.table[index] + x

        result: Tensor = torch.cond(x.sum() > 0, far, near, (x, index))
        return result


class Loop(Table):
    def forward(self, x: Tensor, index: Tensor) -> Any:
        def more(i: Tensor, total: Tensor) -> Tensor:
            return i < 10

        def step(i: Tensor, total: Tensor) -> tuple[Tensor, Tensor]:
            return i + 1, total + self.table[index + (i // 7) * FAR]  # origin

        # torch keeps no line of what is inside of the loop: the loop's own is as near as it gets.
        start = (torch.zeros((), dtype=torch.int64, device=x.device), x)
        return torch.while_loop(more, step, start)  # origin


class Pages(nn.Module):
    """Integers divided by integers."""

    def forward(self, total: Tensor, size: Tensor) -> Tensor:
        return torch.div(total, size, rounding_mode="floor") + 1  # origin


class LeftOver(nn.Module):
    """A divisor that is computed in the kernel."""

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return (a * 3) % (b - 1) + a


class RowAndColumn(Table):
    """An index of two inputs, through two launches; one of them is as ever."""

    def forward(self, row: Tensor, column: Tensor) -> Tensor:
        index = row.amax(-1) * 8 + column.amax(-1)
        scale = torch.ops.corpus.count(index)
        return self.table[index] * scale


INDEX = (3, 1, 4, 15, 9, 26, 5, 35)


def index_on(device: str, bad: int | None = None, dtype: torch.dtype = torch.int64) -> Tensor:
    index = torch.tensor(INDEX, dtype=dtype)
    if bad is not None:
        index[5] = bad
    return index.to(device)


def lookup(bad: int) -> Make:
    def make(device: str) -> Example:
        return Example(Lookup().to(device), (index_on(device),), inputs=(index_on(device, bad),))

    return make


def later(device: str) -> Example:
    ids, x = index_on(device).view(8, 1).expand(8, REDUCED).contiguous(), torch.ones(2, 8, device=device)
    return Example(LookupLater().to(device), (ids * 0, x), inputs=(ids, x))


def overflow32(device: str) -> Example:
    good = torch.zeros(8, REDUCED, dtype=torch.int32, device=device)
    return Example(Overflow32().to(device), (good,), inputs=(good + 3000,))


def overflow32_fused(device: str) -> Example:
    good = torch.zeros(8, dtype=torch.int32, device=device)
    return Example(Overflow32Fused().to(device), (good,), inputs=(good + 3000,))


def float_index(device: str) -> Example:
    x, norm = (torch.ones(8, REDUCED, device=device) for _ in range(2))
    return Example(FloatIndex().to(device), (x, norm), inputs=(x, norm * 0))


def no_rows(device: str) -> Example:
    table, index = torch.ones(10, 64, device=device), index_on(device) % 10
    dynamic = ({0: Dim("rows", min=0, max=4096)}, None)
    return Example(Rows(), (table, index), dynamic=dynamic, inputs=(table[:0].clone(), index))


def scatter(module: type[nn.Module], bad: int) -> Make:
    def make(device: str) -> Example:
        x, values = torch.ones(64, 16, device=device), torch.ones(8, 16, device=device)
        return Example(module(), (x, index_on(device), values), inputs=(x, index_on(device, bad), values))

    return make


def bag(device: str) -> Example:
    ids, offsets = torch.arange(20, device=device), torch.tensor([0, 4, 8, 12], device=device)
    return Example(Bag().to(device), (ids, offsets), inputs=(ids * 3, offsets))


def branch(device: str) -> Example:
    x = torch.ones(8, 64, device=device)
    return Example(Branch().to(device), (-x, index_on(device)), inputs=(x, index_on(device)), strict=True)


def loop(device: str) -> Example:
    return Example(Loop().to(device), (torch.zeros(8, 64, device=device), index_on(device)), strict=True)


def pages(device: str) -> Example:
    total, size = torch.arange(8, device=device), torch.ones(8, dtype=torch.int64, device=device)
    zero = size.clone()
    zero[5] = 0
    return Example(Pages(), (total, size), inputs=(total, zero))


def left_over(device: str) -> Example:
    a, b = torch.arange(40, device=device), torch.arange(40, device=device) + 2
    one = b.clone()
    one[22] = 1
    return Example(LeftOver().to(device), (a, b), inputs=(a, one))


def offsets(device: str) -> Example:
    row = torch.arange(8 * REDUCED, device=device).view(8, REDUCED) % 50
    column, far = row % 8, row.clone()
    far[3, 0] = FAR
    return Example(RowAndColumn().to(device), (row, column), inputs=(far, column))


def from_input(*says: str) -> Expected:
    return Expected("fault", GENERATED, inputs=("index",), says=says)


def from_ids(*says: str) -> Expected:
    return Expected("fault", GENERATED, inputs=("ids",), says=says)


def made(*says: str) -> Expected:
    return Expected("fault", GENERATED, says=says)


ROWS = "table has 1000 rows"
PAST = f"index[5] is {FAR}, {ROWS}"

CASES = (
    Case("index_past_end", lookup(FAR),
         Expected("fault", GENERATED, ("*table*",), ("index",), says=(f"aten.index.Tensor: {PAST}",), confirmed="*"),
         configs=UNCHECKED),
    Case("index_negative", lookup(-FAR), from_input(f"aten.index.Tensor: index[5] is {-FAR}, {ROWS}"),
         configs=UNCHECKED),
    Case("index_asserted", lookup(1000), from_input(f"aten.index.Tensor: index[5] is 1000, {ROWS}")),
    Case("index_made_earlier", later,
         Expected("fault", GENERATED, ("*table*",), ("ids",), says=(ROWS, "it comes from ids[0, 0], which is 3")),
         configs=UNCHECKED),
    Case("index_int32_overflow", overflow32, from_ids(f"is -1294967296, {ROWS}"), configs=UNCHECKED),
    Case("index_int32_overflow_fused", overflow32_fused,
         from_ids("aten.mul.Tensor: ids[0] = 3000 * 1000000 = -1294967296: 3000000000 does not fit into int32"),
         configs=UNCHECKED),
    Case("index_from_infinity", float_index,
         Expected("fault", GENERATED, inputs=("norm",), says=(ROWS, "it comes from norm[0, 0], which is 0.0")), CPU,
         configs=UNCHECKED),
    Case("table_without_rows", no_rows,
         Expected("fault", GENERATED, inputs=("table", "index"), says=("index[0] is 3, table has 0 rows",)),
         configs=UNCHECKED),
    Case("scatter_past_end", scatter(Scatter, FAR), from_input(f"index[5] is {FAR}, sin has 64 rows"),
         configs=UNCHECKED),
    Case("index_put_past_end", scatter(ScatterAdd, 64),
         Expected("fault", inputs=("index",), says=("index[5] is 64, sin has 64 rows",))),
    Case("embedding_bag_past_end", bag,
         Expected("fault", ("*embedding_bag*",), inputs=("ids",), says=("ids[17] is 51, bag.weight has 50 rows",)),
         CPU),
    Case("second_call", lambda d: Example(Step().to(d), (torch.ones(4, 64, device=d),)),
         Expected("fault", GENERATED, inputs=("cursor",), call=1, says=(ROWS,)), options=("--calls", "2"),
         configs=UNCHECKED),
    Case("cond_branch", branch,
         made("aten.add.Tensor: index[0] = 3 + 68719476736", "in true_graph_0: index = aten.index.Tensor"), CPU,
         configs=UNCHECKED),
    Case("while_iteration_7", loop,
         made("table has 1000 rows", "in iteration 7 of while_loop_body_graph_0: index = aten.index.Tensor"),
         configs=UNCHECKED),
    Case("integer_division_by_zero", pages,
         Expected("fault", GENERATED, inputs=("size",), says=("aten.div.Tensor_mode: size[5] is 0",)), CPU),
    Case("integer_remainder_by_zero", left_over,
         Expected("fault", GENERATED, inputs=("b",),
                  says=("aten.remainder.Tensor: sub[22] is 0; aten.sub.Tensor: b[22] = 1 - 1 = 0",)), CPU),
    Case("index_from_two_inputs", offsets,
         Expected("fault", GENERATED, inputs=("row",), says=("it comes from row[3, 0], which is 68719476736",)),
         configs=UNCHECKED),
)  # fmt: skip
