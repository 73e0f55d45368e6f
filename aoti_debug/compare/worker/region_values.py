"""The values of a region: the recorded ones that it begins with, those of its nodes, and how they are saved.

Runs in a child process.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator, Set
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aoti_debug.base.errors import RunDirError
from aoti_debug.base.frozen import dataclass
from aoti_debug.compare.evaluate import rounding_errors
from aoti_debug.compare.evaluate.arguments import ExportedWeights
from aoti_debug.compare.evaluate.arithmetic import Arithmetic
from aoti_debug.compare.evaluate.evaluation import Evaluation
from aoti_debug.compare.evaluate.functions import NotEvaluableError, failure_text
from aoti_debug.compare.protocol.measurement import RegionResult, SavedOutput, SavedValue
from aoti_debug.compare.protocol.request import KnownValue, ProgramRun, Region, ValueArithmetic
from aoti_debug.compare.worker.recorded_tensors import as_written, load, load_part, load_value
from aoti_debug.package.inputs.symbolic_sizes import Symbols
from aoti_debug.package.program_graphs import Graph, Node, NodeKind, Reference, ValueKey
from aoti_debug.runs.run.saved_outputs import write_tensor
from aoti_debug.runs.rundir.formats.tensor_file_format import escape

if TYPE_CHECKING:
    import torch

_ARITHMETICS = {ValueArithmetic.EAGER: Arithmetic.EAGER, ValueArithmetic.DOUBLE: Arithmetic.DOUBLE}


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
    return {key: rounding_errors.moved(value, generator, units) for key, value in known.items()}


def approximated(generator: torch.Generator) -> Callable[[Node, list[Any], Any], Any]:
    """Moves the results of functions that kernels approximate with an absolute error."""
    return lambda node, _, result: rounding_errors.approximated(node, result, generator)


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


_VALUES, _OUTPUTS = "values", "outputs"


def save_region(
    reference: Reference,
    region: Region,
    arithmetic: ValueArithmetic,
    device: str,
    weights: ExportedWeights | None,
    folder: Path,
) -> Iterator[SavedValue | RegionResult]:
    """Yields the saved values of a region's outputs, then a result without measurements."""
    import torch

    graph = reference.graph(region.graph, region.function)
    failure = "" if graph is not None else "the reference lacks its graph"
    if graph is not None:
        symbols = Symbols(known=region.symbols)
        try:
            with torch.no_grad():
                inputs = region_inputs(graph, region, symbols, device, weights)
                if inputs.other is not None:
                    raise NotEvaluableError(f"not all of {' and '.join(inputs.parts)} was recorded")
                evaluation = Evaluation(reference, graph, _ARITHMETICS[arithmetic], device, weights=weights)
                evaluated(evaluation, graph, region, symbols, inputs.known)
                for item in region.outputs:
                    actual = load(graph, item, device)
                    value = as_written(evaluation.value(item.value), actual, item, symbols).to(actual.dtype)
                    name = item.recorded.argument
                    path = folder / _VALUES / region.launch / f"{escape(name)}.safetensors"
                    write_tensor(path, name, value)
                    yield SavedValue(region.launch, name, str(path))
        except (NotEvaluableError, RunDirError, TypeError) as error:
            failure = str(error)
        except (RuntimeError, MemoryError) as error:
            failure = failure_text(error)
    yield RegionResult(launch=region.launch, failure=failure)


def save_outputs(evaluation: Evaluation, graph: Graph, program: ProgramRun, folder: Path) -> Iterator[SavedOutput]:
    """Yields the saved outputs of an evaluated graph, those that could be evaluated and are tensors."""
    import torch

    (output,) = (node for node in graph.nodes if node.kind is NodeKind.OUTPUT)
    returned = output.args[0] if len(output.args) == 1 and isinstance(output.args[0], list | tuple) else output.args
    for index, argument in enumerate(returned):
        name = argument.get("node") if isinstance(argument, dict) else None
        if not isinstance(name, str):
            continue
        with contextlib.suppress(NotEvaluableError, TypeError):
            value = evaluation.value(graph.value_for(name, output.name))
            if isinstance(value, torch.Tensor):
                path = folder / _OUTPUTS / str(program.call) / f"{index}.safetensors"
                write_tensor(path, str(index), value)
                yield SavedOutput(program.call, index, str(path))
