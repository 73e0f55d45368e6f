"""The model's inputs and weights that the inputs of the bodies of branches and loops are."""

from __future__ import annotations

from collections.abc import Mapping

from aoti_debug.package.manifest import Manifest
from aoti_debug.package.reference.program import Graph, Node, NodeKind, Reference, nodes_in, returned_nodes

_CONDITION, _LOOP = "higher_order.cond", "higher_order.while_loop"


def model_input(manifest: Manifest, reference: Reference, graph: Graph, node: Node, loops: tuple[int, ...]) -> str:
    """The user's name of the model input or weight that a node is; "" if it is another value.

    Args:
        graph: that of the node.
        loops: the iteration of each loop around it, the innermost last.
    """
    inner, place = graph, node
    while place.kind is NodeKind.INPUT and inner.name:
        outer = _outer(reference, inner, place, loops)
        if outer is None:
            return ""
        inner, place, loops = outer
    if place.kind is NodeKind.WEIGHT:
        return place.target
    if place.kind is not NodeKind.INPUT:
        return ""
    names = dict(zip(manifest.inputs, manifest.input_names, strict=False))
    return names.get(place.name, place.name)


def names_in(manifest: Manifest, reference: Reference, graph: Graph, loops: tuple[int, ...]) -> Mapping[str, str]:
    """The model's names of the inputs and weights of a graph, by its own names."""
    given = [node for node in graph.nodes if node.kind in (NodeKind.INPUT, NodeKind.WEIGHT)]
    named = ((node.name, model_input(manifest, reference, graph, node, loops)) for node in given)
    return {own: name for own, name in named if name}


def _outer(
    reference: Reference, graph: Graph, node: Node, loops: tuple[int, ...]
) -> tuple[Graph, Node, tuple[int, ...]] | None:
    """The value of the graph around a body that an input of the body is, and the loops around that graph.

    None for a value that a loop has made in an earlier iteration.
    """
    position = [item.name for item in graph.nodes if item.kind is NodeKind.INPUT].index(node.name)
    for outer in reference.graphs:
        for call in outer.nodes:
            if outer.function != graph.function or not _calls(outer, call, graph.name):
                continue
            if call.target == _CONDITION:
                operands, around = list(call.args[3]), loops
            elif call.target == _LOOP:
                carried = len(call.args[2])
                is_made = position < carried and bool(loops) and loops[-1] > 0
                if is_made and returned_nodes(graph)[position : position + 1] != [node.name]:
                    return None
                operands, around = [*call.args[2], *call.args[3]], loops[:-1]
            else:
                return None
            name = next(nodes_in(operands[position : position + 1]), "")
            return (outer, outer.by_name[name], around) if name else None
    return None


def _calls(graph: Graph, call: Node, body: str) -> bool:
    """True if a node executes a body."""
    subgraphs = (graph.by_name[name] for name in call.inputs)
    return any(node.kind is NodeKind.SUBGRAPH and node.target == body for node in subgraphs)
