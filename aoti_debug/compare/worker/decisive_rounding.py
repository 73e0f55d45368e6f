"""Finds the operator of a region whose rounding in eager makes most of a difference. Runs in a child process."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from aoti_debug.base.lazy.dataclass import dataclass
from aoti_debug.compare.evaluate.evaluation import Adjustment
from aoti_debug.compare.measure.output_errors import is_low_precision
from aoti_debug.compare.protocol.request import Region
from aoti_debug.package.reference.program import Graph, Node, NodeKind

if TYPE_CHECKING:
    import torch

_MAX_NODES = 64  # each of them takes an evaluation
_LEAST = 0.5  # of the difference


@dataclass(frozen=True)
class Rounding:
    """A node whose rounding alone makes a part of the difference between float64 and eager.

    Attributes:
        share: that part, from 0 to 1; root mean square.
    """

    node: str
    share: float


def decisive_rounding(
    graph: Graph,
    region: Region,
    exact: torch.Tensor,
    eager: torch.Tensor,
    rounded: Callable[[Adjustment], torch.Tensor],
) -> Rounding | None:
    """The node of less than 32 bits whose rounding makes most of a difference; None if none makes half of it.

    The first of those that make as much of it.

    Args:
        exact, eager: an output in float64, and as eager rounds it.
        rounded: computes the output in float64 with another result of nodes.
    """
    nodes = [graph.by_name[name] for name in region.nodes if _rounds(graph.by_name[name])]
    whole = _distance(exact, eager)
    if not whole or len(nodes) > _MAX_NODES:
        return None
    shares = ((node.name, 1 - _distance(rounded(_rounding_of(node)), eager) / whole) for node in nodes)
    name, share = max(shares, key=lambda item: item[1], default=("", 0.0))
    return Rounding(name, share) if share >= _LEAST else None


def _rounds(node: Node) -> bool:
    return node.kind is NodeKind.CALL and len(node.types) == 1 and is_low_precision(_dtype(node))


def _dtype(node: Node) -> str:
    """The dtype of a node's result; "" if it is no tensor."""
    kind = node.types[0] if node.types else None
    return "" if kind is None else kind.dtype


def _rounding_of(rounded: Node) -> Adjustment:
    """What rounds the result of one node."""
    import torch

    dtype = getattr(torch, _dtype(rounded))

    def adjust(node: Node, _: list[Any], result: Any) -> Any:
        is_rounded = node is rounded and isinstance(result, torch.Tensor)
        return result.to(dtype).to(result.dtype) if is_rounded else result

    return adjust


def _distance(first: torch.Tensor, second: torch.Tensor) -> float:
    """Root of the mean squared difference of the elements that are finite in both."""
    difference = first.double() - second.double()
    finite = difference[difference.isfinite()]
    return float(finite.square().mean().sqrt()) if finite.numel() else 0.0
