"""Planted faults of origins.py: integer divisions and remainders that the processor refuses."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.triage.planted_origins import SEPARATE, Case, Program, at, hashed, ids
from benchmarks.triage.planted_origins_operators import kept

LEAST = -(1 << 63)
LEAST_32 = -(1 << 31)


class Floor(nn.Module):
    def forward(self, total: Tensor, size: Tensor) -> Tensor:
        return total // size + 1  # fault


class Truncated(nn.Module):
    def forward(self, total: Tensor, size: Tensor, key: Tensor) -> Tensor:
        return torch.div(total, size, rounding_mode="trunc") + key % 3  # fault


class Remainder(nn.Module):
    def forward(self, key: Tensor, slots: Tensor) -> Tensor:
        return key % slots * 2  # fault


class Less(nn.Module):
    """The divisor is one less than what comes in."""

    def forward(self, total: Tensor, count: Tensor) -> Tensor:
        return (total * 3) % (count - 1) + total  # fault


class Counted(nn.Module):
    """The divisor counts what is true, in another launch."""

    def forward(self, total: Tensor, mask: Tensor) -> Tensor:
        count = kept(mask.sum(-1))  # made
        return total // count  # fault


class Later(nn.Module):
    """The divisor passes through two launches."""

    def forward(self, total: Tensor, left: Tensor, right: Tensor) -> Tensor:
        width = kept(left - right)  # made
        return torch.remainder(total, kept(width) * 2)  # fault # made


class Chosen(nn.Module):
    """The divisor is looked up."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("sizes", ids(20) + 1)

    def forward(self, total: Tensor, kind: Tensor) -> Tensor:
        return total // self.sizes[kind]  # fault


class Scalar(nn.Module):
    """One divisor for all."""

    def forward(self, total: Tensor, step: Tensor) -> Tensor:
        return total // step  # fault


class Modulo(nn.Module):
    """C's remainder, in another launch than the product."""

    def forward(self, key: Tensor, a: Tensor, b: Tensor) -> Tensor:
        product = (a * b).amax(-1)
        return torch.fmod(key, product)  # fault


PROGRAMS = {
    "floor division": Program(Floor, lambda: (ids(40) * 10, ids(40) + 1)),
    "floor division, int32": Program(Floor, lambda: (ids(40, dtype=torch.int32), ids(40, dtype=torch.int32) + 1)),
    "truncated": Program(Truncated, lambda: (ids(5, 8) * 10, ids(8) + 1, hashed(8))),
    "truncated, int32": Program(
        Truncated, lambda: (ids(5, 8, dtype=torch.int32) * 10, ids(8, dtype=torch.int32) + 1, hashed(8))
    ),
    "modulo": Program(Remainder, lambda: (hashed(40), ids(40) + 1)),
    "less": Program(Less, lambda: (ids(48), ids(48) + 2)),
    "lanes": Program(Less, lambda: (ids(35), ids(35) + 2)),
    "counted": Program(Counted, lambda: (ids(6), torch.arange(240).reshape(6, 40) == torch.arange(6)[:, None] * 41)),
    "divided later": Program(Later, lambda: (hashed(12), ids(12) + 60, ids(12))),
    "looked up": Program(Chosen, lambda: (ids(12) * 10, ids(12, below=20))),
    "scalar": Program(Scalar, lambda: (ids(12) * 10, torch.tensor(4))),
    "fmod": Program(Modulo, lambda: (ids(6), ids(6, 40) * 0 + 1, (torch.arange(240) % 40 == 0).long().reshape(6, 40)),
                    SEPARATE),
}  # fmt: skip
CASES = (
    Case("division by zero", "floor division", at("size", 22, 0), at("total", 3, 0)),
    Case("division by zero, int32", "floor division, int32", at("size", 31, 0)),
    Case("the least number by -1", "truncated", (*at("total", 2, 3, LEAST), *at("size", 3, -1)),
         at("total", 0, 0, LEAST)),
    Case("the least int32 by -1", "truncated, int32", (*at("total", 1, 4, LEAST_32), *at("size", 4, -1)),
         is_compiled=True),
    Case("truncated by a broadcast zero", "truncated", at("size", 6, 0), at("key", 1, 0)),
    Case("remainder by zero", "modulo", at("slots", 17, 0)),
    Case("remainder by zero, in a package", "modulo", at("slots", 38, 0), is_compiled=True),
    Case("divisor less one", "less", at("count", 13, 1), at("total", 20, 1)),
    Case("divisor less one, in a package", "less", at("count", 21, 1), is_compiled=True),
    # torch 2.13 subtracts and divides in lanes of a vector that it has not loaded: no number that comes in is bad
    Case("zeros that no input holds", "lanes", is_element=False, is_compiled=True),
    Case("a count of none", "counted", at("mask", 3, 3, 0), is_element=False),
    Case("divisor through two launches", "divided later", at("right", 7, 62)),
    Case("divisor through two launches, the other", "divided later", at("left", 2, 17), is_compiled=True),
    Case("divisor of a buffer", "looked up", at("sizes", 13, 0)),
    Case("divisor of a buffer, in a package", "looked up", at("sizes", 6, 0), is_compiled=True),
    Case("one divisor for all", "scalar", at("step", 0), at("total", 4, 0)),
    Case("remainder in C's way", "fmod", at("b", 2, 0, 0), is_element=False),
)  # fmt: skip
