"""Indices that select equal elements: argmax, sorting and top-k may choose any of them. Runs in a child process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aoti_debug.compare.evaluate.evaluation import Evaluation
from aoti_debug.compare.evaluate.selections import INDEX_ALONE, SELECT_FIRST, WITH_VALUES, selected_dim
from aoti_debug.package.reference.program import Graph, Node, ValueKey

if TYPE_CHECKING:
    import torch


def equal_choices(graph: Graph, name: str, actual: torch.Tensor, eager: Evaluation) -> torch.Tensor | None:
    """True where an index selects an element that equals the one which eager's index selects, or nearly so.

    Of equal integers, argmax, argmin, max and min select the first, as torch documents. Equal floating numbers need not
    be equal in the kernel, which rounds otherwise.

    Args:
        name: the node whose result `actual` should be.

    Returns:
        None if the node does not select elements by an index.
    """
    import torch

    node = graph.by_name[name]
    selection = _selection(graph, node)
    if selection is None or not selection.inputs:
        return None
    keys = [key for key in eager.values if key.node == selection.inputs[0]]
    expected = eager.values.get(ValueKey(name))
    if not keys or not isinstance(expected, torch.Tensor):
        return None
    elements = eager.values[keys[-1]]
    dim = selected_dim(selection)
    keepdim = expected.dim() == elements.dim()
    if dim is None:
        elements, dim, keepdim = elements.reshape(-1), 0, False
    if not elements.dim():
        return None
    chosen, correct = (_gathered(elements, index, dim, keepdim) for index in (actual, expected))
    if chosen is None or correct is None:
        return None
    if selection.target in SELECT_FIRST and not elements.dtype.is_floating_point:
        return actual == expected.reshape(actual.shape)
    return torch.isclose(chosen, correct, rtol=_tolerance(elements), atol=0.0, equal_nan=True).reshape(actual.shape)


def read(graph: Graph, name: str) -> tuple[str, ...]:
    """The node that holds the elements of which a node holds an index, if it does: their values are looked at."""
    selection = _selection(graph, graph.by_name[name])
    return () if selection is None else selection.inputs[:1]


def _selection(graph: Graph, node: Node) -> Node | None:
    """The operator that chose the indices; None if the node holds no indices."""
    if node.target in INDEX_ALONE:
        return node
    if node.is_member and node.args[1:] == (1,):
        source = graph.by_name[node.inputs[0]]
        return source if source.target in WITH_VALUES else None
    return None


def _gathered(elements: torch.Tensor, index: torch.Tensor, dim: int, keepdim: bool) -> torch.Tensor | None:
    if not keepdim:
        index = index.unsqueeze(dim)
    size = elements.shape[dim]
    if index.dim() != elements.dim() or bool(((index < 0) | (index >= size)).any()):
        return None
    return elements.gather(dim, index.long())


def _tolerance(elements: torch.Tensor) -> float:
    import torch

    return 4 * torch.finfo(elements.dtype).eps if elements.dtype.is_floating_point else 0.0
