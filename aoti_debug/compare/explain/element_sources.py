"""The elements that an element of an operator's result was computed from. Runs in a child process.

Operators that only move elements are evaluated on the indices of their arguments; elementwise ones are followed by
their coordinates, products of matrices by row and column; of any other operator all elements of the arguments count.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from aoti_debug.base.lazy.dataclass import dataclass
from aoti_debug.compare.evaluate import inductor_operators
from aoti_debug.compare.evaluate.evaluation import Evaluation
from aoti_debug.compare.evaluate.functions import NotEvaluableError, operator_of
from aoti_debug.package.recording.values import unravel
from aoti_debug.package.reference.program import Graph, Node, ValueKey

if TYPE_CHECKING:
    import torch

MOVES = frozenset(
    {
        *("view", "reshape", "_unsafe_view", "permute", "transpose", "t", "expand", "slice", "select", "unsqueeze"),
        *("squeeze", "clone", "alias", "flip", "cat", "stack", "where", "gather", "index", "embedding", "index_select"),
        *("repeat", "constant_pad_nd", "split", "split_with_sizes", "unbind", "diagonal", "roll", "as_strided"),
    }
)


@dataclass(frozen=True)
class ElementPlace:
    """An element of a value.

    Attributes:
        part: which result of an operator with several; -1 for the only one.
        element: its row-major index.
    """

    key: ValueKey
    part: int
    element: int


@dataclass(frozen=True)
class ElementSource:
    """The elements of an argument that an element was computed from.

    Attributes:
        elements: row-major indices.
    """

    name: str
    key: ValueKey
    value: torch.Tensor
    elements: torch.Tensor

    def first(self, which: torch.Tensor) -> ElementPlace:
        """The place of the first element for which `which` is True."""
        return ElementPlace(self.key, -1, int(self.elements[int(which.nonzero()[0])]))

    @property
    def numbers(self) -> torch.Tensor:
        """The elements' values."""
        return self.value.reshape(-1)[self.elements]


def value_at(evaluation: Evaluation, place: ElementPlace) -> torch.Tensor:
    """The tensor that a place is in."""
    value = evaluation.values[place.key]
    tensor: torch.Tensor = value[place.part] if place.part >= 0 else value
    return tensor


def sources_of(graph: Graph, evaluation: Evaluation, node: Node, place: ElementPlace) -> Iterator[ElementSource]:
    """The elements that an element of a node's result was computed from."""
    import torch

    result = value_at(evaluation, place)
    at = unravel(place.element, tuple(result.shape))
    moved = _moved(node, evaluation.arguments(node), place) if _name(node) in MOVES else None
    for name in node.inputs:
        key = graph.value_for(name, node.name)
        value = evaluation.values.get(key)
        if not isinstance(value, torch.Tensor) or not value.dtype.is_floating_point:
            continue
        if moved is not None:
            elements = [moved[name]] if name in moved else []
            yield ElementSource(name, key, value, torch.tensor(elements, dtype=torch.int64, device=value.device))
        else:
            yield ElementSource(name, key, value, _corresponding(node, name, value, result, at))


def _name(node: Node) -> str:
    """The name of an operator: "div"."""
    return node.target.split(".")[1] if "." in node.target else node.target


def _moved(node: Node, arguments: tuple[list[Any], dict[str, Any]], place: ElementPlace) -> dict[str, int] | None:
    """The element of the argument that an operator has moved to a place, by the argument; None if it fails."""
    import torch

    sizes: list[tuple[str, int, int]] = []  # name, first number, count
    total = 0

    def numbered(written: Any, value: Any) -> Any:
        nonlocal total
        if isinstance(value, torch.Tensor) and value.dtype.is_floating_point:
            sizes.append((written["node"], total, value.numel()))
            total += value.numel()
            return torch.arange(total - value.numel(), total, device=value.device).reshape(value.shape).double()
        if isinstance(value, list):
            return [numbered(*pair) for pair in zip(written, value, strict=True)]
        return -1.0 if isinstance(value, float) else value

    args = [numbered(*pair) for pair in zip(node.args, arguments[0], strict=True)]
    kwargs = {name: numbered(node.kwargs[name], value) for name, value in arguments[1].items() if name != "dtype"}
    try:
        result = operator_of(node.target)(*args, **kwargs)
    except (RuntimeError, TypeError, ValueError, IndexError, NotEvaluableError):
        return None
    number = int((result[place.part] if place.part >= 0 else result).reshape(-1)[place.element])
    return {name: number - first for name, first, count in sizes if first <= number < first + count}


def _corresponding(
    node: Node, name: str, value: torch.Tensor, result: torch.Tensor, at: tuple[int, ...]
) -> torch.Tensor:
    """The row-major indices of the elements of an argument that an element of the result was computed from."""
    import torch

    indices = torch.arange(value.numel(), device=value.device).reshape(value.shape)
    if is_elementwise(node) and value.dim() <= result.dim():
        own = at[len(at) - value.dim() :]
        return indices[tuple(0 if size == 1 else i for size, i in zip(value.shape, own, strict=True))].reshape(1)
    position = node.inputs.index(name)
    kind = _name(node)
    if kind in ("mm", "bmm", "addmm", "baddbmm") and value.dim() >= 2:
        factor = position - kind.startswith(("addmm", "baddbmm"))
        if factor < 0:
            return _broadcast(indices, at)
        batch = at[:-2] if value.dim() > 2 else ()
        factors: tuple[Any, ...] = (at[-2], slice(None)) if factor == 0 else (slice(None), at[-1])
        return indices[batch + factors]
    if value.dim() == result.dim():
        sizes = zip(value.shape, result.shape, at, strict=True)
        same = [i if size == other else slice(None) for size, other, i in sizes]
        reduced = _dimensions(node)
        for dimension in reduced:
            same[dimension % value.dim()] = slice(None)
        if reduced or tuple(value.shape) != tuple(result.shape):
            return indices[tuple(same)].reshape(-1)
    reduced = [d % value.dim() for d in _dimensions(node)] if value.dim() else []
    if len(reduced) == value.dim() - result.dim() and reduced:
        kept = iter(at)
        return indices[tuple(slice(None) if d in reduced else next(kept) for d in range(value.dim()))].reshape(-1)
    return indices.reshape(-1)


def _broadcast(indices: torch.Tensor, at: tuple[int, ...]) -> torch.Tensor:
    own = at[len(at) - indices.dim() :]
    return indices[tuple(0 if size == 1 else i for size, i in zip(indices.shape, own, strict=True))].reshape(1)


def is_elementwise(node: Node) -> bool:
    """True if each element of a node's result is computed from one element of each argument."""
    import torch

    if node.target in inductor_operators.ELEMENTWISE:
        return True
    try:
        function: Any = operator_of(node.target)
    except NotEvaluableError:
        return False
    return isinstance(function, torch._ops.OpOverload) and torch.Tag.pointwise in function.tags


def _dimensions(node: Node) -> list[int]:
    """The dimensions that a reduction, a softmax or a scan goes along; [] if it names none."""
    for argument in node.args[1:]:
        if isinstance(argument, list) and argument and all(type(item) is int for item in argument):
            return argument
        if type(argument) is int:
            return [argument]
    return []
