"""The random numbers that a call of a run drew, handed to the operators of its exported program. Runs in a child.

Inductor replaces every operator that draws by one that makes the numbers from a seed: of each device, the n-th operator
takes the n-th seed, wherever later passes move it. From the recorded seeds the numbers are made again, and take the
place of what the operators of the exported program would draw.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from aoti_debug.compare.evaluate import functions
from aoti_debug.compare.evaluate.arguments import converted
from aoti_debug.compare.evaluate.arithmetic import Arithmetic
from aoti_debug.compare.evaluate.evaluation import Evaluation
from aoti_debug.compare.evaluate.functions import NotEvaluableError, draws
from aoti_debug.compare.protocol.request import ProgramRun
from aoti_debug.package import program_graphs
from aoti_debug.package.inputs.symbolic_sizes import Symbols

if TYPE_CHECKING:
    import torch

Seeds = Mapping[program_graphs.ValueKey, "torch.Tensor"]
_Operator = Callable[["_OfDevice", list[Any], dict[str, Any]], Any]


class DrawnNumbers:
    """The numbers of one call, in the order in which they are drawn.

    Args:
        reference: with the graph that the kernels were generated from.
        seeds: the values of the nodes of that graph that make seeds.
        run: a call of that graph, whose symbolic sizes are known; None if all sizes are numbers.

    Raises:
        NotEvaluableError: the graph draws otherwise too, or seeds or their order are not known.
    """

    def __init__(
        self,
        reference: program_graphs.Reference,
        seeds: Seeds,
        arithmetic: Arithmetic,
        device: str,
        run: ProgramRun | None = None,
    ) -> None:
        graph = reference.graph("", program_graphs.MODEL)
        if graph is None:
            raise NotEvaluableError("it draws random numbers, and the graph that draws them is not known")
        evaluation = Evaluation(reference, graph, arithmetic, device)
        for key, value in seeds.items():
            evaluation.set(key, value)
        self._arithmetic = arithmetic
        symbols = Symbols() if run is None else Symbols(known=run.symbols)
        drawing = _drawing(graph, seeds)
        self._of_devices = {name: _OfDevice(graph, evaluation, nodes, symbols) for name, nodes in drawing.items()}

    def result(self, node: program_graphs.Node, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """The result of a node of the exported program, the next one of its device that draws.

        Raises:
            NotEvaluableError: the graph draws other numbers then, or the operator is none of those that are known.
        """
        operator = _OPERATORS.get(node.target)
        if operator is None or kwargs.get("generator") is not None:
            raise NotEvaluableError(f"it draws random numbers with {node.target}")
        numbers = self._of_devices.get(_device(node))
        if numbers is None:
            raise NotEvaluableError("it draws random numbers more often than the graph of the kernels")
        return converted(operator(numbers, args, kwargs), self._arithmetic)

    def require_all_taken(self) -> None:
        """Checks that no number is left at the end of a call.

        Raises:
            NotEvaluableError: one is.
        """
        if not all(numbers.are_taken for numbers in self._of_devices.values()):
            raise NotEvaluableError("it draws random numbers less often than the graph of the kernels")


class _OfDevice:
    """The numbers that are drawn on one device.

    Args:
        nodes: those that draw them, in the order of their seeds.
        symbols: the values of symbolic sizes.
    """

    def __init__(
        self,
        graph: program_graphs.Graph,
        evaluation: Evaluation,
        nodes: Sequence[program_graphs.Node],
        symbols: Symbols,
    ) -> None:
        self._graph = graph
        self._symbols = symbols
        self._evaluation = evaluation
        self._nodes = nodes
        self._next = 0

    @property
    def are_taken(self) -> bool:
        """True if none is left."""
        return self._next == len(self._nodes)

    def take(self, kind: str, shape: Sequence[int]) -> torch.Tensor:
        """The next numbers: "rand" or "randn"; of integers "LOW:HIGH".

        Raises:
            NotEvaluableError: they are of another kind or shape in the graph.
        """
        import torch

        if self.are_taken:
            raise NotEvaluableError("it draws random numbers more often than the graph of the kernels")
        node = self._nodes[self._next]
        self._next += 1
        for name in node.inputs:
            reader = self._graph.by_name[name]
            if program_graphs.ValueKey(name) not in self._evaluation.values:
                self._evaluation.run(reader, self._symbols.value(reader.size) if reader.size else None)
        self._evaluation.run(node)
        value = self._evaluation.value(program_graphs.ValueKey(node.name))
        drawn = f"{node.args[0]}:{node.args[1]}" if node.target == functions.INTEGER else node.args[2]
        if not isinstance(value, torch.Tensor) or drawn != kind or tuple(value.shape) != tuple(shape):
            raise NotEvaluableError("the graph of the kernels draws random numbers in another order")
        return value


def _drawing(graph: program_graphs.Graph, seeds: Seeds) -> Mapping[str, Sequence[program_graphs.Node]]:
    """The nodes that draw, in the order of their seeds, by the device of these.

    Raises:
        NotEvaluableError: a seed, or the order of two of them, is not known, or no node draws from one.
    """
    drawing: dict[str, dict[int, program_graphs.Node]] = {}  # by the node of the seeds
    for node in graph.nodes:
        if node.kind is not program_graphs.NodeKind.CALL:
            continue
        if node.target in program_graphs.SEEDS:
            if program_graphs.ValueKey(node.name) not in seeds:
                raise NotEvaluableError("it draws random numbers, whose seeds are not recorded")
            drawing[node.name] = {}
        elif node.target in functions.DRAWN:
            maker, index = _seed(graph, node)
            if index in drawing.setdefault(maker, {}):
                raise NotEvaluableError(f"it draws random numbers twice from seed {index}")
            drawing[maker][index] = node
        elif draws(node):
            raise NotEvaluableError(f"it draws random numbers with {node.target}")
    found: dict[str, Sequence[program_graphs.Node]] = {}
    for maker, of_index in drawing.items():
        made = graph.by_name[maker]
        count = made.args[0] if made.target == program_graphs.SEVERAL_SEEDS else 1
        if sorted(of_index) != list(range(count)):
            raise NotEvaluableError("it draws random numbers, and not from every seed")
        if _device(made) in found:
            raise NotEvaluableError(
                "it draws random numbers from several groups of seeds, in an order that is not known"
            )
        found[_device(made)] = [of_index[index] for index in range(count)]
    return found


def _seed(graph: program_graphs.Graph, node: program_graphs.Node) -> tuple[str, int]:
    """The node that makes the seed that a node draws from, and the place of the seed among those.

    Raises:
        NotEvaluableError: it is none that was made for this.
    """
    seed = node.args[3] if node.target == functions.INTEGER else node.args[1]
    for name in program_graphs.nodes_in(seed):
        made, index = graph.by_name[name], 0
        if made.target == functions.LOOKUP:
            made, index = graph.by_name[made.inputs[0]], made.args[1]
        if made.target in program_graphs.SEEDS and isinstance(index, int):
            return made.name, index
    raise NotEvaluableError("it draws random numbers from seeds of a kind that is not known here")


def _device(node: program_graphs.Node) -> str:
    """The device of a node's result.

    Raises:
        NotEvaluableError: it is not known.
    """
    for type_ in node.types:
        if type_ is not None:
            return type_.device
    raise NotEvaluableError(f"it is not known on which device {node.target} draws random numbers")


def _of_shape(kind: str) -> _Operator:
    def drawn(numbers: _OfDevice, args: list[Any], kwargs: dict[str, Any]) -> Any:
        return numbers.take(kind, args[0]).to(_dtype(kwargs))

    return drawn


def _like(kind: str) -> _Operator:
    def drawn(numbers: _OfDevice, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if not args[0].is_contiguous():  # then they are drawn in the order of its addresses
            raise NotEvaluableError("it draws random numbers in the layout of a tensor that is not contiguous")
        return numbers.take(kind, args[0].shape).to(kwargs.get("dtype") or args[0].dtype)

    return drawn


def _dtype(kwargs: dict[str, Any]) -> torch.dtype:
    import torch

    return kwargs.get("dtype") or torch.get_default_dtype()


def _integers(numbers: _OfDevice, args: list[Any], kwargs: dict[str, Any]) -> Any:
    import torch

    *limits, shape = args
    low, high = limits if len(limits) == 2 else (0, *limits)
    return numbers.take(f"{low}:{high}", shape).to(kwargs.get("dtype") or torch.int64)


def _dropout(numbers: _OfDevice, args: list[Any], kwargs: dict[str, Any]) -> Any:
    return _native_dropout(numbers, args, kwargs)[0]


def _native_dropout(numbers: _OfDevice, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Dropout by torch's own decomposition, with the numbers of the run, which decide what is dropped.

    The decomposition takes `train=None` for False, where torch draws.
    """
    import torch
    from torch._decomp import decomposition_table
    from torch.utils._python_dispatch import TorchDispatchMode

    class Handing(TorchDispatchMode):  # type: ignore[misc]
        """Hands out the numbers where the decomposition draws."""

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func is torch.ops.aten.rand_like.default:
                return _like("rand")(numbers, list(args), kwargs or {})
            return func(*args, **(kwargs or {}))

    values, probability = (*args, kwargs.get("p"))[:2]
    with Handing():
        return decomposition_table[torch.ops.aten.native_dropout.default](values, probability, train=True)


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
