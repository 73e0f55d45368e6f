"""Finds the first element of an operand that an operator of a region cannot use. Runs in a child process.

The operators are evaluated in their order; one with such an operand is not evaluated any more.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from aoti_debug.base.frozen import dataclass
from aoti_debug.compare.evaluate.arithmetic import Arithmetic
from aoti_debug.compare.evaluate.evaluation import Evaluation
from aoti_debug.compare.evaluate.functions import NotEvaluableError, operator_of
from aoti_debug.compare.explain.element_trace import MOVES, is_elementwise
from aoti_debug.compare.explain.operand_source import BadElement, OperandSource
from aoti_debug.compare.protocol.messages import BadOperand, BadSource, Computed, Operand
from aoti_debug.package.argument_values import unravel
from aoti_debug.package.inputs.symbolic_sizes import Symbols
from aoti_debug.package.program_graphs import Graph, Node, NodeKind, Reference, ValueKey

if TYPE_CHECKING:
    import torch

_LISTS = {"index": 1, "_unsafe_index": 1, "index_put": 1, "_unsafe_index_put": 1}  # position of the list of indices
_ALONG = frozenset(  # of a table, a dimension and an index
    {"gather", "index_select", "scatter", "scatter_add", "scatter_reduce", "index_add", "index_copy", "index_fill"}
)
_ROWS = frozenset({"embedding", "_embedding_bag", "_embedding_bag_forward_only", "embedding_bag"})
_DIVISIONS = frozenset({"div", "floor_divide", "remainder", "fmod"})
_OVERFLOWING = ("int32", "int64")  # narrower integers are divided as int32
_PICKS = frozenset({"where"})  # moves elements of several arguments, by the first


@dataclass(frozen=True, kw_only=True)
class _Use:
    """An operand that has to lie within bounds.

    Attributes:
        is_bad: True where a value of that shape does not.
        dividends: what is divided, where the divisor -1 is bad; None elsewhere.
        table, dimension, size: see BadOperand.
    """

    name: str
    values: torch.Tensor
    is_bad: Callable[[torch.Tensor], torch.Tensor]
    dividends: torch.Tensor | None = None
    table: str = ""
    dimension: int = 0
    size: int = 0


class BadOperandSearch:
    """Evaluates nodes in eager and looks at what each operator uses as an index, or as an integer divisor.

    Attributes:
        evaluation: the values that were evaluated.
    """

    def __init__(
        self,
        reference: Reference,
        graph: Graph,
        known: Mapping[ValueKey, Any],
        symbols: Symbols,
        device: str,
        upstream: Mapping[ValueKey, Any] = MappingProxyType({}),
    ) -> None:
        """Begins with the values that a launch read.

        Args:
            upstream: those that launches before it read and wrote.
        """
        self._reference = reference
        self._graph = graph
        self._symbols = symbols
        self._device = device
        self._known = known
        self._upstream = upstream
        self.evaluation = Evaluation(reference, graph, Arithmetic.EAGER, device)
        for key, value in known.items():
            self.evaluation.set(key, value)

    def first(self, launch: str, nodes: tuple[str, ...]) -> BadOperand | None:
        """The first bad element; None if there is none that can be seen.

        Args:
            nodes: those to evaluate, in order; those whose operands are not known are left out.
        """
        for name in nodes:
            node = self._graph.by_name[name]
            if node.kind is not NodeKind.CALL:
                continue
            for use in self._uses(node):
                if bool(use.is_bad(use.values).any()):
                    return self._described(launch, node, use)
            self.evaluation.run(node, self._symbols.value(node.size) if node.size else None)
        return None

    def _uses(self, node: Node) -> Iterator[_Use]:
        name = _name(node)
        if name in _LISTS:
            indices = node.args[_LISTS[name]]
            for dimension, item in enumerate(indices if isinstance(indices, list | tuple) else ()):
                yield from self._index(node, item, dimension, wraps=True)
        elif name in _ALONG and isinstance(node.args[1], int):
            yield from self._index(node, node.args[2], node.args[1], wraps=False)
        elif name in _ROWS:
            yield from self._index(node, node.args[1], 0, wraps=False)
        elif name in _DIVISIONS and len(node.args) > 1:
            yield from self._divisor(node, node.args[1])

    def _index(self, node: Node, item: Any, dimension: int, *, wraps: bool) -> Iterator[_Use]:
        import torch

        found, table = self._operand(node, item), node.args[0]
        if found is None or not isinstance(table, dict) or found[1].dtype in (torch.bool, torch.uint8):
            return
        name, values = found
        shape = self._shape(node, str(table.get("node")))
        if not shape or values.dtype.is_floating_point:
            return
        size = shape[dimension % len(shape)]
        if size is not None:
            least = -size if wraps else 0
            bad = functools.partial(_outside, least=least, size=size)
            yield _Use(
                name=name,
                values=values,
                is_bad=bad,
                dividends=None,
                table=str(table["node"]),
                dimension=dimension % len(shape),
                size=size,
            )

    def _divisor(self, node: Node, item: Any) -> Iterator[_Use]:
        import torch

        found = self._operand(node, item)
        result = node.types[0] if node.types else None
        if found is None or result is None or "float" in result.dtype or found[1].dtype.is_floating_point:
            return
        name, values = found
        yield _Use(name=name, values=values, is_bad=_is_zero)
        dividend = self._operand(node, node.args[0])
        if dividend is None or result.dtype not in _OVERFLOWING or dividend[1].dtype != values.dtype:
            return
        least = dividend[1] == torch.iinfo(dividend[1].dtype).min
        if bool(least.any()):
            shape = torch.broadcast_shapes(least.shape, values.shape)
            yield _Use(
                name=name,
                values=values.expand(shape),
                is_bad=lambda values: least & (values == -1),
                dividends=dividend[1].expand(shape),
            )

    def _operand(self, node: Node, item: Any) -> tuple[str, torch.Tensor] | None:
        """The name and the value of an argument; None if it is no tensor, or not known."""
        import torch

        if not isinstance(item, dict) or "node" not in item:
            return None
        value = self.evaluation.values.get(self._graph.value_for(item["node"], node.name))
        return (item["node"], value) if isinstance(value, torch.Tensor) and value.numel() else None

    def _shape(self, node: Node, table: str) -> list[int | None]:
        """The sizes of a tensor, whether its value is known or not."""
        import torch

        value = self.evaluation.values.get(self._graph.value_for(table, node.name))
        if isinstance(value, torch.Tensor):
            return list(value.shape)
        types = self._graph.by_name[table].types
        kind = types[0] if len(types) == 1 else None
        return [] if kind is None else [self._symbols.value(size) for size in kind.shape]

    def _described(self, launch: str, node: Node, use: _Use) -> BadOperand:
        bad = use.is_bad(use.values).reshape(-1)
        element = int(bad.to(use.values.device).nonzero()[0])
        value = int(use.values.reshape(-1)[element])
        key = self._graph.value_for(use.name, node.name)
        own = self.evaluation.values[key].shape
        is_whole = own == use.values.shape
        of = BadElement(key, element, value, use.is_bad)
        return BadOperand(
            launch=launch,
            node=node.name,
            operator=node.target,
            name=use.name,
            index=_own_place(unravel(element, tuple(use.values.shape)), own),
            value=value,
            count=int(bad.sum()),
            table=use.table,
            dimension=use.dimension,
            size=use.size,
            computed=self._computed(use.name, node.name, element) if is_whole else None,
            dividend="" if use.dividends is None else str(int(use.dividends.reshape(-1)[element])),
            source=self._source(of) if is_whole else None,
        )

    def _source(self, of: BadElement) -> BadSource | None:
        """The recorded element that a bad one comes from: as far back as recorded values reach, or in this launch."""
        search = OperandSource(self._reference, self._graph, self._symbols, self._device)
        return search.find(of, {**self._upstream, **self._known}, self._known)

    def _computed(self, name: str, reader: str, element: int) -> Computed | None:
        """The elementwise operator that an element comes from; None if another kind of operator, or none, made it."""
        import torch

        key = self._graph.value_for(name, reader)
        node = self._graph.by_name[key.after or key.node]
        if node.kind is not NodeKind.CALL or key in self._known:
            return None
        value = self.evaluation.values.get(key)
        moved = self._moved(node, element)
        if moved is not None:
            return self._computed(moved[0], node.name, moved[1])
        if not isinstance(value, torch.Tensor) or not is_elementwise(node):
            return None
        at = unravel(element, tuple(value.shape))
        operands = tuple(operand for item in node.args if (operand := self._operand_at(node, item, at)) is not None)
        dtype = str(value.dtype).removeprefix("torch.")
        return Computed(node.name, node.target, dtype, operands, self._exact(node, at)) if operands else None

    def _moved(self, node: Node, element: int) -> tuple[str, int] | None:
        """The argument and the element of it that an operator which only moves elements has moved to a place."""
        import torch

        is_list = bool(node.args) and isinstance(node.args[0], list)
        written = list(node.args[0] if is_list else node.args[:1])
        if _name(node) not in MOVES - _PICKS or not all(isinstance(item, dict) and "node" in item for item in written):
            return None
        try:
            args, kwargs = self.evaluation.arguments(node)
            values: list[torch.Tensor] = args[0] if is_list else args[:1]
            ends = list(accumulate(value.numel() for value in values))
            found = []
            for first in (0, ends[-1]):
                numbers = [
                    torch.arange(first + end - value.numel(), first + end, device=value.device).reshape(value.shape)
                    for value, end in zip(values, ends, strict=True)
                ]
                result = operator_of(node.target)(numbers if is_list else numbers[0], *args[1:], **kwargs)
                if not isinstance(result, torch.Tensor):
                    return None
                found.append(int(result.reshape(-1)[element]) - first)
        except (RuntimeError, TypeError, ValueError, IndexError, KeyError, NotEvaluableError):
            return None
        number = found[0]
        which = next((index for index, end in enumerate(ends) if 0 <= number < end), None)
        if which is None or found[1] != number:  # what a padding is filled with has no number
            return None
        return written[which]["node"], number - ends[which] + values[which].numel()

    def _operand_at(self, node: Node, item: Any, at: tuple[int, ...]) -> Operand | None:
        """The element, or the number, of an argument that an element of the result was computed from."""
        if isinstance(item, int | float) and not isinstance(item, bool):
            return Operand(name="", value=str(item))
        found = self._operand(node, item)
        if found is None:
            return None
        name, value = found
        own = at[len(at) - value.dim() :]
        place = tuple(0 if size == 1 else i for size, i in zip(value.shape, own, strict=True))
        return Operand(name=name, index=place, value=str(value[place].item()))

    def _exact(self, node: Node, at: tuple[int, ...]) -> str:
        import torch

        double = Evaluation(self._reference, self._graph, Arithmetic.DOUBLE, self._device)
        for name in node.inputs:
            value = self.evaluation.values.get(self._graph.value_for(name, node.name))
            wide = value.double() if isinstance(value, torch.Tensor) else value
            double.values[self._graph.value_for(name, node.name)] = wide
        double.run(node)
        try:
            return str(float(double.value(ValueKey(node.name))[at]))
        except NotEvaluableError:
            return "nan"


def _outside(values: torch.Tensor, least: int, size: int) -> torch.Tensor:
    return (values >= size) | (values < least)


def _own_place(place: tuple[int, ...], shape: Sequence[int]) -> tuple[int, ...]:
    """The coordinates in an operand of this shape of an element that it was broadcast to."""
    inner = place[len(place) - len(shape) :]
    return tuple(0 if size == 1 else at for at, size in zip(inner, shape, strict=True))


def _is_zero(values: torch.Tensor) -> torch.Tensor:
    return values == 0


def _name(node: Node) -> str:
    """The name of an operator; of one in place that of the other one: "index_put"."""
    return node.target.split(".")[1].rstrip("_") if node.target.count(".") else ""
