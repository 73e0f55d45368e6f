"""Choices among equal elements: indices that may select any of them, and outputs that depend on them. In a child."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING, Any

from aoti_debug.base.frozen import dataclass
from aoti_debug.compare.evaluate.arithmetic import Arithmetic, moves
from aoti_debug.compare.evaluate.evaluation import Adjustment, Evaluation
from aoti_debug.compare.measure.evaluated import Evaluated
from aoti_debug.compare.measure.ulp import ulp
from aoti_debug.package.program_graphs import Graph, Node, ValueKey

if TYPE_CHECKING:
    import torch

INDEX_ALONE = ("aten.argmax.default", "aten.argmin.default")
WITH_VALUES = (
    "aten.sort.default",
    "aten.sort.stable",
    "aten.topk.default",
    "aten.max.dim",
    "aten.min.dim",
    "aten.median.dim",
    "aten.nanmedian.dim",
    "aten.kthvalue.default",
    "aten.mode.default",
)
SELECT_FIRST = (*INDEX_ALONE, "aten.max.dim", "aten.min.dim")  # of equal elements the first one
_WITHOUT_ROUNDING = frozenset(
    f"aten.{name}.{overload}"
    for overload in ("default", "self", "other", "Tensor", "ScalarSelf", "ScalarOther")
    for name in (
        *("abs", "ceil", "clamp", "clamp_max", "clamp_min", "clone", "floor", "full", "maximum", "minimum", "neg"),
        *("relu", "round", "sign", "trunc", "where", "flip", "expand", "cat"),
    )
)
_DIM_POSITION = {"aten.topk.default": 2, "aten.sort.stable": 2, "aten.kthvalue.default": 2}  # others: 1
_ROUNDING = 4.0  # ULP


class Choice(str, Enum):
    """One of several equal elements."""

    NEXT = "next"  # after the one that was chosen; after the last one, the first
    PREVIOUS = "previous"
    FIRST = "first"
    LAST = "last"


def may_choose(node: Node) -> bool:
    """True if a node selects elements by an index and may choose any of equal ones."""
    stable = node.target == "aten.sort.stable" and True in (node.kwargs.get("stable"), *node.args[1:2])
    return not stable and node.target in (*INDEX_ALONE, *WITH_VALUES)


def leaves_order_open(node: Node) -> bool:
    """True if torch does not document which of equal elements a node chooses."""
    return may_choose(node) and node.target not in SELECT_FIRST


def selected_dim(node: Node) -> int | None:
    """The dimension along which a node selects; None for all of them."""
    default = None if node.target in INDEX_ALONE else -1
    position = _DIM_POSITION.get(node.target, 1)
    value = node.kwargs.get("dim", node.args[position] if position < len(node.args) else default)
    return value if isinstance(value, int) else default


def tolerance(graph: Graph, node: Node) -> float:
    """The relative difference of elements that a kernel may take for equal: a few ULP of their dtype."""
    import torch

    types = graph.by_name[node.inputs[0]].types if node.inputs else ()
    dtype = getattr(torch, types[0].dtype) if len(types) == 1 and types[0] is not None else torch.int64
    return 4 * torch.finfo(dtype).eps if dtype.is_floating_point else 0.0


def other_choice(node: Node, args: Sequence[Any], result: Any, choice: Choice, tolerance: float = 0.0) -> Any:
    """The result of a node, with another index of an equal element in place of each index, wherever there is one.

    Args:
        tolerance: relative; elements that differ by less count as equal.
    """
    if not may_choose(node):
        return result
    index = result if node.target in INDEX_ALONE else result[1]
    other = _other_index(args[0], index, selected_dim(node), choice, tolerance)
    return other if node.target in INDEX_ALONE else (result[0], other)


def _other_index(
    elements: torch.Tensor, index: torch.Tensor, dim: int | None, choice: Choice, tolerance: float
) -> torch.Tensor:
    if dim is None:
        return _other_index(elements.reshape(-1), index.reshape(1), 0, choice, tolerance).reshape(index.shape)
    if not elements.dim():
        return index
    others = _others(elements.movedim(dim, -1), choice, tolerance)
    if index.dim() < elements.dim():
        return others.gather(-1, index.unsqueeze(-1)).squeeze(-1)
    return others.gather(-1, index.movedim(dim, -1)).movedim(-1, dim)


def _others(elements: torch.Tensor, choice: Choice, tolerance: float) -> torch.Tensor:
    """Of each element along the last dimension, the index of another one that equals it."""
    import torch

    ordered, order = elements.sort(stable=True, dim=-1)
    size = ordered.shape[-1]
    positions = torch.arange(size, device=elements.device).expand(order.shape)
    begins = torch.ones_like(order, dtype=torch.bool)
    begins[..., 1:] = ~torch.isclose(ordered[..., 1:], ordered[..., :-1], rtol=tolerance, atol=0.0, equal_nan=True)
    ends = begins.roll(-1, -1)
    first = torch.where(begins, positions, 0).cummax(-1).values
    last = size - 1 - torch.where(ends, size - 1 - positions, 0).flip(-1).cummax(-1).values.flip(-1)
    chosen = {
        Choice.FIRST: first,
        Choice.LAST: last,
        Choice.NEXT: torch.where(ends, first, positions + ~ends),
        Choice.PREVIOUS: torch.where(begins, last, positions - (~begins).to(positions.dtype)),
    }[choice]
    return torch.empty_like(order).scatter_(-1, order, order.gather(-1, chosen))


@dataclass(frozen=True)
class ChoiceRange:
    """The values that each element of an output has with several choices.

    Attributes:
        low, high: the least and the largest; equal, or NaN, where an element depends on no choice.
    """

    low: torch.Tensor
    high: torch.Tensor

    @property
    def depends(self) -> torch.Tensor:
        """True where an element depends on a choice."""
        return (self.low != self.high) & ~(self.low.isnan() & self.high.isnan())

    def applied(self, output: Evaluated) -> Evaluated:
        """The output, judged by this range alone where an element depends on a choice.

        There, what lies in the range counts as exactly right, and what other evaluations chose counts for no element.
        """
        import torch

        depends = self.depends
        low, high, actual = self.low.double(), self.high.double(), output.actual.double()
        dtype = output.actual.dtype
        slack = _ROUNDING * ulp(high.abs().maximum(low.abs()), dtype) if dtype.is_floating_point else 0.0
        within = depends & (actual >= low - slack) & (actual <= high + slack)
        right = output.double

        def settled(tensor: torch.Tensor) -> torch.Tensor:
            return torch.where(depends, right.to(tensor.dtype), tensor)

        return replace(
            output,
            actual=torch.where(within, right.to(output.actual.dtype), output.actual),
            eager=settled(output.eager),
            kernel=settled(output.kernel),
            perturbed=tuple(map(settled, output.perturbed)),
        )


def choice_range(values: Sequence[torch.Tensor]) -> ChoiceRange | None:
    """The range of evaluations with several choices; None if no element depends on one, or it has no order."""
    import torch

    if values[0].is_complex():
        return None
    wide = [value.to(torch.uint8) if value.dtype is torch.bool else value for value in values]
    stacked = torch.stack(wide)
    found = ChoiceRange(stacked.amin(0), stacked.amax(0))
    return found if bool(found.depends.any()) else None


def range_of_choices(
    graph: Graph,
    expected: Callable[[Evaluation], torch.Tensor],
    actual: torch.Tensor,
    known: Mapping[ValueKey, Any],
    evaluate: Callable[..., Evaluation],
) -> ChoiceRange | None:
    """The range of an output over the choices among equal elements; None as of `choice_range`."""
    # Eager's rounding would count as a choice of floating numbers.
    arithmetic = Arithmetic.DOUBLE if actual.dtype.is_floating_point else Arithmetic.EAGER

    def adjust(choice: Choice) -> Adjustment:
        return lambda node, args, result: other_choice(node, args, result, choice, tolerance(graph, node))

    evaluations = [evaluate(arithmetic, known), *(evaluate(arithmetic, known, adjust=adjust(c)) for c in Choice)]
    return choice_range([expected(evaluation) for evaluation in evaluations])


def _is_rounded(graph: Graph, name: str, nodes: Collection[str]) -> bool:
    """True if a kernel that computes `nodes` may round the elements of a node otherwise than eager does."""
    waiting, seen = [name], {name}
    while waiting:
        node = graph.by_name[waiting.pop()]
        if node.name not in nodes:
            continue
        if node.target not in _WITHOUT_ROUNDING and not moves(node.target):
            return True
        waiting += (new := [source for source in node.inputs if source not in seen])
        seen.update(new)
    return False


def equal_choices(
    graph: Graph, name: str, actual: torch.Tensor, eager: Evaluation, nodes: Collection[str]
) -> torch.Tensor | None:
    """True where an index selects an element that equals the one which eager's index selects, or nearly so.

    Of equal elements, argmax, argmin, max and min select the first, as torch documents. Equal floating numbers need not
    be equal in the kernel, if it rounds them otherwise.

    Args:
        name: the node whose result `actual` should be.
        nodes: the nodes that the kernel computes.

    Returns:
        None if the node does not select elements by an index.
    """
    import torch

    node = graph.by_name[name]
    selection = _selection(graph, node)
    if selection is None or not selection.inputs:
        return None
    keys = [key for key in eager.values if key.node == selection.inputs[0]]
    expected = eager.values.get(ValueKey(name))
    if not keys or not isinstance(expected, torch.Tensor):
        return None
    elements = eager.values[keys[-1]]
    dim = selected_dim(selection)
    keepdim = expected.dim() == elements.dim()
    if dim is None:
        elements, dim, keepdim = elements.reshape(-1), 0, False
    if not elements.dim():
        return None
    chosen, correct = (_gathered(elements, index, dim, keepdim=keepdim) for index in (actual, expected))
    if chosen is None or correct is None:
        return None
    is_floating = elements.dtype.is_floating_point
    if selection.target in SELECT_FIRST and not (is_floating and _is_rounded(graph, selection.inputs[0], nodes)):
        return actual == expected.reshape(actual.shape)
    return torch.isclose(chosen, correct, rtol=_tolerance(elements), atol=0.0, equal_nan=True).reshape(actual.shape)


def chooses_equal(node: Node, elements: torch.Tensor, actual: torch.Tensor, expected: torch.Tensor) -> bool:
    """True if the indices of a node choose elements that equal those which other indices choose, and none twice."""
    import torch

    dim = selected_dim(node)
    if dim is None or not elements.dim() or actual.shape != expected.shape:
        return False
    keepdim = expected.dim() == elements.dim()
    chosen, correct = (_gathered(elements, index, dim, keepdim=keepdim) for index in (actual, expected))
    if chosen is None or correct is None:
        return False
    is_once = not keepdim or bool((actual.sort(dim).values.diff(dim=dim) != 0).all())
    return is_once and bool(torch.isclose(chosen, correct, rtol=0.0, atol=0.0, equal_nan=True).all())


def selected_from(graph: Graph, name: str) -> tuple[str, ...]:
    """The node that holds the elements of which a node holds an index, if it does: their values are looked at."""
    selection = _selection(graph, graph.by_name[name])
    return () if selection is None else selection.inputs[:1]


def _selection(graph: Graph, node: Node) -> Node | None:
    """The operator that chose the indices; None if the node holds no indices."""
    if node.target in INDEX_ALONE:
        return node
    if node.is_member and node.args[1:] == (1,):
        source = graph.by_name[node.inputs[0]]
        return source if source.target in WITH_VALUES else None
    return None


def _gathered(elements: torch.Tensor, index: torch.Tensor, dim: int, *, keepdim: bool) -> torch.Tensor | None:
    if not keepdim:
        index = index.unsqueeze(dim)
    size = elements.shape[dim]
    if index.dim() != elements.dim() or bool(((index < 0) | (index >= size)).any()):
        return None
    return elements.gather(dim, index.long())


def _tolerance(elements: torch.Tensor) -> float:
    import torch

    return 4 * torch.finfo(elements.dtype).eps if elements.dtype.is_floating_point else 0.0
