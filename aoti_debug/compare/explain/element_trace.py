"""Follows a non-finite element back through the nodes of a region, to the operator that made it. Runs in a child.

Of an operator that only moves elements, the sources of an element are found by evaluating it on the indices of its
arguments; of elementwise ones by the coordinates, of products of matrices by row and column; of any other operator all
elements of the arguments count.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from aoti_debug.base.frozen import dataclass
from aoti_debug.compare.evaluate import functions
from aoti_debug.compare.evaluate.arithmetic import Arithmetic
from aoti_debug.compare.evaluate.evaluation import Evaluation
from aoti_debug.compare.evaluate.functions import NotEvaluableError, operator_of
from aoti_debug.compare.protocol.messages import Made, Operand
from aoti_debug.package.argument_values import unravel
from aoti_debug.package.program_graphs import Graph, Node, NodeKind, Reference, ValueKey, operator_name

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
    moved = _moved(node, evaluation.arguments(node), place) if operator_name(node.target) in MOVES else None
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
    kind = operator_name(node.target)
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

    if node.target in functions.ELEMENTWISE:
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


class ElementTrace:
    """The way of one element through evaluated nodes."""

    def __init__(self, reference: Reference, graph: Graph, evaluation: Evaluation, device: str) -> None:
        self._reference = reference
        self._graph = graph
        self._evaluation = evaluation
        self._device = device

    def origin(self, key: ValueKey, element: int) -> tuple[Made, Made | None] | None:
        """The number that a non-finite element comes from, and the NaN that it became; None if it came in."""
        nan = self._producer(ElementPlace(key, -1, element))
        if nan is None:
            return None
        place, sources = nan
        made = self._made(place, sources)
        for source in sources:
            infinite = source.numbers.isinf() if made.value == "nan" else None
            if infinite is None or not bool(infinite.any()):
                continue
            earlier = self._producer(source.first(infinite))
            if earlier is not None and not self._is_meant(earlier[0]):
                return self._made(*earlier), made
        return made, None

    def _producer(self, place: ElementPlace) -> tuple[ElementPlace, tuple[ElementSource, ...]] | None:
        """The place where a real value like this one came about first, and what it was computed from."""
        while True:
            node = self._node(place.key)
            if node is None or node.kind is not NodeKind.CALL:
                return None
            if node.is_member:
                producer = self._graph.value_for(node.inputs[0], node.name)
                place = ElementPlace(producer, int(node.args[1]), place.element)
                continue
            sources = tuple(sources_of(self._graph, self._evaluation, node, place))
            values = value_at(self._evaluation, place)
            if values.is_complex():
                return None
            number = float(values.reshape(-1)[place.element])
            step = next((s for s in (_step(source, number) for source in sources) if s is not None), None)
            if step is None:
                return place, sources
            place = step

    def _node(self, key: ValueKey) -> Node | None:
        """The node that computed a value in this region."""
        name = key.after or key.node
        return self._graph.by_name[name] if ValueKey(name) in self._evaluation.values else None

    def _is_meant(self, place: ElementPlace) -> bool:
        """True if an infinity is written in the program: a mask, a fill value."""
        node = self._node(place.key)
        if node is None or not any(True for _ in sources_of(self._graph, self._evaluation, node, place)):
            return True
        numbers = [a["float"] for a in (*node.args, *node.kwargs.values()) if isinstance(a, dict) and "float" in a]
        return any("inf" in number for number in numbers)

    def _made(self, place: ElementPlace, sources: tuple[ElementSource, ...]) -> Made:
        node = self._node(place.key)
        assert node is not None
        result = value_at(self._evaluation, place)
        by_name = {source.name: source for source in sources}
        operands: list[Operand] = []
        for argument in node.args:
            name = argument.get("node") if isinstance(argument, dict) else None
            if name in by_name:
                operands.append(_operand(by_name[str(name)]))
            elif name is not None and (integer := self._integer(node, str(name), result, place)) is not None:
                operands.append(integer)
            elif isinstance(argument, int | float) and not isinstance(argument, bool):
                operands.append(Operand(name="", value=str(float(argument))))
        return Made(
            node=node.name,
            operator=node.target,
            dtype=str(result.dtype).removeprefix("torch."),
            index=unravel(place.element, tuple(result.shape)),
            value=str(float(result.reshape(-1)[place.element])),
            exact=self._exact(node, place),
            operands=tuple(operands),
            reduces=any(operand.count > 1 for operand in operands),
            sizes=tuple(str(argument) for argument in node.args if _is_size(argument)),
        )

    def _integer(self, node: Node, name: str, result: torch.Tensor, place: ElementPlace) -> Operand | None:
        """The element of an argument of integers, as the count that a sum is divided by; None for other arguments."""
        import torch

        value = self._evaluation.values.get(self._graph.value_for(name, node.name))
        if not isinstance(value, torch.Tensor) or value.dtype.is_floating_point or value.dtype.is_complex:
            return None
        if value.dtype is torch.bool or not is_elementwise(node) or value.dim() > result.dim():
            return None
        element = int(_corresponding(node, name, value, result, unravel(place.element, tuple(result.shape)))[0])
        index = unravel(element, tuple(value.shape))
        return Operand(name=name, index=index, value=str(int(value.reshape(-1)[element])))

    def _exact(self, node: Node, place: ElementPlace) -> str:
        """The result for the same operands in float64; "nan" where the operator has none."""
        double = Evaluation(self._reference, self._graph, Arithmetic.DOUBLE, self._device)
        for name in node.inputs:
            key = self._graph.value_for(name, node.name)
            if key in self._evaluation.values:
                double.set(key, self._evaluation.values[key])
        double.run(node)
        try:
            value = double.value(ValueKey(node.name))
        except NotEvaluableError:
            return "nan"
        result = value[place.part] if place.part >= 0 else value
        return str(float(result.reshape(-1)[place.element]))


def _is_size(argument: Any) -> bool:
    is_list = isinstance(argument, list | tuple) and len(argument) > 1
    return is_list and all(isinstance(item, int) and not isinstance(item, bool) for item in argument)


def _step(source: ElementSource, number: float) -> ElementPlace | None:
    """The element of an argument that explains a number: NaN explains NaN, anything non-finite an infinity."""
    numbers = source.numbers
    which = numbers.isnan() if math.isnan(number) else ~numbers.isfinite()
    return source.first(which) if bool(which.any()) else None


def _operand(source: ElementSource) -> Operand:
    numbers = source.numbers
    count = int(numbers.numel())
    if count == 1:
        index = unravel(int(source.elements[0]), tuple(source.value.shape))
        return Operand(name=source.name, index=index, value=str(float(numbers[0])))
    infinite = numbers.isinf()
    return Operand(
        name=source.name,
        count=count,
        zeros=int((numbers == 0).sum()),
        plus_infinities=int((infinite & (numbers > 0)).sum()),
        minus_infinities=int((infinite & (numbers < 0)).sum()),
    )
