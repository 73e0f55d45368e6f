"""Operators in Python of the corpus, honest ones and liars (`--import tests.corpus.ops`)."""

from __future__ import annotations

import time

import torch
from torch import Tensor
from torch.library import custom_op


@custom_op("corpus::count", mutates_args=())
def count(x: Tensor) -> Tensor:
    """How many elements there are, as a scalar: what it is given has to be in memory, and later work waits for it."""
    return torch.full((), float(x.numel()), device=x.device)


@count.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty((), device=x.device)


@custom_op("corpus::scaled", mutates_args=())
def scaled(x: Tensor, factor: float) -> Tensor:
    return x * factor


@scaled.register_fake
def _(x: Tensor, factor: float) -> Tensor:
    return torch.empty_like(x)


@custom_op("corpus::dequantised", mutates_args=())
def dequantised(x: Tensor) -> Tensor:
    """float8 to float32."""
    return x.to(torch.float32)


@dequantised.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x, dtype=torch.float32)


@custom_op("corpus::log_gap", mutates_args=())
def log_gap(x: Tensor) -> Tensor:
    """The logarithm of the distance from the mean: -inf or NaN where there is none."""
    return torch.log(x - x.mean())


@log_gap.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


@custom_op("corpus::compressed", mutates_args=())
def compressed(x: Tensor) -> Tensor:
    """Returns bfloat16 where its fake promises the dtype of x."""
    return x.to(torch.bfloat16)


@compressed.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


@custom_op("corpus::without_first", mutates_args=())
def without_first(x: Tensor) -> Tensor:
    """Returns a row less than its fake promises."""
    return x[1:].clone()


@without_first.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


@custom_op("corpus::column_major", mutates_args=())
def column_major(x: Tensor) -> Tensor:
    """Returns columns one after another where its fake promises rows."""
    return (x + 1).t().contiguous().t()


@column_major.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


@custom_op("corpus::on_host", mutates_args=())
def on_host(x: Tensor) -> Tensor:
    """Returns a tensor on the CPU where its fake promises the device of x."""
    return x.cpu() + 1


@on_host.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


@custom_op("corpus::unaligned", mutates_args=())
def unaligned(x: Tensor) -> Tensor:
    """Returns a tensor that begins 4 bytes into its storage."""
    memory = torch.empty(x.numel() + 1, dtype=x.dtype, device=x.device)
    result = memory[1:].view(x.shape)
    result.copy_(x)
    return result


@unaligned.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


@custom_op("corpus::looked_up", mutates_args=())
def looked_up(x: Tensor) -> Tensor:
    raise KeyError("no entry for this batch")


@looked_up.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


@custom_op("corpus::waits", mutates_args=())
def waits(x: Tensor) -> Tensor:
    """For an answer that does not come."""
    while True:
        time.sleep(0.1)


@waits.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


@custom_op("corpus::add_into", mutates_args={"total"})
def add_into(total: Tensor, x: Tensor) -> None:
    total.add_(x)


@add_into.register_fake
def _(total: Tensor, x: Tensor) -> None:
    return None
