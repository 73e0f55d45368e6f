"""The part of a graph between known values and one that depends on them."""

from __future__ import annotations

from collections.abc import Set

from aoti_debug.package.inputs.symbolic_sizes import Symbols
from aoti_debug.package.reference.program import Graph, NodeKind, ValueKey

SUBGRAPHS = ("higher_order.cond", "higher_order.while_loop")


class NotClosedError(Exception):
    """The reason why a region does not end in recorded values."""


def slice_to(
    graph: Graph, target: ValueKey, known: Set[ValueKey], symbols: Symbols, *, takes_weights: bool = False
) -> tuple[tuple[str, ...], tuple[ValueKey, ...]]:
    """The nodes between known values and a target, and the known values that they need.

    Args:
        takes_weights: weights need not be known.

    Raises:
        NotClosedError: a node without a known value is an input, a weight, or a branch or loop.
    """
    nodes: dict[str, None] = {}
    used: dict[ValueKey, None] = {}
    pending = [(target, True)]
    while pending:
        value, is_target = pending.pop()
        name = value.after or value.node
        node = graph.by_name[name]
        if value in known and not (is_target and node.kind is NodeKind.CALL):
            used[value] = None
            continue
        if (base := graph.base_of(value)) is not None:
            others = (graph.value_for(item, value.node) for item in graph.by_name[value.node].inputs[1:])
            pending += [(base, False), *((other, False) for other in others)]
            continue
        is_given = node.value is not None or node.is_empty or (node.size and symbols.value(node.size) is not None)
        is_taken = node.kind is NodeKind.WEIGHT and takes_weights and not graph.mutators.get(name)
        if node.kind is NodeKind.SUBGRAPH:
            continue
        if name in nodes or is_given or is_taken:
            nodes[name] = None
            continue
        if node.kind is not NodeKind.CALL:
            raise NotClosedError(f"it depends on {_described(node.kind)} {name}, which it does not read")
        if node.target in SUBGRAPHS:
            raise NotClosedError(f"it depends on {node.target.removeprefix('higher_order.')} in {name}")
        nodes[name] = None
        pending += [(graph.value_for(item, name), False) for item in node.inputs]
    return tuple(nodes), tuple(used)


def _described(kind: NodeKind) -> str:
    return {NodeKind.INPUT: "the input", NodeKind.WEIGHT: "the weight"}.get(kind, "the graph")
