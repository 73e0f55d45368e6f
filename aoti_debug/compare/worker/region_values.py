"""The values of a region: the recorded ones that it begins with, and those of its nodes. Runs in a child process."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator, Set
from typing import TYPE_CHECKING, Any

from aoti_debug.base.frozen import dataclass
from aoti_debug.compare.evaluate import rounding_noise
from aoti_debug.compare.evaluate.evaluation import Evaluation
from aoti_debug.compare.evaluate.functions import NotEvaluableError
from aoti_debug.compare.evaluate.weights import ExportedWeights
from aoti_debug.compare.protocol.request import KnownValue, Region
from aoti_debug.compare.worker.recorded_tensors import load_part, load_value
from aoti_debug.package.inputs.symbolic_sizes import Symbols
from aoti_debug.package.reference.program import Graph, Node, NodeKind, ValueKey

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class RegionInputs:
    """The values that a region begins with.

    Attributes:
        other: the same, with other numbers in the elements that were not recorded; None if all were.
        parts: the values of which only a part was recorded.
    """

    known: dict[ValueKey, Any]
    other: dict[ValueKey, Any] | None
    parts: tuple[str, ...]


def region_inputs(
    graph: Graph, region: Region, symbols: Symbols, device: str, weights: ExportedWeights | None
) -> RegionInputs:
    """Loads the values that a region begins with.

    Raises:
        NotEvaluableError: it is not known which part of a value was recorded.
        RunDirError: a tensor cannot be read.
    """
    known: dict[ValueKey, Any] = {}
    other: dict[ValueKey, Any] = {}
    parts = []
    for item in region.inputs:
        try:
            known[item.value] = other[item.value] = load_value(graph, item, symbols, device)
            continue
        except NotEvaluableError:
            whole = _exported(graph, item, weights)
        if whole is not None:
            known[item.value] = other[item.value] = whole.to(device)
            continue
        known[item.value], other[item.value] = load_part(graph, item, symbols, device)
        parts.append(str(item.value))
    return RegionInputs(known, other if parts else None, tuple(parts))


def _exported(graph: Graph, item: KnownValue, weights: ExportedWeights | None) -> Any:
    """A weight as the exported program has it; None if it is none, or not known."""
    node = graph.by_name[item.value.node]
    is_constant = node.kind is NodeKind.WEIGHT and not graph.mutators.get(node.name)
    return weights.value(node) if weights is not None and is_constant else None


def perturbed(known: dict[ValueKey, Any], generator: torch.Generator, units: float = 1.0) -> dict[ValueKey, Any]:
    """The inputs, with every floating number moved by so many units of the kernel's arithmetic, up or down.

    They are in float64; large ones become that when they are read.
    """
    return {key: rounding_noise.moved(value, generator, units) for key, value in known.items()}


def approximated(generator: torch.Generator) -> Callable[[Node, list[Any], Any], Any]:
    """Moves the results of functions that kernels approximate with an absolute error."""
    return lambda node, _, result: rounding_noise.approximated(node, result, generator)


@contextlib.contextmanager
def fresh_memory_filled() -> Iterator[None]:
    """Inside the `with`, torch.empty and its like give NaN, and the largest integer.

    torch does so where deterministic algorithms are wanted: torch.utils.deterministic.fill_uninitialized_memory.
    """
    import torch

    before = torch.are_deterministic_algorithms_enabled()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about operators that have no deterministic algorithm
        torch.use_deterministic_algorithms(mode=True, warn_only=True)
        try:
            yield
        finally:
            torch.use_deterministic_algorithms(before)


def evaluated(
    evaluation: Evaluation,
    graph: Graph,
    region: Region,
    symbols: Symbols,
    known: dict[ValueKey, Any],
    kept: Set[str] | None = None,
) -> Evaluation:
    """The evaluation, with the known values and those of the nodes of a region.

    Args:
        kept: the nodes whose values are read from it; those of others are dropped after the last node of the region
            that reads them. None to keep all.
    """
    for key, value in known.items():
        evaluation.set(key, value)
    last_uses = {} if kept is None else graph.last_readers(region.nodes)
    for name in region.nodes:
        node = graph.by_name[name]
        evaluation.run(node, symbols.value(node.size) if node.size else None)
        evaluation.values.drop(last_uses.get(name, frozenset()) - (kept or frozenset()))
    return evaluation


def first_nonfinite(graph: Graph, region: Region, eager: Evaluation, double: Evaluation) -> str:
    """The first node of a region whose result is finite otherwise in eager than in float64; "" if there is none."""
    import torch

    for name in region.nodes:
        first, second = (evaluation.values.get(ValueKey(name)) for evaluation in (eager, double))
        if not isinstance(first, torch.Tensor) or not isinstance(second, torch.Tensor):
            continue
        if graph.by_name[name].kind is NodeKind.CALL and not torch.equal(first.isfinite(), second.isfinite()):
            return name
    return ""
