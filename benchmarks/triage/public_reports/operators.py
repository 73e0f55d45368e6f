"""Custom operators of the programs of public reports: `--import benchmarks.triage.public_reports.operators`."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor


@torch.library.custom_op("public_reports::bag_sum", mutates_args={})
def bag_sum(counts: Tensor, ids: Tensor, table: Tensor) -> Tensor:
    """Sums the rows of a table that each bag holds; refuses counts that do not add up."""
    total = int(counts.sum())
    if total != len(ids):
        raise ValueError(f"{len(ids)} ids for bags of {total}")
    sums = table.new_zeros(len(counts), table.shape[1])
    return sums.index_add_(0, torch.arange(len(counts)).repeat_interleave(counts), table[ids % len(table)])


@bag_sum.register_fake
def _(counts: Tensor, ids: Tensor, table: Tensor) -> Tensor:
    return table.new_empty(counts.shape[0], table.shape[1])


@torch.library.custom_op("public_reports::advance", mutates_args={"state"})
def advance(state: Tensor, step: Tensor) -> None:
    """Adds to a state in place."""
    state.add_(step)


@torch.library.custom_op("public_reports::half_filled", mutates_args={})
def half_filled(x: Tensor) -> Tensor:
    """Writes the first half of its result."""
    filled = torch.empty_like(x)
    half = x.shape[0] // 2
    filled[:half] = x[:half].exp()
    return filled


@half_filled.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("public_reports::route", mutates_args={})
def route(x: Tensor) -> Tensor:
    """Returns a part of a wider tensor, which its fake kernel takes for a tensor of its own."""
    return torch.nn.functional.pad(x.tanh(), (0, 8))[:, : x.shape[1]]


@route.register_fake
def _(x: Tensor) -> Tensor:
    return x.new_empty(x.shape)


@torch.library.custom_op("public_reports::pairs", mutates_args={})
def pairs(x: Tensor) -> Tensor:
    """Returns one column more than its fake kernel says."""
    return torch.cat([x, x[:, :1]], 1)


@pairs.register_fake
def _(x: Tensor) -> Tensor:
    return x.new_empty(x.shape)


@torch.library.custom_op("public_reports::turned", mutates_args={})
def turned(x: Tensor) -> Tensor:
    """Returns its result in the order of columns, which its fake kernel does not know."""
    return x.cos().t().contiguous().t()


@turned.register_fake
def _(x: Tensor) -> Tensor:
    return x.new_empty(x.shape)


@torch.library.custom_op("public_reports::remembering", mutates_args={})
def remembering(x: Tensor) -> Tensor:
    """Keeps all that it returned."""
    _KEPT.append(x.repeat(64))
    return _KEPT[-1][: len(x)] * 1


@remembering.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("public_reports::jittered", mutates_args={})
def jittered(x: Tensor) -> Tensor:
    """Adds random numbers of its own."""
    return x + torch.rand_like(x) * 0.2


@jittered.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("public_reports::doubled_in_place", mutates_args={})
def doubled_in_place(x: Tensor) -> Tensor:
    """Doubles its argument, and does not declare it."""
    x.mul_(2)
    return x.mean(1)


@doubled_in_place.register_fake
def _(x: Tensor) -> Tensor:
    return x.new_empty(x.shape[0])


@torch.library.custom_op("public_reports::widened", mutates_args={})
def widened(x: Tensor) -> Tensor:
    """Returns float64, where its fake kernel says float32."""
    return x.double().exp()


@widened.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


# A custom_op of torch.library may not return its argument; an operator that is defined by hand is not checked
_LIBRARY = torch.library.Library("public_reports", "FRAGMENT")
_LIBRARY.define("passed(Tensor x) -> Tensor")
_LIBRARY.impl("passed", lambda x: x, "CPU")
torch.library.register_fake("public_reports::passed", torch.empty_like, lib=_LIBRARY)


def passed(x: Tensor) -> Tensor:
    """Returns its argument, where its schema declares a tensor of its own."""
    result: Tensor = torch.ops.public_reports.passed(x)
    return result


_KEPT: list[Tensor] = []


@torch.library.custom_op("public_reports::spilled", mutates_args={})
def spilled(x: Tensor) -> Tensor:
    """Writes 4 KiB past the end of its result."""
    result = torch.empty(x.shape)
    memory = (ctypes.c_float * (result.numel() + 1024)).from_address(result.data_ptr())
    for place, value in enumerate([*(x * 0.5).flatten().tolist(), *([1e30] * 1024)]):
        memory[place] = value
    return result


@spilled.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("public_reports::unit_rows", mutates_args={})
def unit_rows(x: Tensor) -> Tensor:
    """Divides each row by its length."""
    return x / x.norm(dim=1, keepdim=True)


@unit_rows.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("public_reports::strided", mutates_args={})
def strided(x: Tensor) -> Tensor:
    """Returns a copy whose second dimension is the innermost one in memory, as its fake kernel says."""
    return x.transpose(1, -1).contiguous().transpose(1, -1)


@strided.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x.transpose(1, -1), memory_format=torch.contiguous_format).transpose(1, -1)


@torch.library.custom_op("public_reports::added_into", mutates_args={"x"})
def added_into(x: Tensor, by: Tensor) -> None:
    """Adds to a tensor in place."""
    x.add_(by)


@torch.library.custom_op("public_reports::summed", mutates_args={})
def summed(a: Tensor, b: Tensor) -> Tensor:
    """Adds two tensors."""
    return a + b


@summed.register_fake
def _(a: Tensor, b: Tensor) -> Tensor:
    return torch.empty_like(a)


@torch.library.custom_op("public_reports::chunked_into", mutates_args={"whole"})
def chunked_into(whole: Tensor, parts: list[Tensor]) -> None:
    """Writes tensors beside each other into one."""
    whole.copy_(torch.cat(parts, 1))


@torch.library.custom_op("public_reports::counted_into", mutates_args={"x", "counts"})
def counted_into(x: Tensor, counts: Tensor | None) -> None:
    """Adds 1, and counts it where there is a tensor for that."""
    x.add_(1)
    if counts is not None:
        counts.add_(1)


@torch.library.custom_op("public_reports::labelled", mutates_args={})
def labelled(x: Tensor, label: str, by: list[int], factor: float) -> tuple[Tensor, Tensor]:
    """Returns a multiple of a tensor, and sums over its rows or columns."""
    return x * factor * sum(by), x.sum(1 if label == "rows" else 0)


@labelled.register_fake
def _(x: Tensor, label: str, by: list[int], factor: float) -> tuple[Tensor, Tensor]:
    return torch.empty_like(x), x.new_empty(x.shape[0 if label == "rows" else 1])
