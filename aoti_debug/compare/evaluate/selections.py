"""Operators that select elements by an index, and other choices among equal elements. Runs in a child process."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any

from aoti_debug.package.reference.program import Graph, Node

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
SELECT_FIRST = (*INDEX_ALONE, "aten.max.dim", "aten.min.dim")  # of equal elements the first one
_DIM_POSITION = {"aten.topk.default": 2, "aten.sort.stable": 2, "aten.kthvalue.default": 2}  # others: 1


class Choice(str, Enum):
    """One of several equal elements."""

    NEXT = "next"  # after the one that was chosen; after the last one, the first
    PREVIOUS = "previous"
    FIRST = "first"
    LAST = "last"


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


def tolerance(graph: Graph, node: Node) -> float:
    """The relative difference of elements that a kernel may take for equal: a few ULP of their dtype."""
    import torch

    types = graph.by_name[node.inputs[0]].types if node.inputs else ()
    dtype = getattr(torch, types[0].dtype) if len(types) == 1 and types[0] is not None else torch.int64
    return 4 * torch.finfo(dtype).eps if dtype.is_floating_point else 0.0


def other_choice(node: Node, args: Sequence[Any], result: Any, choice: Choice, tolerance: float = 0.0) -> Any:
    """The result of a node, with another index of an equal element in place of each index, wherever there is one.

    Args:
        tolerance: relative; elements that differ by less count as equal.
    """
    if not may_choose(node):
        return result
    index = result if node.target in INDEX_ALONE else result[1]
    other = _other_index(args[0], index, selected_dim(node), choice, tolerance)
    return other if node.target in INDEX_ALONE else (result[0], other)


def _other_index(
    elements: torch.Tensor, index: torch.Tensor, dim: int | None, choice: Choice, tolerance: float
) -> torch.Tensor:
    if dim is None:
        return _other_index(elements.reshape(-1), index.reshape(1), 0, choice, tolerance).reshape(index.shape)
    if not elements.dim():
        return index
    others = _others(elements.movedim(dim, -1), choice, tolerance)
    if index.dim() < elements.dim():
        return others.gather(-1, index.unsqueeze(-1)).squeeze(-1)
    return others.gather(-1, index.movedim(dim, -1)).movedim(-1, dim)


def _others(elements: torch.Tensor, choice: Choice, tolerance: float) -> torch.Tensor:
    """Of each element along the last dimension, the index of another one that equals it."""
    import torch

    ordered, order = elements.sort(stable=True, dim=-1)
    size = ordered.shape[-1]
    positions = torch.arange(size, device=elements.device).expand(order.shape)
    begins = torch.ones_like(order, dtype=torch.bool)
    begins[..., 1:] = ~torch.isclose(ordered[..., 1:], ordered[..., :-1], rtol=tolerance, atol=0.0, equal_nan=True)
    ends = begins.roll(-1, -1)
    first = torch.where(begins, positions, 0).cummax(-1).values
    last = size - 1 - torch.where(ends, size - 1 - positions, 0).flip(-1).cummax(-1).values.flip(-1)
    chosen = {
        Choice.FIRST: first,
        Choice.LAST: last,
        Choice.NEXT: torch.where(ends, first, positions + ~ends),
        Choice.PREVIOUS: torch.where(begins, last, positions - (~begins).to(positions.dtype)),
    }[choice]
    return torch.empty_like(order).scatter_(-1, order, order.gather(-1, chosen))
