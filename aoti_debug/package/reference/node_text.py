"""Nodes of a graph as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aoti_debug.package.reference.program import Graph, Node


def node_text(node: Node) -> str:
    """ "index_1 = aten.index.Tensor(table, [add_2])"."""
    arguments = [_text(item) for item in node.args] + [f"{name}={_text(item)}" for name, item in node.kwargs.items()]
    return f"{node.name} = {node.target}({', '.join(arguments)})"


def place_in_subgraph(graph: Graph, node: Node, loops: tuple[int, ...]) -> str:
    """The node of the body of a branch or loop, with the iteration; "" for a node of the whole model.

    Args:
        loops: the iteration of each enclosing loop.
    """
    if not graph.name:
        return ""
    iteration = f"iteration {', '.join(map(str, loops))} of " if loops else ""
    return f"in {iteration}{graph.name}: {node_text(node)}"


def _text(argument: Any) -> str:
    if isinstance(argument, list | tuple):
        return f"[{', '.join(map(_text, argument))}]"
    if not isinstance(argument, Mapping):
        return repr(argument)
    ((_, value),) = argument.items()
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{name}: {_text(item)}' for name, item in value.items())}}}"
    return _text(value) if isinstance(value, list | tuple) else str(value)
