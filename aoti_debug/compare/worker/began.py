"""Compares the weights that a run began with, with those of its exported program. Runs in a child process.

Every other comparison begins with the weights of the run: one that the package holds wrongly shows in none of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from aoti_debug.compare.evaluate.weights import ExportedWeights, has_type
from aoti_debug.compare.measure.state_change import begin_difference
from aoti_debug.compare.protocol.measurement import StateChange
from aoti_debug.compare.protocol.request import RecordedWeight
from aoti_debug.errors import RunDirError
from aoti_debug.reference.program import Graph, NodeKind
from aoti_debug.rundir import load_tensors

if TYPE_CHECKING:
    import torch

_PART = 1 << 20  # elements
_MOST_SORTED = 1 << 22  # elements of a weight that is passed in an order of its own; larger ones are not compared


def other_weights(graph: Graph, recorded: Sequence[RecordedWeight], weights: ExportedWeights) -> Iterator[StateChange]:
    """Yields the weights that have other elements than in the exported program.

    Args:
        graph: that of the exported program.
    """
    nodes: Mapping[str, str] = {node.target: node.name for node in graph.nodes if node.kind is NodeKind.WEIGHT}
    for weight in recorded:
        if weight.name not in nodes:
            continue
        node = graph.by_name[nodes[weight.name]]
        right, actual = weights.value(node), _load(weight)
        if right is None or actual is None or actual.dtype != right.dtype or actual.numel() != right.numel():
            continue
        (type_,) = node.types
        if weight.is_view or type_ is None or not has_type(actual, type_):
            if not _has_same_elements(actual, right):
                yield begin_difference(weight.name, None, right)
        elif not _equal(actual, right):
            yield begin_difference(weight.name, actual, right)


def _load(weight: RecordedWeight) -> torch.Tensor | None:
    try:
        return load_tensors.map_file(Path(weight.path)).cpu()
    except RunDirError:
        return None


def _equal(first: torch.Tensor, second: torch.Tensor) -> bool:
    """True if two tensors of one type have the same numbers, or NaN alike."""
    import torch

    if not first.dtype.is_floating_point or first.dtype.itemsize > 1:
        if bool(torch.equal(first, second)):
            return True
        return all(
            bool(((a == b) | ((a != a) & (b != b))).all())
            for a, b in zip(first.reshape(-1).split(_PART), second.reshape(-1).split(_PART), strict=True)
        )
    return bool(torch.equal(first.contiguous().view(torch.uint8), second.contiguous().view(torch.uint8)))


def _has_same_elements(first: torch.Tensor, second: torch.Tensor) -> bool:
    """True if two tensors have the same elements in memory, or in any order: that of a view may be another one."""
    import torch

    integers = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    kind = integers.get(first.dtype.itemsize)
    if kind is None:
        return True
    flat = [_in_memory(tensor).view(kind) for tensor in (first, second)]
    if bool(torch.equal(*flat)):
        return True
    return first.numel() > _MOST_SORTED or bool(torch.equal(flat[0].sort().values, flat[1].sort().values))


def _in_memory(tensor: torch.Tensor) -> torch.Tensor:
    """The elements in the order of their addresses."""
    order = sorted(range(tensor.dim()), key=lambda dim: (-tensor.stride(dim), dim))
    return tensor.permute(order).contiguous().view(-1)
