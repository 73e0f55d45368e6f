"""Finds what Inductor's decompositions and passes have changed in an exported program. Runs in a child process.

Both graphs are evaluated in float64 from the same inputs and weights, so that rounding does not tell them apart. The
graph that kernels are generated from holds most values of the exported program, under other names. What a pass has
made wrong is missing in it, and so is everything that is computed from it: the first missing one is where it begins.
"""

from __future__ import annotations

import dataclasses
import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any

from aoti_debug.base.errors import RunDirError
from aoti_debug.base.frozen import dataclass
from aoti_debug.compare.evaluate.arguments import ExportedWeights
from aoti_debug.compare.evaluate.arithmetic import Arithmetic
from aoti_debug.compare.evaluate.evaluation import Evaluation
from aoti_debug.compare.evaluate.exported_calls import ExportedCalls, base_name
from aoti_debug.compare.evaluate.functions import NotEvaluableError
from aoti_debug.compare.explain.variants import computes
from aoti_debug.compare.measure.differences import is_one_step, is_rounded_to_integers
from aoti_debug.compare.measure.ulp import difference_and_size, relative_difference
from aoti_debug.compare.protocol.measurement import EXPLAINED, LARGEST, LEAST, AlteredOutput, AlteredProgram, Element
from aoti_debug.compare.protocol.request import ProgramRun
from aoti_debug.compare.worker.recorded_tensors import load_value
from aoti_debug.package.inputs.symbolic_sizes import Symbols
from aoti_debug.package.program_graphs import MODEL, Graph, Node, NodeKind, Reference, ValueKey, returned_nodes
from aoti_debug.runs.run import saved_outputs

if TYPE_CHECKING:
    import torch

_TOLERANCE, _ROUNDED = 1e-6, 0.1  # relative
_REPEATING = ("aten.expand.default", "aten.expand_as.default", "aten.broadcast_to.default")  # graphs may do without
_MAX_OPERATORS, _PART = 3, 1 << 20  # operators that are named; elements
_GOLDEN = 0.6180339887498949


@dataclass(frozen=True)
class WrongOutput:
    """An output of a run that rounding does not explain.

    Attributes:
        actual: as the run returned it.
        elements: True for its wrong elements, in row-major order.
        rounding: the relative difference that is no rounding where operators compute in their own dtype.
    """

    actual: torch.Tensor
    elements: torch.Tensor
    rounding: float = _ROUNDED


def altered_program(
    reference: Reference,
    exported: ExportedCalls,
    lowered: ProgramRun,
    device: str,
    wrong: Mapping[int, WrongOutput],
    weights: ExportedWeights | None = None,
) -> AlteredProgram:
    """The differences of the lowered graph's outputs, and the operators whose values it lacks first.

    Args:
        exported: the exported program in float64, before the call to look at.
        lowered: that call of the graph that kernels were generated from.
        wrong: the outputs to look at, by their number from 0.
        weights: where to find what launches were not passed.
    """
    held, returned, fallbacks = _lowered_values(reference, lowered, device, weights)
    lost: set[str] = set()
    lost_signs: set[str] = set()
    lost_order: set[str] = set()
    seen: set[str] = set()

    def look(node: Node, value: Any) -> None:
        if not _has_numbers(value) or node.target in _REPEATING:
            return
        seen.add(node.name)
        if not held.has_like(value):
            lost.add(node.name)
        elif computes(node) and not held.has_in_order(value):
            lost_order.add(node.name)
        elif not held.has_zeros_like(value):
            lost_signs.add(node.name)

    expected = exported.call(look)
    is_rounded = bool(fallbacks or exported.fallbacks)
    outputs = []
    for n, value in enumerate(returned[: len(expected)]):
        right = saved_outputs.as_tensor(expected[n])
        if n in wrong and value is not None and right is not None and _has_shape_of(value, right, wrong[n].actual):
            is_step = is_one_step(value, right) and is_rounded_to_integers(reference.graph("", MODEL), n)
            output = dataclasses.replace(wrong[n], rounding=LARGEST) if is_step else wrong[n]
            outputs.append(_altered_output(n, value, right, output, is_rounded=is_rounded or is_step))
            if _has_other_signs(value, right):  # of zeros before a division
                lost |= lost_signs
    most = max(
        outputs, key=lambda output: (output.explained >= EXPLAINED, output.relative / output.least), default=None
    )
    graph, names = exported.graph, returned_nodes(exported.graph)
    altered = [output.index for output in outputs if output.relative > output.least and output.explained >= EXPLAINED]
    kept = [names[n] for n in altered if names[n] in seen - lost]
    starts = [names[n] for n in wrong if n < len(names)]
    first = _first_lost(graph, lost, [*starts, *_nearest_lost(graph, lost, kept)])
    read = (source for name in first for source in graph.by_name[name].inputs if source in lost_signs | lost_order)
    first = tuple(dict.fromkeys((*first, *read)))[:_MAX_OPERATORS]
    return AlteredProgram(
        relative=-1.0 if most is None else most.relative,
        explained=0.0 if most is None else most.explained,
        least=LEAST if most is None else most.least,
        is_rounded=is_rounded if most is None else most.least > LEAST,
        lost=first,
        lost_signs=tuple(name for name in first if name in lost_signs),
        lost_order=tuple(name for name in first if name in lost_order),
        kept=tuple(dict.fromkeys(kept))[:_MAX_OPERATORS],
        outputs=tuple(outputs),
    )


