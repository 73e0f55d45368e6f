"""The random numbers that a call of a run drew, handed to the operators of its exported program. Runs in a child.

Inductor replaces every operator that draws by one that makes the numbers from a seed, in the same order. From the
recorded seeds they are made again, and take the place of what the operators of the exported program would draw.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from aoti_debug.compare.evaluate import random_numbers
from aoti_debug.compare.evaluate.arguments import converted
from aoti_debug.compare.evaluate.arithmetic import Arithmetic
from aoti_debug.compare.evaluate.evaluation import Evaluation
from aoti_debug.compare.evaluate.functions import NotEvaluableError, is_random
from aoti_debug.reference.program import MODEL, Graph, Node, NodeKind, Reference, ValueKey

if TYPE_CHECKING:
    import torch

Seeds = Mapping[ValueKey, "torch.Tensor"]
_Operator = Callable[["DrawnNumbers", list[Any], dict[str, Any]], Any]


class DrawnNumbers:
    """The numbers of one call, in the order in which they are drawn.

    Args:
        reference: with the graph that the kernels were generated from.
        seeds: the values of the nodes of that graph that make seeds.

    Raises:
        NotEvaluableError: the graph draws otherwise too, or seeds are not known.
    """

    def __init__(self, reference: Reference, seeds: Seeds, arithmetic: Arithmetic, device: str) -> None:
        graph = reference.graph("", MODEL)
        if graph is None:
            raise NotEvaluableError("it draws random numbers, and the graph that draws them is not known")
        self._graph: Graph = graph
        self._evaluation = Evaluation(reference, graph, arithmetic, device)
        for key, value in seeds.items():
            self._evaluation.set(key, value)
        self._arithmetic = arithmetic
        self._nodes = _drawing(graph, seeds)
        self._next = 0

    def result(self, target: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """The result of the next operator that draws.

        Raises:
            NotEvaluableError: the graph draws other numbers then, or the operator is none of those that are known.
        """
        operator = _OPERATORS.get(target)
        if operator is None or kwargs.get("generator") is not None:
            raise NotEvaluableError(f"it draws random numbers with {target}")
        return converted(operator(self, args, kwargs), self._arithmetic)

    def take(self, kind: str, shape: Sequence[int]) -> torch.Tensor:
        """The next numbers: "rand" or "randn"; of integers "LOW:HIGH".

        Raises:
            NotEvaluableError: they are of another kind or shape in the graph.
        """
        import torch

        if self._next == len(self._nodes):
            raise NotEvaluableError("it draws random numbers more often than the graph of the kernels")
        node = self._nodes[self._next]
        self._next += 1
        for name in node.inputs:
            reader = self._graph.by_name[name]
            if ValueKey(name) not in self._evaluation.values:
                self._evaluation.run(reader)
        self._evaluation.run(node)
        value = self._evaluation.value(ValueKey(node.name))
        drawn = f"{node.args[0]}:{node.args[1]}" if node.target == random_numbers.INTEGER else node.args[2]
        if not isinstance(value, torch.Tensor) or drawn != kind or tuple(value.shape) != tuple(shape):
            raise NotEvaluableError("the graph of the kernels draws random numbers in another order")
        return value

    def require_all_taken(self) -> None:
        """Checks that no number is left at the end of a call.

        Raises:
            NotEvaluableError: one is.
        """
        if self._next != len(self._nodes):
            raise NotEvaluableError("it draws random numbers less often than the graph of the kernels")


def _drawing(graph: Graph, seeds: Seeds) -> list[Node]:
    found = []
    for node in graph.nodes:
        if node.kind is not NodeKind.CALL:
            continue
        if node.target in random_numbers.DRAWN:
            found.append(node)
        elif node.target in random_numbers.SEEDS:
            if ValueKey(node.name) not in seeds:
                raise NotEvaluableError("it draws random numbers, whose seeds are not recorded")
        elif _draws(node):
            raise NotEvaluableError(f"it draws random numbers with {node.target}")
    return found


def _draws(node: Node) -> bool:
    try:
        return is_random(node.target, node.args, node.kwargs)
    except NotEvaluableError:
        return False


def _of_shape(kind: str) -> _Operator:
    def drawn(numbers: DrawnNumbers, args: list[Any], kwargs: dict[str, Any]) -> Any:
        return numbers.take(kind, args[0]).to(_dtype(kwargs))

    return drawn


def _like(kind: str) -> _Operator:
    def drawn(numbers: DrawnNumbers, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if not args[0].is_contiguous():  # then they are drawn in the order of its addresses
            raise NotEvaluableError("it draws random numbers in the layout of a tensor that is not contiguous")
        return numbers.take(kind, args[0].shape).to(kwargs.get("dtype") or args[0].dtype)

    return drawn


def _dtype(kwargs: dict[str, Any]) -> torch.dtype:
    import torch

    return kwargs.get("dtype") or torch.get_default_dtype()


def _integers(numbers: DrawnNumbers, args: list[Any], kwargs: dict[str, Any]) -> Any:
    import torch

    *limits, shape = args
    low, high = limits if len(limits) == 2 else (0, *limits)
    return numbers.take(f"{low}:{high}", shape).to(kwargs.get("dtype") or torch.int64)


def _dropout(numbers: DrawnNumbers, args: list[Any], _: dict[str, Any]) -> Any:
    return _native_dropout(numbers, args, {})[0]


def _native_dropout(numbers: DrawnNumbers, args: list[Any], _: dict[str, Any]) -> Any:
    """As torch's own decomposition of it does; which of the numbers are kept is its choice."""
    import torch
    from torch._decomp import decomposition_table
    from torch.utils._python_dispatch import TorchDispatchMode

    class Handing(TorchDispatchMode):  # type: ignore[misc]
        """Hands out the numbers where the decomposition draws."""

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func is torch.ops.aten.rand_like.default:
                return _like("rand")(numbers, list(args), kwargs or {})
            return func(*args, **(kwargs or {}))

    with Handing():
        return decomposition_table[torch.ops.aten.native_dropout.default](*args)


_OPERATORS: Mapping[str, _Operator] = {
    "aten.rand.default": _of_shape("rand"),
    "aten.randn.default": _of_shape("randn"),
    "aten.rand_like.default": _like("rand"),
    "aten.randn_like.default": _like("randn"),
    "aten.randint.default": _integers,
    "aten.randint.low": _integers,
    "aten.dropout.default": _dropout,
    "aten.native_dropout.default": _native_dropout,
}
