"""A part of a start: some of its calls, whose inputs are values that eager computed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from aoti_debug.compare.protocol.request import KnownValue, Recorded, Region
from aoti_debug.package.reference.program import Graph, Node, NodeKind, ValueKey
from aoti_debug.triage.minify.start.start import Start, Unit

_NOWHERE = Recorded("", "", "")


def part_of(start: Start, units: Iterable[Unit]) -> Region | None:
    """The region of some calls of a start; None where eager has no value of one of its inputs.

    What no call of the part reads is its outputs.
    """
    graph = start.graph
    calls = graph.sorted(name for unit in units for name in unit)
    made = set(calls)
    inputs: dict[ValueKey, None] = {}
    constants: dict[str, None] = {}
    read: set[ValueKey] = set()
    for name in calls:
        for source in graph.by_name[name].inputs:
            key = graph.value_for(source, name)
            read.add(key)
            if (key.after or key.node) in made:
                continue
            if _is_constant(graph.by_name[source]) and not key.after:
                constants[source] = None
            elif key in start.values:
                inputs[key] = None
            else:
                return None
    nodes = graph.sorted([*calls, *constants])
    outputs = tuple(KnownValue(key, _NOWHERE) for key in _results(graph, calls) if key not in read)
    begin = tuple(KnownValue(key, _NOWHERE) for key in inputs)
    region = start.region
    return Region("", (), region.graph, region.function, nodes, begin, outputs, region.symbols)


def _is_constant(node: Node) -> bool:
    """True for a size, and a weight whose elements the graph holds."""
    return bool(node.size) or (node.kind is NodeKind.WEIGHT and (node.value is not None or node.is_empty))


def _results(graph: Graph, calls: Sequence[str]) -> Iterable[ValueKey]:
    """The tensors that calls return or overwrite."""
    for name in calls:
        node = graph.by_name[name]
        if len(node.types) == 1 and node.types[0] is not None and not node.size:
            yield ValueKey(name)
        yield from (ValueKey(overwritten, name) for overwritten in node.mutates)