def _altered_output(
    index: int, lowered: torch.Tensor, expected: torch.Tensor, output: WrongOutput, *, is_rounded: bool
) -> AlteredOutput:
    """An output, of which only the wrong elements are looked at."""
    import torch

    places = output.elements.nonzero().reshape(-1)
    low, right, actual = (
        tensor.reshape(-1).cpu().index_select(0, places) for tensor in (lowered, expected, output.actual)
    )
    worst = None
    if places.numel():
        wide = torch.complex128 if right.is_complex() else torch.float64
        at = int((actual.to(wide) - right.to(wide)).abs().nan_to_num(math.inf).argmax())
        values = (repr(tensor[at].item()) for tensor in (actual, right, right))
        worst = Element(int(places[at]), *values)
    return AlteredOutput(
        index=index,
        elements=places.numel(),
        relative=_difference(low, right),
        explained=_explained(low, right, actual),
        least=output.rounding if is_rounded else LEAST,
        shape=tuple(output.actual.shape),
        worst=worst,
    )


def _difference(actual: torch.Tensor, expected: torch.Tensor) -> float:
    """The relative difference of two tensors of one shape; LARGEST where they are not finite alike."""
    return relative_difference(actual, expected) if _are_finite_alike(actual, expected) else LARGEST


def _are_finite_alike(first: torch.Tensor, second: torch.Tensor) -> bool:
    """True if two tensors have NaN, and infinities of each sign, in the same places; of complex ones any of these."""
    import torch

    kinds = (torch.isnan, torch.isposinf, torch.isneginf) if not first.is_complex() else (torch.isfinite,)
    return all(torch.equal(kind(first), kind(second)) for kind in kinds)


def _has_other_signs(first: torch.Tensor, second: torch.Tensor) -> bool:
    """True if an infinity has another sign in the other tensor."""
    return not first.is_complex() and bool((first.isinf() & second.isinf() & (first != second)).any())


def _explained(lowered: torch.Tensor, expected: torch.Tensor, actual: torch.Tensor) -> float:
    """The part of the error of what a run returned that the lowered graph makes; at most 1."""
    if not _are_finite_alike(expected, actual):
        return float(_are_finite_alike(lowered, actual))
    changed, _ = difference_and_size(lowered, expected)
    error, _ = difference_and_size(actual, expected)
    left, _ = difference_and_size(actual, lowered)
    return min(changed / error, 1.0) if left < error else 0.0


def _has_shape_of(lowered: torch.Tensor, expected: torch.Tensor, actual: torch.Tensor) -> bool:
    return tuple(lowered.shape) == tuple(expected.shape) == tuple(actual.shape)


