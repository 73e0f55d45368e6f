"""Compares the weights that a run began with, with those of its exported program. Runs in a child process.

Every other comparison begins with the weights of the run: one that the package holds wrongly shows in none of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from aoti_debug.compare.evaluate.functions import TORCH_RAISES, first_line
from aoti_debug.compare.evaluate.weights import ExportedWeights, has_type
from aoti_debug.compare.measure.state_change import begin_difference
from aoti_debug.compare.protocol.measurement import StateChange, StatesFailure
from aoti_debug.compare.protocol.request import RecordedWeight
from aoti_debug.compare.worker.recorded_tensor import as_integers, has_equal_bits, recorded_tensor
from aoti_debug.package.reference.program import Graph, Node, NodeKind

if TYPE_CHECKING:
    import torch

_PART = 1 << 20  # elements
_MAX_BYTES = 8  # of an element that is sorted: complex128 has no integer of its size
_MAX_SORTED = 1 << 22  # elements of a weight that is passed in an order of its own; larger ones are not compared


def other_weights(
    graph: Graph, recorded: Sequence[RecordedWeight], weights: ExportedWeights
) -> Iterator[StateChange | StatesFailure]:
    """Yields the weights that have other elements than in the exported program, and those that cannot be compared.

    Args:
        graph: that of the exported program.
    """
    nodes: Mapping[str, str] = {node.target: node.name for node in graph.nodes if node.kind is NodeKind.WEIGHT}
    for weight in (weight for weight in recorded if weight.name in nodes):
        try:
            change = _difference(weight, graph.by_name[nodes[weight.name]], weights)
        except TORCH_RAISES as error:
            reason = first_line(error)
            yield StatesFailure(f"whether {weight.name} is what the program begins with is not known: {reason}")
        else:
            yield from () if change is None else (change,)


def _difference(weight: RecordedWeight, node: Node, weights: ExportedWeights) -> StateChange | None:
    """The difference of a weight from the program's; None if there is none, or one of them is not known."""
    right, actual = weights.value(node), recorded_tensor(weight.path)
    if right is None or actual is None or actual.dtype != right.dtype or actual.numel() != right.numel():
        return None
    (type_,) = node.types
    if weight.is_view or type_ is None or not has_type(actual, type_):
        return None if _has_same_elements(actual, right) else begin_difference(weight.name, None, right)
    return None if _equal(actual, right) else begin_difference(weight.name, actual, right)


def _equal(first: torch.Tensor, second: torch.Tensor) -> bool:
    """True if two tensors of one type have the same bits, or the same numbers and NaN in the same places."""
    import torch

    if has_equal_bits(first, second):
        return True
    if first.dtype.itemsize == 1 or not (first.is_floating_point() or first.is_complex()):
        return False
    numbers = [torch.view_as_real(tensor) if tensor.is_complex() else tensor for tensor in (first, second)]
    return all(
        bool(((a == b) | ((a != a) & (b != b))).all())
        for a, b in zip(*(tensor.reshape(-1).split(_PART) for tensor in numbers), strict=True)
    )


def _has_same_elements(first: torch.Tensor, second: torch.Tensor) -> bool:
    """True if two tensors have the same elements in memory, or in any order: that of a view may be another one."""
    import torch

    if first.dtype.itemsize > _MAX_BYTES:
        return True
    flat = [as_integers(_in_memory(tensor)) for tensor in (first, second)]
    if bool(torch.equal(*flat)):
        return True
    return first.numel() > _MAX_SORTED or bool(torch.equal(flat[0].sort().values, flat[1].sort().values))


def _in_memory(tensor: torch.Tensor) -> torch.Tensor:
    """The elements in the order of their addresses."""
    order = sorted(range(tensor.dim()), key=lambda dim: (-tensor.stride(dim), dim))
    return tensor.permute(order).contiguous().view(-1)
