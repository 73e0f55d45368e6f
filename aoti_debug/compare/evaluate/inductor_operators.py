"""Operators that only Inductor puts into graphs, in terms of aten. Runs in a child process.

torch registers them when Inductor is imported, which takes seconds. They are defined as in
torch/_inductor/inductor_prims.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


def _prepare_softmax(values: torch.Tensor, dimension: int) -> tuple[torch.Tensor, torch.Tensor]:
    largest = values.amax(dimension, keepdim=True)
    return largest, (values - largest).exp().sum(dimension, keepdim=True)


def _lookup_seed(seeds: torch.Tensor, index: int) -> torch.Tensor:
    return seeds[index].clone()


def _force_stride_order(values: torch.Tensor, stride: Sequence[int]) -> torch.Tensor:
    if values.stride() == tuple(stride):
        return values
    return values.clone().as_strided(values.shape, stride).copy_(values)


def _index_put(
    values: torch.Tensor, indices: Sequence[torch.Tensor | None], new: torch.Tensor, accumulate: bool = False
) -> torch.Tensor:
    import torch

    result: torch.Tensor = torch.ops.aten.index_put_.default(values, indices, new, accumulate)
    return result


def _multiply_add(first: torch.Tensor, second: torch.Tensor | float, added: torch.Tensor) -> torch.Tensor:
    return first * second + added


OPERATORS: Mapping[str, Callable[..., Any]] = {
    "prims.prepare_softmax_online.default": _prepare_softmax,
    "prims.inductor_lookup_seed.default": _lookup_seed,
    "prims.inductor_force_stride_order.default": _force_stride_order,
    "prims._unsafe_index_put_.default": _index_put,
    "prims.fma.default": _multiply_add,
}
ELEMENTWISE = frozenset({"prims.fma.default"})
