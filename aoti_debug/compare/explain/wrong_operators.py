"""Finds which operator of a region, computed wrongly, explains what a launch wrote. Runs in a child process.

For each operator that a wrong output depends on, wrong variants of its result, its result times a factor, and its
result plus a number are put in its place, and what depends on it is evaluated again. A variant explains the outputs if
it leaves less than 5 % of the error (root mean square), or no more than rounding and half of it; of integers, nothing.
If none does, the variant is put only into what one reduction reads, or into all but what reductions read: kernels
compute an operator again in each loop that needs it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from typing import TYPE_CHECKING, Any

from aoti_debug.base.frozen import dataclass
from aoti_debug.compare.evaluate.evaluation import Evaluation
from aoti_debug.compare.evaluate.functions import NotEvaluableError
from aoti_debug.compare.evaluate.rounding_errors import bound_of
from aoti_debug.compare.explain.variants import Variant, computes, reduces, variants
from aoti_debug.compare.measure.ulp import finite, ulp
from aoti_debug.compare.protocol.measurement import SMALLEST, Explanation
from aoti_debug.package.program_graphs import Graph, Node, NodeKind, ValueKey

if TYPE_CHECKING:
    import torch

_LEFT = 0.05  # of the error
_MOST_LEFT = 0.5  # of an error that is as small as rounding
_SECONDS = 5.0  # after which no more variants are tried
_VECTORS = (16, 8)  # elements of a vector of float32
_STEP = 1e-3  # relative, of the finite differences that factors and summands are fitted with


@dataclass(frozen=True)
class WrittenOutput:
    """An output of the launch.

    Attributes:
        actual: as recorded.
        expected: the value of an evaluation, as the launch would have written it.
    """

    actual: torch.Tensor
    expected: Callable[[Evaluation], torch.Tensor]


class WrongOperators:
    """The operators of a region that may be wrong.

    Args:
        right: the region, evaluated in the kernel's arithmetic.
        nodes: of the region, in order.
        copy: makes an evaluation without values, in the same arithmetic.
        kept: nodes that stay right, unless they are wrong themselves.
    """

    def __init__(
        self,
        graph: Graph,
        right: Evaluation,
        nodes: Sequence[str],
        outputs: Sequence[WrittenOutput],
        copy: Callable[[], Evaluation],
        kept: Set[str] = frozenset(),
    ) -> None:
        self._graph, self._right, self._nodes, self._copy, self._kept = graph, right, nodes, copy, kept
        rounded = [output for output in outputs if _is_rounded(output)]
        self._look_at(rounded)
        if self._error <= self._rounding:  # integers jump where rounding decides
            self._look_at([output for output in outputs if not _is_rounded(output)] or rounded)

    def _look_at(self, outputs: Sequence[WrittenOutput]) -> None:
        """Chooses the outputs whose error is to be explained."""
        self._outputs = outputs
        self._actual = [_wide(output.actual) for output in outputs]
        self._error = self._distance(self._expected(self._right))
        self._rounding = _size(
            [
                ulp(finite(a), o.actual.dtype)
                for a, o in zip(self._actual, outputs, strict=True)
                if o.actual.dtype.is_floating_point
            ]
        )

    def explanations(self) -> tuple[Explanation, ...]:
        """The operators that explain the outputs, the best ones first."""
        end = time.monotonic() + _SECONDS

        def in_time(tried: Iterable[Explanation]) -> Iterator[Explanation]:
            pending = iter(tried)
            while time.monotonic() <= end and (item := next(pending, None)) is not None:
                yield item

        for tries in (self._everywhere, self._in_one_loop):
            found: list[Explanation] = []
            for name in reversed(self._nodes):
                node = self._graph.by_name[name]
                if node.kind is NodeKind.CALL and not node.mutates and ValueKey(name) in self._right.values:
                    found += self._best(in_time(tries(node)))
            if found:
                return tuple(sorted(found, key=self._rank))
        return ()

    def _rank(self, item: Explanation) -> tuple[float, bool, float]:
        """The order of explanations: of those that leave about as much, functions that kernels approximate first."""
        return round(item.left, 1), bound_of(self._graph.by_name[item.node].target) is None, item.left

    def _best(self, tried: Iterable[Explanation]) -> list[Explanation]:
        """The one of the tried that leaves least of the error, if it explains the outputs."""
        best = min(tried, key=lambda item: item.left, default=None)
        allowed = max(_LEFT * self._error, self._rounding) if any(map(_is_rounded, self._outputs)) else 0.0
        return [best] if best is not None and best.left <= _MOST_LEFT and best.left * self._error <= allowed else []

    def _everywhere(self, node: Node) -> Iterator[Explanation]:
        """Tries each wrong result of a node in its place."""
        for variant in self._variants(node):
            yield Explanation(self._operator(node), variant.how, self._left(node, variant.value))

    def _in_one_loop(self, node: Node) -> Iterator[Explanation]:
        """Tries each wrong result of a node in what one reduction reads, and in all but what reductions read."""
        readers = [name for name in self._dependent(node, self._kept)[1:] if reduces(self._graph.by_name[name])]
        for variant in self._variants(node) if readers else ():
            changed = self._changed(node, variant.value, self._kept)
            for name in readers:
                if (value := changed.values.get(ValueKey(name))) is not None:
                    left = self._left(self._graph.by_name[name], value)
                    yield Explanation(self._operator(node), f"{variant.how} where {name} reads it", left)
            outputs = self._outputs_of(self._changed(node, variant.value, self._kept | {*readers}))
            how = f"{variant.how}, but not where {', '.join(readers)} reads it"
            yield Explanation(self._operator(node), how, self._left_of(outputs))

    def _operator(self, node: Node) -> str:
        """The node of the operator itself: a member of its result stands for it."""
        return node.inputs[0] if node.is_member and node.inputs else node.name

    def _variants(self, node: Node) -> Iterator[Variant]:
        args, kwargs = self._right.arguments(node)
        if not node.is_member:
            for variant in variants(node, args, kwargs, lambda a, k: self._right.call(node, a, k)):
                yield variant
                yield from self._in_parts(node, variant)
        if computes(node):
            yield from self._fitted(node)

    def _in_parts(self, node: Node, variant: Variant) -> Iterator[Variant]:
        """A variant in the whole vectors of the last dimension only, or in the elements behind them only."""
        import torch

        right, wrong = self._right.values[ValueKey(node.name)], variant.value
        if not isinstance(right, torch.Tensor) or not isinstance(wrong, torch.Tensor) or not right.dim():
            return
        size = right.shape[-1]
        for width in _VECTORS:
            behind = torch.arange(size, device=right.device) >= size - size % width
            if size > width and size % width and wrong.shape == right.shape:
                yield Variant(f"{variant.how} in whole vectors", torch.where(behind, right, wrong.to(right.dtype)))
                yield Variant(f"{variant.how} behind whole vectors", torch.where(behind, wrong.to(right.dtype), right))

    def _fitted(self, node: Node) -> Iterator[Variant]:
        """The result times the factor, and plus the number, that come nearest to what the launch wrote."""
        import torch

        value = self._right.values[ValueKey(node.name)]
        if not isinstance(value, torch.Tensor) or not value.dtype.is_floating_point or not value.numel():
            return
        scale = float(finite(value.double()).abs().amax()) or 1.0
        wide = value.double()  # numbers of 8 bits have no arithmetic
        factor = self._fit(node, (wide * (1 + _STEP)).to(value.dtype))
        if factor is not None:
            yield Variant(f"times {1 + _STEP * factor:.6g}", (wide * (1 + _STEP * factor)).to(value.dtype))
        summand = self._fit(node, (wide + _STEP * scale).to(value.dtype))
        if summand is not None:
            yield Variant(f"plus {_STEP * scale * summand:.6g}", (wide + _STEP * scale * summand).to(value.dtype))

    def _fit(self, node: Node, moved: torch.Tensor) -> float | None:
        """The multiple of a small change that comes nearest to the outputs; None if it changes none of them."""
        outputs = self._with(node, moved)
        if outputs is None:
            return None
        product = square = 0.0
        for actual, right, changed in zip(self._actual, self._expected(self._right), outputs, strict=True):
            change = finite(changed - right)
            product += float((finite(actual - right) * change).sum())
            square += float(change.square().sum())
        return product / square if square else None

    def _left(self, node: Node, value: Any) -> float:
        """The part of the error that is left with another result of a node."""
        return self._left_of(self._with(node, value))

    def _left_of(self, outputs: Sequence[torch.Tensor] | None) -> float:
        return 1.0 if outputs is None else self._distance(outputs) / max(self._error, SMALLEST)

    def _with(self, node: Node, value: Any) -> list[torch.Tensor] | None:
        """The outputs with another result of a node; None if they cannot be evaluated."""
        return self._outputs_of(self._changed(node, value, self._kept))

    def _outputs_of(self, changed: Evaluation) -> list[torch.Tensor] | None:
        try:
            return self._expected(changed)
        except (NotEvaluableError, RuntimeError):
            return None

    def _changed(self, node: Node, value: Any, kept: Set[str]) -> Evaluation:
        """The region with another result of a node, but for nodes that are kept."""
        changed = self._copy()
        first, *others = self._dependent(node, kept)
        changed.values = self._right.values.without({first, *others})
        changed.values[ValueKey(first)] = value
        for name in others:
            changed.run(self._graph.by_name[name])
        return changed

    def _dependent(self, node: Node, kept: Set[str]) -> list[str]:
        """A node, and those that depend on it through nodes that are not kept, in order."""
        dependent = {node.name: None}
        for name in self._nodes:
            if name not in kept and not dependent.keys().isdisjoint(self._graph.by_name[name].inputs):
                dependent[name] = None
        return list(dependent)

    def _expected(self, evaluation: Evaluation) -> list[torch.Tensor]:
        return [_wide(output.expected(evaluation)) for output in self._outputs]

    def _distance(self, outputs: Sequence[torch.Tensor]) -> float:
        return _size([_difference(a, b) for a, b in zip(self._actual, outputs, strict=True)])


def _is_rounded(output: WrittenOutput) -> bool:
    return bool(output.actual.dtype.is_floating_point or output.actual.is_complex())


def _size(values: Sequence[torch.Tensor]) -> float:
    """Root of the mean square of each tensor, summed."""
    return sum(float(v.square().mean().sqrt()) for v in values if v.numel())


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    import torch

    real = torch.view_as_real(tensor.resolve_conj().contiguous()) if tensor.is_complex() else tensor
    return real.to(torch.float64)


def _difference(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """The difference; 0 where both are the same infinity or NaN, 1 where only one is infinite or NaN."""
    import torch

    same = (first == second) | (first.isnan() & second.isnan())
    difference = first - second
    different = torch.where(difference.isfinite(), difference, torch.ones_like(difference))
    return torch.where(same, torch.zeros_like(difference), different)
