"""Nodes of a graph as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from aoti_debug.base import wording
from aoti_debug.package.program_graphs import Graph, Node

_MOST = 3  # operators that are named


class PlacedNode(NamedTuple):
    """A node, and its model line: "model.py:12"; "" if that is not known."""

    node: Node
    line: str


def node_text(node: Node) -> str:
    """ "index_1 = aten.index.Tensor(table, [add_2])"."""
    return f"{node.name} = {_call_text(node)}"


def other_nodes_text(a: Sequence[PlacedNode], b: Sequence[PlacedNode]) -> str:
    """A sentence on the operators in which two parts of graphs differ, each in the same direction of its graph."""
    texts = [[_call_text(placed.node, with_nodes=False) for placed in side] for side in (a, b)]
    only = [Counter(own) - Counter(other) for own, other in (texts, texts[::-1])]
    named = [
        f"only in {name}: {wording.join_truncated(list(_named(side, own, left)), _MOST)}"
        for name, side, own, left in zip("ab", (a, b), texts, only, strict=True)
        if left
    ]
    if named:
        return f"of the operators there, {'; '.join(named)}"
    if not a:
        return "the graphs do not tell which operator differs"
    return "the operators there are the same, with the same numbers: what they take, or their order, differs"


def _named(side: Sequence[PlacedNode], texts: Sequence[str], left: Counter[str]) -> Iterator[str]:
    """Yields those of some texts that are left, as often as they are, with their model lines."""
    counts = Counter(left)
    for placed, text in zip(side, texts, strict=True):
        if counts[text]:
            counts[text] -= 1
            yield f"{text} ({placed.line})" if placed.line else text


def _call_text(node: Node, *, with_nodes: bool = True) -> str:
    """ "aten.index.Tensor(table, [add_2])"; without nodes "aten.index.Tensor(…, […])"; of a weight "k = [1.0, 2.0]"."""
    if node.value is not None:
        return f"{node.target} = {_text(node.value)}"
    keywords = [f"{name}={_text(item, with_nodes=with_nodes)}" for name, item in node.kwargs.items()]
    arguments = [_text(item, with_nodes=with_nodes) for item in node.args] + keywords
    return f"{node.target}({', '.join(arguments)})"


def place_in_subgraph(graph: Graph, node: Node, loops: tuple[int, ...]) -> str:
    """The node of the body of a branch or loop, with the iteration; "" for a node of the whole model.

    Args:
        loops: the iteration of each enclosing loop.
    """
    if not graph.name:
        return ""
    iteration = f"iteration {', '.join(map(str, loops))} of " if loops else ""
    return f"in {iteration}{graph.name}: {node_text(node)}"


def _text(argument: Any, *, with_nodes: bool = True) -> str:
    if isinstance(argument, list | tuple):
        return f"[{', '.join(_text(item, with_nodes=with_nodes) for item in argument)}]"
    if not isinstance(argument, Mapping):
        return repr(argument)
    ((kind, value),) = argument.items()
    if kind == "node" and not with_nodes:
        return "…"
    if isinstance(value, Mapping):
        items = (f"{name}: {_text(item, with_nodes=with_nodes)}" for name, item in value.items())
        return f"{{{', '.join(items)}}}"
    return _text(value, with_nodes=with_nodes) if isinstance(value, list | tuple) else str(value)
