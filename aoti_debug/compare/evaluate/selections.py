"""Operators that select elements by an index, and another choice among equal elements. Runs in a child process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from aoti_debug.reference.program import Node

if TYPE_CHECKING:
    import torch

INDEX_ALONE = ("aten.argmax.default", "aten.argmin.default")
WITH_VALUES = (
    "aten.sort.default",
    "aten.sort.stable",
    "aten.topk.default",
    "aten.max.dim",
    "aten.min.dim",
    "aten.median.dim",
    "aten.nanmedian.dim",
    "aten.kthvalue.default",
    "aten.mode.default",
)
_DIM_POSITION = {"aten.topk.default": 2, "aten.sort.stable": 2, "aten.kthvalue.default": 2}  # others: 1


def may_choose(node: Node) -> bool:
    """True if a node selects elements by an index and may choose any of equal ones."""
    stable = node.target == "aten.sort.stable" and True in (node.kwargs.get("stable"), *node.args[1:2])
    return not stable and node.target in (*INDEX_ALONE, *WITH_VALUES)


def selected_dim(node: Node) -> int | None:
    """The dimension along which a node selects; None for all of them."""
    default = None if node.target in INDEX_ALONE else -1
    position = _DIM_POSITION.get(node.target, 1)
    value = node.kwargs.get("dim", node.args[position] if position < len(node.args) else default)
    return value if isinstance(value, int) else default


def other_choice(node: Node, args: Sequence[Any], result: Any) -> Any:
    """The result of a node, with an index of an equal element in place of each index, wherever there is one."""
    if not may_choose(node):
        return result
    if node.target in INDEX_ALONE:
        return _next_equal(args[0], result, selected_dim(node))
    values, index = result
    return values, _next_equal(args[0], index, selected_dim(node))


def _next_equal(elements: torch.Tensor, index: torch.Tensor, dim: int | None) -> torch.Tensor:
    """The index of the next element that equals the one at `index`; after the last one, of the first."""
    if dim is None:
        return _next_equal(elements.reshape(-1), index.reshape(1), 0).reshape(index.shape)
    if not elements.dim():
        return index
    following = _following(elements.movedim(dim, -1))
    if index.dim() < elements.dim():
        return following.gather(-1, index.unsqueeze(-1)).squeeze(-1)
    return following.gather(-1, index.movedim(dim, -1)).movedim(-1, dim)


def _following(elements: torch.Tensor) -> torch.Tensor:
    """Of each element along the last dimension, the index of the next that equals it, in a circle."""
    import torch

    ordered, order = elements.sort(stable=True, dim=-1)
    positions = torch.arange(ordered.shape[-1], device=elements.device).expand(order.shape)
    unequal = (ordered[..., 1:] != ordered[..., :-1]) & ~(ordered[..., 1:].isnan() & ordered[..., :-1].isnan())
    begins = torch.ones_like(order, dtype=torch.bool)
    begins[..., 1:] = unequal
    first = torch.where(begins, positions, 0).cummax(-1).values
    ends = begins.roll(-1, -1)
    following = order.gather(-1, torch.where(ends, first, positions + ~ends))
    return torch.empty_like(order).scatter_(-1, order, following)
