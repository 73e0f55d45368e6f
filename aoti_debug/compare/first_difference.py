"""The launch in which the outputs of a model begin to differ from eager's by more than the rounding of its kernels."""

from __future__ import annotations

from collections.abc import Iterable

from aoti_debug.compare.comparison import Beginning, Row
from aoti_debug.compare.measure.verdicts import LaunchVerdict, is_rounded_otherwise, verdict_on_output
from aoti_debug.compare.protocol.measurement import Measurement, RegionResult
from aoti_debug.compare.protocol.request import Region
from aoti_debug.package.reference.program import Graph, Reference


def first_difference(
    rows: Iterable[Row], regions: Iterable[Region], results: Iterable[RegionResult], reference: Reference
) -> Beginning | None:
    """The first launch whose result eager has otherwise from the same inputs; None if there is none."""
    region_of = {region.launch: region for region in regions}
    result_of = {result.launch: result for result in results}
    for row in rows:
        region = region_of.get(row.launch.id)
        graph = None if region is None else reference.graph(region.graph, region.function)
        if graph is None:
            continue
        for output in row.outputs:
            if output.misplaced or is_rounded_otherwise(output) or _is_ill_conditioned(output):
                result = result_of.get(row.launch.id, RegionResult(row.launch.id))
                return _beginning(row, output, result, graph, reference)
    return None


def _is_ill_conditioned(output: Measurement) -> bool:
    return verdict_on_output(output) is LaunchVerdict.ILL_CONDITIONED


def _beginning(row: Row, output: Measurement, result: RegionResult, graph: Graph, reference: Reference) -> Beginning:
    """The beginning in an output."""
    node = graph.by_name.get(result.begins)
    is_of_other_kind = bool(output.misplaced) == bool(result.share)
    if node is not None and (is_of_other_kind or not _depends(graph, output.value, node.name)):
        node = None  # it made another output of the launch so
    named = node or graph.by_name.get(output.value)
    kind = node.types[0] if node is not None and node.types else None
    return Beginning(
        row.launch.id,
        output.argument,
        output.misplaced,
        output.count,
        output.dtype,
        "" if node is None else node.name,
        "" if node is None else node.target,
        None if named is None else reference.line(named),
        kind.dtype if kind is not None and result.share else "",
        result.share if node is not None else 0.0,
        output.sensitivity if _is_ill_conditioned(output) else 0.0,
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
