"""Custom operators of the programs of public reports: `--import public_reports.operators`."""

from __future__ import annotations

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
