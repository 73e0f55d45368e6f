"""Graphs completed: model lines within branches and loops, tensors that are overwritten through views."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from aoti_debug.package.reference.program import HIGHER_ORDER, Graph, Node, NodeKind, is_view


def with_lines_of_callers(graphs: Iterable[Graph]) -> Iterator[Graph]:
    """Graphs whose nodes without a model line, in a branch or loop, have that of the branch or loop itself."""
    lines: dict[tuple[str, str], int] = {}
    for graph in sorted(graphs, key=lambda graph: len(graph.name)):  # what calls a graph comes before it
        own = lines.get((graph.name, graph.function), -1)
        nodes = [replace(node, line=own) if node.line < 0 <= own else node for node in graph.nodes]
        for node in nodes:
            bodies = (graph.by_name[name] for name in node.inputs if node.target.startswith(HIGHER_ORDER))
            lines |= {(body.target, graph.function): node.line for body in bodies if body.kind is NodeKind.SUBGRAPH}
        yield replace(graph, nodes=tuple(nodes))


def with_bases(nodes: Iterable[Node]) -> tuple[Node, ...]:
    """Nodes that overwrite, with a view, what it is a view of, and its other views so far."""
    base_of: dict[str, str] = {}
    found: list[Node] = []
    for node in nodes:
        if is_view(node):
            base_of[node.name] = base_of.get(node.inputs[0], node.inputs[0])
        bases = {base_of.get(name, name) for name in node.mutates}
        views = (name for name, base in base_of.items() if base in bases)
        overwritten = dict.fromkeys((*node.mutates, *sorted(bases), *views)) if node.mutates else ()
        found.append(replace(node, mutates=tuple(overwritten)))
    return tuple(found)
