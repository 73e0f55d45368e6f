"""Custom operators of origins.py: some keep launches apart, some raise, some crash."""

from __future__ import annotations

import ctypes
import os

import torch
from torch import Tensor
from torch.library import custom_op


@custom_op("planted_origins::kept", mutates_args=())
def kept(x: Tensor) -> Tensor:
    """A copy: no kernel reaches over it."""
    return x.clone()


@kept.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


@custom_op("planted_origins::pooled", mutates_args=())
def pooled(lengths: Tensor, ids: Tensor, weight: Tensor) -> Tensor:
    """Sums rows for each length; raises if the lengths do not add up to the number of ids."""
    if int(lengths.sum()) != ids.numel():
        raise RuntimeError(f"lengths add up to {int(lengths.sum())}, and there are {ids.numel()} ids")
    owner = torch.repeat_interleave(torch.arange(lengths.numel()), lengths)
    return torch.zeros(lengths.numel(), weight.shape[1]).index_add(0, owner, weight[ids % weight.shape[0]])


@pooled.register_fake
def _(lengths: Tensor, ids: Tensor, weight: Tensor) -> Tensor:
    return weight.new_empty(lengths.shape[0], weight.shape[1])


@custom_op("planted_origins::checked", mutates_args=())
def checked(x: Tensor, ids: Tensor) -> Tensor:
    """Raises where x has a negative number; does nothing with ids."""
    if bool((x < 0).any()):
        raise ValueError("negative numbers are not allowed")
    return x.clone()


@checked.register_fake
def _(x: Tensor, ids: Tensor) -> Tensor:
    return torch.empty_like(x)


@custom_op("planted_origins::aborts", mutates_args=())
def aborts(x: Tensor, ids: Tensor) -> Tensor:
    """Ends the process if any id is odd."""
    if bool((ids % 2).any()):
        os.abort()
    return x.clone()


@aborts.register_fake
def _(x: Tensor, ids: Tensor) -> Tensor:
    return torch.empty_like(x)


@custom_op("planted_origins::reads_nowhere", mutates_args=())
def reads_nowhere(x: Tensor, ids: Tensor) -> Tensor:
    """Reads address 8 if the sum of x is above 100."""
    if float(x.sum()) > 100:
        ctypes.string_at(8)
    return x.clone()


@reads_nowhere.register_fake
def _(x: Tensor, ids: Tensor) -> Tensor:
    return torch.empty_like(x)


@custom_op("planted_origins::looked_up", mutates_args=())
def looked_up(table: Tensor, index: Tensor) -> Tensor:
    """Rows of a table, read by eager."""
    return table[index]


@looked_up.register_fake
def _(table: Tensor, index: Tensor) -> Tensor:
    return table.new_empty(*index.shape, *table.shape[1:])
