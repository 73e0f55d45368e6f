"""The operators that, computed wrongly, explain the wrong outputs of a region. Runs in a child process.

A kernel may compute an operator several times, and only once wrongly: for some of the outputs, or in the whole vectors
of a loop. So if no operator explains all outputs, the elements that are wrong of the first wrong output are looked at
alone, with the outputs that are right as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import replace
from typing import TYPE_CHECKING

from aoti_debug.base.lazy.dataclass import dataclass
from aoti_debug.compare.evaluate.evaluation import Evaluation
from aoti_debug.compare.explain.wrong_operators import WrittenOutput, WrongOperators
from aoti_debug.compare.measure.ulp import finite, ulp
from aoti_debug.compare.protocol.measurement import Explanation
from aoti_debug.compare.protocol.request import KnownValue
from aoti_debug.compare.worker.layouts import as_written
from aoti_debug.package.inputs.symbolic_sizes import Symbols
from aoti_debug.package.reference.program import Graph

if TYPE_CHECKING:
    import torch

_LEAST_ELEMENTS = 8  # fewer numbers are explained by too many operators
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
    if found or first is None:
        return found
    wrong = _wrong_elements(first.actual, first.expected(right))
    if int(wrong.sum()) < _LEAST_ELEMENTS:
        return ()
    output = WrittenOutput(first.actual[wrong], lambda evaluation: first.expected(evaluation)[wrong])
    kept = frozenset(blamed.kept)
    partial = WrongOperators(blamed.graph, right, blamed.nodes, [output], copy, kept).explanations()
    return tuple(replace(explanation, is_partial=True) for explanation in partial)


def _wrong_elements(actual: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    """True where an element is not what is expected, but for rounding."""
    wide = expected.double()
    difference = actual.double() - wide
    different = ~((actual == expected) | (actual.isnan() & expected.isnan()))
    return different & ~(difference.abs() <= _ROUNDING * ulp(finite(wide), actual.dtype))
