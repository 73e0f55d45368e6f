"""Evaluates the nodes of a region. Runs in a child process."""

from __future__ import annotations

from collections.abc import Set
from typing import Any

from aoti_debug.compare.evaluate.evaluation import Evaluation
from aoti_debug.compare.protocol.request import Region
from aoti_debug.package.inputs.symbolic_sizes import Symbols
from aoti_debug.package.reference.program import Graph, NodeKind, ValueKey


def evaluated(
    evaluation: Evaluation,
    graph: Graph,
    region: Region,
    symbols: Symbols,
    known: dict[ValueKey, Any],
    kept: Set[str] | None = None,
) -> Evaluation:
    """The evaluation, with the known values and those of the nodes of a region.

    Args:
        kept: the nodes whose values are read from it; those of others are dropped after the last node of the region
            that reads them. None to keep all.
    """
    for key, value in known.items():
        evaluation.set(key, value)
    last_uses = {} if kept is None else graph.last_readers(region.nodes)
    for name in region.nodes:
        node = graph.by_name[name]
        evaluation.run(node, symbols.value(node.size) if node.size else None)
        evaluation.values.drop(last_uses.get(name, frozenset()) - (kept or frozenset()))
    return evaluation


def first_nonfinite(graph: Graph, region: Region, eager: Evaluation, double: Evaluation) -> str:
    """The first node of a region whose result is finite otherwise in eager than in float64; "" if there is none."""
    import torch

    for name in region.nodes:
        first, second = (evaluation.values.get(ValueKey(name)) for evaluation in (eager, double))
        if not isinstance(first, torch.Tensor) or not isinstance(second, torch.Tensor):
            continue
        if graph.by_name[name].kind is NodeKind.CALL and not torch.equal(first.isfinite(), second.isfinite()):
            return name
    return ""
