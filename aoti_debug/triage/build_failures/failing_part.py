"""The part of a graph that a build fails on: one node, or all of them, with what their inputs are."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from aoti_debug.compare.fx_repro.request import InputTensor
from aoti_debug.compare.protocol.request import KnownValue, Recorded, Region
from aoti_debug.package.inputs.symbolic_sizes import Symbols
from aoti_debug.package.reference.program import Graph, Node, NodeKind, TensorType, ValueKey

SIZE = 8  # of a symbolic size whose value is not known
_NOWHERE = Recorded("", "", "")
_SYMBOL = re.compile(r"\b[suz]\d+\b")


def region_of(graph: Graph, names: Iterable[str]) -> Region:
    """The region of some nodes of a graph; its inputs are theirs, and its outputs what none of them reads.

    Nodes that return several tensors, or none, belong to the region of the node that reads them, and so do those that
    compute something of weights only: torch may fold them.
    """
    nodes, inputs = dict.fromkeys(names), dict[str, None]()
    waiting = list(nodes)
    while waiting:
        for source in graph.by_name[waiting.pop()].inputs:
            if source in nodes:
                continue
            if _is_given(graph.by_name[source]) and not _is_folded(graph, source):
                inputs[source] = None
            else:
                nodes[source] = None
                waiting.append(source)
    begin = tuple(KnownValue(ValueKey(source), _NOWHERE) for source in graph.sorted(inputs))
    symbols = dict.fromkeys(symbols_of(graph.by_name[node] for node in (*nodes, *inputs)), SIZE)
    return Region("", (), graph.name, graph.function, graph.sorted(nodes), begin, (), symbols)


def calls_of(graph: Graph) -> tuple[str, ...]:
    """The nodes of a graph that call something."""
    return tuple(node.name for node in graph.nodes if node.kind is NodeKind.CALL and not node.size)


def input_of(graph: Graph, name: str, symbols: Mapping[str, int]) -> InputTensor:
    """The type of an input of a region; its elements are to be made up.

    Raises:
        LookupError: one of its sizes is not known.
    """
    type_ = graph.by_name[name].types[0]
    assert type_ is not None
    known = Symbols(known=symbols)
    return InputTensor(type_.dtype, _sizes(type_.shape, known), _sizes(type_.strides, known))


def device_of(graph: Graph, region: Region) -> str:
    """The device of the first tensor of a region: "cpu", "cuda:0"."""
    names = (*(item.value.node for item in region.inputs), *region.nodes)
    types = (type_ for name in names for type_ in graph.by_name[name].types if type_ is not None)
    return next((type_.device for type_ in types), "cpu")


def symbols_of(nodes: Iterable[Node]) -> tuple[str, ...]:
    """The symbols in the sizes of nodes, each once."""
    found: dict[str, None] = {}
    for node in nodes:
        expressions = [node.size, *(text for t in node.types if t is not None for text in _expressions(t))]
        found |= dict.fromkeys(symbol for text in expressions for symbol in _SYMBOL.findall(text))
    return tuple(found)


def _expressions(type_: TensorType) -> tuple[str, ...]:
    return (*type_.shape, *type_.strides)


def _is_given(node: Node) -> bool:
    """True for a single tensor whose elements are not in the graph."""
    is_constant = node.kind is NodeKind.WEIGHT and (node.value is not None or node.is_empty)
    return len(node.types) == 1 and node.types[0] is not None and not node.size and not is_constant


def _is_folded(graph: Graph, name: str) -> bool:
    """True for a call that reads weights, or what is made of weights, and nothing else."""
    node = graph.by_name[name]
    sources = [graph.by_name[source] for source in node.inputs]
    return (
        node.kind is NodeKind.CALL
        and bool(sources)
        and all(source.kind is NodeKind.WEIGHT or _is_folded(graph, source.name) for source in sources)
    )


def _sizes(expressions: tuple[str, ...], known: Symbols) -> tuple[int, ...]:
    sizes = []
    for expression in expressions:
        size = known.value(expression)
        if size is None:
            raise LookupError(f"the size {expression} is not known")
        sizes.append(size)
    return tuple(sizes)
