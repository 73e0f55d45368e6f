"""Evaluates the nodes of a region. Runs in a child process."""

from __future__ import annotations

from typing import Any

from aoti_debug.compare.evaluate.evaluation import Evaluation
from aoti_debug.compare.protocol.request import Region
from aoti_debug.inputs.symbolic_sizes import Symbols
from aoti_debug.reference.program import Graph, ValueKey


def evaluated(
    evaluation: Evaluation, graph: Graph, region: Region, symbols: Symbols, known: dict[ValueKey, Any]
) -> Evaluation:
    """The evaluation, with the known values and those of the nodes of a region."""
    for key, value in known.items():
        evaluation.set(key, value)
    for name in region.nodes:
        node = graph.by_name[name]
        evaluation.run(node, symbols.value(node.size) if node.size else None)
    return evaluation
