"""Operators that throw, crash, hang, write where they must not, or leave their result unwritten."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from tests.corpus.case import BOTH, CPU, GENERATED, Case, Example, Expected, Make


class Native(nn.Module):
    """Calls a native operator in the middle of a model."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.operator = getattr(torch.ops.corpus_native, name)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.operator(x * 2)  # origin
        return y.relu() + 1


class LookedUp(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = torch.ops.corpus.looked_up(x * 2)  # origin
        return y + 1


class Waits(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = torch.ops.corpus.waits(x * 2)  # origin
        return y + 1


class Filled(nn.Module):
    """Fills a buffer that the model has allocated."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.operator = getattr(torch.ops.corpus_native, name)

    def forward(self, x: Tensor) -> Tensor:
        out = torch.empty_like(x)
        self.operator(out, 3.0)  # origin
        return out + x.sum()


class NextRow(nn.Module):
    """Writes a row by an index; one row past the end is still this process's memory."""

    def forward(self, x: Tensor, index: Tensor, row: Tensor) -> Tensor:
        out = x.sin()
        out[index] = row  # origin
        return torch.ops.corpus.scaled(out, 2.0)


def batch(device: str) -> Tensor:
    return torch.linspace(1, 2, 64, device=device)


def native(module: Callable[[str], nn.Module], name: str) -> Make:
    return lambda device: Example(module(name), (batch(device),))


def next_row(device: str) -> Example:
    x, row = torch.ones(16, 16, device=device), torch.ones(16, device=device)
    good = torch.tensor([3], device=device)
    return Example(NextRow(), (x, good, row), inputs=(x, good + 13, row))


def operator(kind: str, name: str) -> Expected:
    return Expected(kind, (f"corpus*::{name}*",))


GUARDS = ("--guards",)
CASES = (
    Case("operator_throws", native(Native, "throws"), operator("fault", "throws"), native=True),
    Case("operator_raises", lambda d: Example(LookedUp(), (batch(d),)), operator("fault", "looked_up")),
    Case("operator_segfaults", native(Native, "segfaults"), operator("fault", "segfaults"), native=True),
    Case("operator_aborts", native(Native, "aborts"), operator("fault", "aborts"), CPU, native=True),
    Case("operator_spins", native(Native, "spins"), operator("hang", "spins"), CPU, ("--timeout", "5"), native=True),
    Case("operator_waits", lambda d: Example(Waits(), (batch(d),)), operator("hang", "waits"), BOTH,
         ("--timeout", "5")),
    Case("operator_writes_past_end", native(Filled, "fill_past"), operator("overrun", "fill_past"), CPU, GUARDS,
         native=True),
    Case("operator_writes_before", native(Filled, "fill_before"), operator("overrun", "fill_before"), CPU, GUARDS,
         native=True),
    Case("write_into_neighbour", next_row, Expected("overrun", inputs=("index",)), BOTH, GUARDS,
         {"assert_indirect_indexing": False}),
    Case("half_left_unwritten", native(Filled, "fill_half"), Expected("uninitialised", GENERATED), BOTH, GUARDS,
         native=True),
)  # fmt: skip
