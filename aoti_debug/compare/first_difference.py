"""The launch in which the outputs of a model begin to differ from eager's by more than the rounding of its kernels."""

from __future__ import annotations

from collections.abc import Iterable

from aoti_debug.compare.comparison import Beginning, Row
from aoti_debug.compare.measure.output_errors import is_exact
from aoti_debug.compare.protocol.measurement import Measurement, RegionResult
from aoti_debug.compare.protocol.request import Region
from aoti_debug.dtypes import of_name
from aoti_debug.reference.program import Graph, Node, NodeKind, Reference, is_cast

_MULTIPLE = 8.0  # of the launch's own error: what eager's rounding makes worse


def first_difference(
    rows: Iterable[Row], regions: Iterable[Region], results: Iterable[RegionResult], reference: Reference
) -> Beginning | None:
    """The first launch whose result eager has otherwise from the same inputs; None if there is none."""
    region_of = {region.launch: region for region in regions}
    operators = {result.launch: result.begins for result in results}
    for row in rows:
        region = region_of.get(row.launch.id)
        graph = None if region is None else reference.graph(region.graph, region.function)
        if region is None or graph is None:
            continue
        for output in row.outputs:
            if output.misplaced or _is_rounded_otherwise(output):
                node = graph.by_name.get(operators.get(row.launch.id, "")) if output.misplaced else None
                if node is not None and not _depends(graph, output.value, node.name):
                    node = None  # it made another output of the launch so
                held = graph.by_name.get(output.value)
                return _beginning(row, output, (node, _lost_cast(graph, region), held), reference)
    return None


def _beginning(
    row: Row, output: Measurement, nodes: tuple[Node | None, Node | None, Node | None], reference: Reference
) -> Beginning:
    """The beginning in an output.

    Args:
        nodes: that whose result is not finite, the cast that is left out, that whose value the output holds.
    """
    node, cast, held = nodes
    named = node or cast or held
    return Beginning(
        row.launch.id,
        output.argument,
        output.misplaced,
        output.count,
        output.dtype,
        "" if node is None else node.name,
        "" if node is None else node.target,
        None if named is None else reference.line(named),
        "" if cast is None else str(_dtype(cast)),
    )


def _depends(graph: Graph, value: str, node: str) -> bool:
    """True if a value is a node's, or is computed from it."""
    waiting, seen = [value], {value}
    while waiting:
        name = waiting.pop()
        if name == node:
            return True
        read = graph.by_name[name].inputs if name in graph.by_name else ()
        waiting += [other for other in read if other not in seen]
        seen.update(read)
    return False


def _is_rounded_otherwise(output: Measurement) -> bool:
    """True if eager rounds a result worse than the launch, or decides otherwise by what it has rounded."""
    if output.equals_eager:
        return False
    return is_exact(output.dtype) or output.eager_rms > _MULTIPLE * output.rms


def _lost_cast(graph: Graph, region: Region) -> Node | None:
    """The first cast of a region to a coarser dtype whose result no launch of it stores."""
    stored = {item.value.node for item in region.outputs}
    for name in region.nodes:
        node = graph.by_name[name]
        if node.kind is not NodeKind.CALL or not is_cast(node) or name in stored or not node.inputs:
            continue
        wide, narrow = (_size(graph, name_) for name_ in (node.inputs[0], name))
        if narrow and narrow < wide:
            return node
    return None


def _dtype(node: Node) -> str:
    kind = node.types[0] if node.types else None
    return "" if kind is None else kind.dtype


def _size(graph: Graph, name: str) -> int:
    """The bytes of an element of a node's result, if that is floating; else 0."""
    dtype = _dtype(graph.by_name[name])
    info = of_name(dtype)
    return info.item_bytes if info is not None and "float" in dtype else 0
