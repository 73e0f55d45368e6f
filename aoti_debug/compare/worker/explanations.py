"""The operators that, computed wrongly, explain the wrong outputs of a region. Runs in a child process.

A kernel may compute an operator several times, and only once wrongly: for some of the outputs, or in the whole vectors
of a loop. So if no operator explains all outputs, the elements that are wrong of the first wrong output are looked at
alone, with the outputs that are right as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from aoti_debug.base.frozen import dataclass
from aoti_debug.compare.evaluate.evaluation import Adjustment, Evaluation
from aoti_debug.compare.explain.wrong_operators import WrittenOutput, WrongOperators
from aoti_debug.compare.measure.output_errors import is_low_precision
from aoti_debug.compare.measure.ulp import finite, ulp
from aoti_debug.compare.protocol.measurement import Explanation
from aoti_debug.compare.protocol.request import KnownValue, Region
from aoti_debug.compare.worker.recorded_tensors import as_written
from aoti_debug.package.inputs.symbolic_sizes import Symbols
from aoti_debug.package.program_graphs import Graph, Node, NodeKind

if TYPE_CHECKING:
    import torch

_MAX_NODES = 64  # each of them takes an evaluation
_LEAST = 0.5  # of the difference
_LEAST_ELEMENTS = 8  # fewer numbers are explained by too many operators
_MAX_NUMBERS = 1 << 16  # that are counted
_ROUNDING = 16.0  # ULP


@dataclass(frozen=True)
class WrittenValue:
    """An output of the region, as the launch wrote it."""

    item: KnownValue
    actual: torch.Tensor
    symbols: Symbols

    @property
    def node(self) -> str:
        """The node whose result it is."""
        return self.item.value.after or self.item.value.node

    @property
    def is_floating(self) -> bool:
        """True if rounding does not make it jump."""
        return bool(self.actual.dtype.is_floating_point)

    def expected(self, evaluation: Evaluation) -> torch.Tensor:
        """The value of an evaluation, as the launch would have written it."""
        return as_written(evaluation.value(self.item.value), self.actual, self.item, self.symbols)


@dataclass(frozen=True)
class Blamed:
    """A region with wrong outputs.

    Attributes:
        nodes: of the region, in order.
        outputs: those that were compared.
        wrong: the arguments that are wrong.
    """

    graph: Graph
    nodes: Sequence[str]
    outputs: Sequence[WrittenValue]
    wrong: Set[str]

    @property
    def kept(self) -> Iterator[str]:
        """The nodes whose results are known to be right."""
        for output in self.outputs:
            if output.is_floating and output.item.recorded.argument not in self.wrong:
                yield output.node

    @property
    def first(self) -> WrittenValue | None:
        """The first wrong output of floating dtype; None without any."""
        wrong = {o.node: o for o in self.outputs if o.is_floating and o.item.recorded.argument in self.wrong}
        return wrong[self.graph.sorted(wrong)[0]] if wrong else None


def explanations_of(blamed: Blamed, right: Evaluation, copy: Callable[[], Evaluation]) -> tuple[Explanation, ...]:
    """The operators that explain the wrong outputs, the best ones first.

    Args:
        right: the region, evaluated in the kernel's arithmetic.
        copy: makes an evaluation without values, in the same arithmetic.
    """
    everything = [WrittenOutput(output.actual, output.expected) for output in blamed.outputs]
    found = WrongOperators(blamed.graph, right, blamed.nodes, everything, copy).explanations()
    first = blamed.first
    if found:
        return found if _tells_operators_apart(blamed, right) else ()
    if first is None:
        return ()
    wrong = _wrong_elements(first.actual, first.expected(right))
    if int(wrong.sum()) < _LEAST_ELEMENTS:
        return ()
    output = WrittenOutput(first.actual[wrong], lambda evaluation: first.expected(evaluation)[wrong])
    kept = frozenset(blamed.kept)
    partial = WrongOperators(blamed.graph, right, blamed.nodes, [output], copy, kept).explanations()
    return tuple(replace(explanation, is_partial=True) for explanation in partial)


def _tells_operators_apart(blamed: Blamed, right: Evaluation) -> bool:
    """True if the wrong elements are many numbers: what few of them, or one step between integers, fits is a chance."""
    import torch

    pairs, steps = 0, 0
    for output in blamed.outputs:
        if output.item.recorded.argument not in blamed.wrong:
            continue
        actual, wanted = (_numbers(tensor) for tensor in (output.actual, output.expected(right)))
        if output.is_floating:
            wrong = _wrong_elements(output.actual, output.expected(right)).reshape(-1)
        else:
            wrong = actual != wanted
        actual, wanted = actual[wrong][:_MAX_NUMBERS], wanted[wrong][:_MAX_NUMBERS]
        pairs += len(torch.stack([actual, wanted], 1).unique(dim=0))
        steps += len((actual - wanted).unique())
    return pairs >= _LEAST_ELEMENTS and steps > 1


def _numbers(tensor: torch.Tensor) -> torch.Tensor:
    """The elements as finite float64, in row-major order; of complex ones the real and imaginary parts."""
    import torch

    real = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
    return real.reshape(-1).double().nan_to_num()


def _wrong_elements(actual: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    """True where an element is not what is expected, but for rounding."""
    wide = expected.double()
    difference = actual.double() - wide
    different = ~((actual == expected) | (actual.isnan() & expected.isnan()))
    return different & ~(difference.abs() <= _ROUNDING * ulp(finite(wide), actual.dtype))


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
