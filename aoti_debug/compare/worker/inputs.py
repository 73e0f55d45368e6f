"""The recorded values that a region begins with. Runs in a child process."""

from __future__ import annotations

from typing import Any

from aoti_debug.base.lazy.dataclass import dataclass
from aoti_debug.compare.evaluate.functions import NotEvaluableError
from aoti_debug.compare.evaluate.weights import ExportedWeights
from aoti_debug.compare.protocol.request import KnownValue, Region
from aoti_debug.compare.worker.layouts import load_part, load_value
from aoti_debug.package.inputs.symbolic_sizes import Symbols
from aoti_debug.package.reference.program import Graph, NodeKind, ValueKey


@dataclass(frozen=True)
class RegionInputs:
    """The values that a region begins with.

    Attributes:
        other: the same, with other numbers in the elements that were not recorded; None if all were.
        parts: the values of which only a part was recorded.
    """

    known: dict[ValueKey, Any]
    other: dict[ValueKey, Any] | None
    parts: tuple[str, ...]


def region_inputs(
    graph: Graph, region: Region, symbols: Symbols, device: str, weights: ExportedWeights | None
) -> RegionInputs:
    """Loads the values that a region begins with.

    Raises:
        NotEvaluableError: it is not known which part of a value was recorded.
        RunDirError: a tensor cannot be read.
    """
    known: dict[ValueKey, Any] = {}
    other: dict[ValueKey, Any] = {}
    parts = []
    for item in region.inputs:
        try:
            known[item.value] = other[item.value] = load_value(graph, item, symbols, device)
            continue
        except NotEvaluableError:
            whole = _exported(graph, item, weights)
        if whole is not None:
            known[item.value] = other[item.value] = whole.to(device)
            continue
        known[item.value], other[item.value] = load_part(graph, item, symbols, device)
        parts.append(str(item.value))
    return RegionInputs(known, other if parts else None, tuple(parts))


def _exported(graph: Graph, item: KnownValue, weights: ExportedWeights | None) -> Any:
    """A weight as the exported program has it; None if it is none, or not known."""
    node = graph.by_name[item.value.node]
    is_constant = node.kind is NodeKind.WEIGHT and not graph.mutators.get(node.name)
    return weights.value(node) if weights is not None and is_constant else None