def _lowered_values(
    reference: Reference, program: ProgramRun, device: str, weights: ExportedWeights | None
) -> tuple[Fingerprints, list[torch.Tensor | None], Set[str]]:
    """The fingerprints of all values of the lowered graph in float64, what it returns, and operators without float64.

    What it returns is None where it is not known.
    """
    import torch

    graph = reference.graph("", MODEL)
    assert graph is not None
    symbols = Symbols(known=program.symbols)
    evaluation = Evaluation(reference, graph, Arithmetic.DOUBLE, device, weights=weights)
    held, used = Fingerprints(), _used(graph)
    last_readers = graph.last_readers(node.name for node in graph.nodes if node.name in used)
    with torch.no_grad():
        for item in program.inputs:
            try:
                evaluation.set(item.value, load_value(graph, item, symbols, device))
            except (NotEvaluableError, RunDirError) as error:
                evaluation.failures[item.value.node] = str(error)
        for node in (node for node in graph.nodes if node.name in used):
            is_evaluated = node.kind in (NodeKind.CALL, NodeKind.WEIGHT, NodeKind.INPUT)
            if is_evaluated and ValueKey(node.name) not in evaluation.values:
                evaluation.run(node, symbols.value(node.size) if node.size else None)
            for key in (ValueKey(node.name), *(ValueKey(name, node.name) for name in node.mutates)):
                for value in _tensors(evaluation.values.get(key)):
                    held.add(value)
            if node.kind is not NodeKind.OUTPUT:
                evaluation.values.drop(last_readers.get(node.name, frozenset()))
        returned = [_value(evaluation, graph, argument, symbols) for argument in graph.nodes[-1].args[0]]
    return held, returned, evaluation.fallbacks.keys()


def _used(graph: Graph) -> frozenset[str]:
    """The nodes that outputs, or what nodes overwrite, depend on: a pass may leave others behind."""
    used: set[str] = set()
    for node in reversed(graph.nodes):
        if node.kind is NodeKind.OUTPUT or node.mutates or node.name in used:
            used.update((node.name, *node.inputs))
    return frozenset(used)


def _value(evaluation: Evaluation, graph: Graph, argument: Any, symbols: Symbols) -> torch.Tensor | None:
    """The value of an argument of the output node."""
    if not isinstance(argument, Mapping):
        return saved_outputs.as_tensor(argument)
    if "size" in argument:
        return saved_outputs.as_tensor(symbols.value(argument["size"]))
    if "node" not in argument:
        return None
    try:
        return saved_outputs.as_tensor(evaluation.value(graph.value_for(argument["node"], graph.nodes[-1].name)))
    except NotEvaluableError:
        return None


def _nearest_lost(graph: Graph, lost: set[str], kept: Sequence[str]) -> Iterator[str]:
    """Yields the lost nodes that others are computed from, through nodes that are not lost.

    Where there are some, the graph may have the numbers of the others by chance.
    """
    waiting, seen, sources = list(kept), set(kept), _sources(graph)
    while waiting:
        name = waiting.pop()
        if name in lost:
            yield name
            continue
        new = [read for read in sources[name] if read not in seen]
        seen.update(new)
        waiting += new


def _first_lost(graph: Graph, lost: set[str], wrong: Sequence[str]) -> tuple[str, ...]:
    """The lost nodes behind wrong ones that read none that is lost, in order."""
    behind: set[str] = set()
    waiting, sources = list(wrong), _sources(graph)
    while waiting:
        name = waiting.pop()
        if name not in lost or name in behind:
            continue
        behind.add(name)
        waiting += sources[name]
    first = [node.name for node in graph.nodes if node.name in behind and not behind.intersection(sources[node.name])]
    return tuple(first[:_MAX_OPERATORS])


def _sources(graph: Graph) -> Mapping[str, Sequence[str]]:
    """The nodes that each node reads, and those that overwrote their memory before."""
    writers: dict[str, list[str]] = defaultdict(list)
    found: dict[str, Sequence[str]] = {}
    for node in graph.nodes:
        found[node.name] = (*node.inputs, *(name for read in node.inputs for name in writers[base_name(graph, read)]))
        for name in node.mutates:
            writers[base_name(graph, name)].append(node.name)
    return found


def _tensors(value: Any) -> list[torch.Tensor]:
    return [member for member in (value if isinstance(value, list | tuple) else [value]) if _has_numbers(member)]


def _has_numbers(value: Any) -> bool:
    import torch

    return isinstance(value, torch.Tensor) and value.layout is torch.strided and not value.is_quantized


@dataclasses.dataclass(frozen=True, order=True)
class Fingerprint:
    """The properties of a tensor's numbers that do not depend on their order.

    Attributes:
        norm: the root of the sum of their squares.
        total: their sum; of a complex tensor, that of the real and imaginary parts.
        largest: the largest absolute value.
        special: the number of elements that are not finite; the others are what is summed.
        high, low: the number of positive and of negative infinities.
        below: the number of negative zeros.
        ordered: the sum of the numbers, each times a weight of its place in row-major order.
    """

    norm: float
    total: float
    largest: float
    special: int
    high: int = 0
    low: int = 0
    below: int = 0
    ordered: float = 0.0


def fingerprint(tensor: torch.Tensor) -> Fingerprint:
    """The fingerprint of a tensor of any dtype that has numbers."""
    import torch

    numbers = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
    wide = numbers.detach().resolve_neg().to(torch.float64).reshape(-1)
    finite = torch.isfinite(wide)
    special = wide.numel() - int(finite.sum())
    kinds = (torch.isposinf(wide), torch.isneginf(wide), (wide == 0) & torch.signbit(wide))
    high, low, below = (int(kind.sum()) for kind in kinds)
    if special:
        wide = wide.where(finite, 0.0)
    ordered = sum(float(part @ _weights(n, part)) for n, part in enumerate(wide.split(_PART)))
    if special:
        wide = wide[finite]
    if not wide.numel():
        return Fingerprint(0.0, 0.0, 0.0, special, high, low, below)
    norm, total, largest = torch.linalg.vector_norm(wide), wide.sum(), wide.abs().max()
    return Fingerprint(float(norm), float(total), float(largest), special, high, low, below, ordered)


def _weights(number: int, part: torch.Tensor) -> torch.Tensor:
    """Weights below 1 of a part of a tensor; the golden ratio gives no two places the same."""
    import torch

    first = number * _PART
    places = torch.arange(first, first + part.numel(), dtype=torch.float64, device=part.device)
    return (places * _GOLDEN) % 1.0


class Fingerprints:
    """The fingerprints of many tensors, to look up one that is like another."""

    def __init__(self) -> None:
        self._of_count: dict[int, list[Fingerprint]] = defaultdict(list)
        self._is_sorted = True

    def add(self, tensor: torch.Tensor) -> None:
        """Adds the fingerprint of a tensor."""
        self._of_count[tensor.numel()].append(fingerprint(tensor))
        self._is_sorted = False

    def has_like(self, tensor: torch.Tensor) -> bool:
        """True if a tensor of as many elements has been added whose numbers are the same up to rounding."""
        return any(True for _ in self._like(fingerprint(tensor), tensor.numel()))

    def has_in_order(self, tensor: torch.Tensor) -> bool:
        """True if such a tensor has been added with its numbers in the same row-major order."""
        return any(True for _ in self._in_order(fingerprint(tensor), tensor.numel()))

    def has_zeros_like(self, tensor: torch.Tensor) -> bool:
        """True if a tensor like this one has been added, with as many negative zeros."""
        wanted = fingerprint(tensor)
        return any(wanted.below == found.below for found in self._like(wanted, tensor.numel()))

    def _in_order(self, wanted: Fingerprint, count: int) -> Iterator[Fingerprint]:
        for found in self._like(wanted, count):
            if abs(wanted.ordered - found.ordered) <= _rounding(wanted, count):
                yield found

    def _like(self, wanted: Fingerprint, count: int) -> Iterator[Fingerprint]:
        if not self._is_sorted:
            for found in self._of_count.values():
                found.sort()
            self._is_sorted = True
        candidates = self._of_count.get(count, [])
        allowed = _TOLERANCE * wanted.norm
        at = bisect_left(candidates, wanted.norm - allowed, key=lambda other: other.norm)
        while at < len(candidates) and candidates[at].norm <= wanted.norm + allowed:
            if _is_like(wanted, candidates[at], count):
                yield candidates[at]
            at += 1


def _is_like(first: Fingerprint, second: Fingerprint, count: int) -> bool:
    return (
        (first.special, first.high, first.low) == (second.special, second.high, second.low)
        and abs(first.total - second.total) <= _rounding(first, count)
        and abs(first.largest - second.largest) <= _TOLERANCE * max(first.largest, second.largest)
    )


def _rounding(numbers: Fingerprint, count: int) -> float:
    """The rounding of a sum: by Cauchy and Schwarz it is at most the numbers' norm times the root of their count."""
    return _TOLERANCE * numbers.norm * math.sqrt(count)
