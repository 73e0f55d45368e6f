"""An exported program that is called as often as a run has called the model. Runs in a child process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from aoti_debug.base import wording
from aoti_debug.base.errors import RunDirError
from aoti_debug.base.frozen import dataclass
from aoti_debug.compare.evaluate.arguments import ExportedWeights, has_type, weight_of
from aoti_debug.compare.evaluate.arithmetic import Arithmetic
from aoti_debug.compare.evaluate.drawn_numbers import DrawnNumbers
from aoti_debug.compare.evaluate.evaluation import Adjustment
from aoti_debug.compare.evaluate.exported_calls import Drawn, ExportedCalls
from aoti_debug.compare.evaluate.functions import FRESH, NotEvaluableError, RefusedError, draws, missing_function_reason
from aoti_debug.compare.evaluate.rounding_errors import RoundingNoise
from aoti_debug.compare.protocol.measurement import UNWRITTEN, InexactResult, UndefinedResult
from aoti_debug.compare.protocol.request import (
    CompareRequest,
    ExportedRun,
    GivenTensors,
    KnownValue,
    ProgramState,
    RecordedWeight,
)
from aoti_debug.compare.worker.recorded_tensors import has_equal_bits, load_value, recorded_tensor
from aoti_debug.package.inputs import input_files
from aoti_debug.package.inputs.symbolic_sizes import Symbols
from aoti_debug.package.program_graphs import MODEL, Graph, Node, NodeKind, Reference, ValueKey
from aoti_debug.package.pt2 import load_program
from aoti_debug.package.pt2.archive import Artifact

if TYPE_CHECKING:
    import torch


class Program(Protocol):
    """An exported program that keeps its state from call to call."""

    def call(self) -> Sequence[Any]:
        """Calls it once; returns what the user gets, as leaves."""

    def state(self, name: str) -> torch.Tensor | None:
        """A weight or a buffer by its name; None if it is not known."""

    def input(self, number: int) -> torch.Tensor | None:
        """An input by its number from 0; None if it is not known, or no tensor."""

    @property
    def overwritten(self) -> GivenTensors:
        """The weights, buffers and inputs that a call may overwrite."""


def held(program: Program, state: ProgramState) -> torch.Tensor | None:
    """A state as the program holds it now; None if it is not known."""
    return program.state(state.name) if state.input is None else program.input(state.input)


def inputs_of(request: CompareRequest, package: Artifact) -> input_files.Inputs | None:
    """The inputs of a run; None if they are not known."""
    if request.inputs:
        return input_files.read(request.inputs, input_files.read_signature(package))
    return None if request.is_of_host else input_files.read_embedded(package)


class ExportedSource:
    """The inputs, weights and graph of the exported program of a run.

    Attributes:
        run: the calls to make.
        weights: of the program, if it is known.
    """

    def __init__(
        self,
        request: CompareRequest,
        run: ExportedRun,
        package: Artifact,
        reference: Reference,
        device: str,
        weights: ExportedWeights,
    ) -> None:
        self.run = run
        self.reference = reference
        self.device = device
        self._path = request.exported
        self._request = request
        self._package = package
        self._recorded = {weight.name: weight for weight in run.weights}
        self.weights = weights
        self.trials: dict[int, MemoryTrials | None] = {}  # of `memory_trials`, by the number of calls

    @cached_property
    def inputs(self) -> input_files.Inputs | None:
        """The inputs of the run; None if they are not known."""
        return inputs_of(self._request, self._package)

    def program(self, arithmetic: Arithmetic, noise: RoundingNoise | None = None) -> Program:
        """The program as it is before the first call.

        Args:
            noise: what rounds otherwise, in float64; None for nothing.

        Raises:
            NotEvaluableError: it is not known, or cannot be computed in this arithmetic.
        """
        exported = self.reference.of_exported
        reason = self.reference.exported_failure or "the package does not hold its graph"
        if exported is not None:
            reason = missing_function_reason(node.target for graph in exported.graphs for node in calls(graph.nodes))
        if exported is not None and not reason:
            drawn = self._drawn(arithmetic) if self.is_random else None
            return ExportedCalls(exported, arithmetic, self.device, self._leaves(), self._weight, noise, drawn)
        if self.is_random:
            raise NotEvaluableError("it draws random numbers")
        loaded = self.loaded() if arithmetic is Arithmetic.EAGER else None
        if loaded is None:
            raise NotEvaluableError(reason)
        return loaded

    def loaded(self) -> Loaded | None:
        """The program as torch calls it; None if its file is not known.

        Raises:
            NotEvaluableError: it cannot be loaded.
        """
        return Loaded(self._path, self.inputs) if self._path else None

    def given(self) -> dict[ValueKey, Any]:
        """The inputs and the weights of the exported program's graph that are known."""
        exported = self.reference.of_exported
        assert exported is not None
        nodes = exported.graphs[0].nodes
        names = (node.name for node in nodes if node.kind is NodeKind.INPUT)
        values = dict(zip(map(ValueKey, names), self._leaves(), strict=False))
        weights = ((ValueKey(node.name), self._weight(node)) for node in nodes if node.kind is NodeKind.WEIGHT)
        return values | {key: value for key, value in weights if value is not None}

    @cached_property
    def is_random(self) -> bool:
        """True if the program, or the graph that kernels were generated from, draws random numbers."""
        graphs = (*self.reference.graphs, *self.reference.exported)
        return any(draws(node) for graph in graphs for node in calls(graph.nodes))

    def _drawn(self, arithmetic: Arithmetic) -> Drawn:
        """The random numbers of each call of the run."""
        graph = self.reference.graph("", MODEL)

        def of_call(number: int) -> DrawnNumbers:
            if graph is None or number >= len(self.run.seeds):
                raise NotEvaluableError("it draws random numbers, whose seeds are not recorded")
            held = {item.value: load_value(graph, item, Symbols(), self.device) for item in self.run.seeds[number]}
            return DrawnNumbers(self.reference, held, arithmetic, self.device, self.run.last)

        return of_call

    def _leaves(self) -> list[Any]:
        import torch
        from torch.utils import _pytree as pytree

        given = self.inputs
        assert given is not None
        leaves = pytree.tree_leaves((given.args, dict(given.kwargs)))
        return [leaf.clone() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]

    def _weight(self, node: Node) -> torch.Tensor | None:
        """A weight of the program, or, where it is not known, the run's: that may be wrong."""
        value, weight = self.weights.value(node), self._recorded.get(node.target)
        if value is None and weight is None and node.initial is not None:
            names = {constant.fqn for constant in self._package.manifest().constants}  # others are in the kernels
            return None if node.target in names else weight_of(node, node.initial, "cpu")
        if value is not None or weight is None:
            return value
        (type_,) = node.types
        recorded = self._of_views(node, weight) if weight.is_view else recorded_tensor(weight.path)
        return recorded if recorded is not None and type_ is not None and has_type(recorded, type_) else None

    def _of_views(self, node: Node, weight: RecordedWeight) -> torch.Tensor | None:
        """A weight that launches were passed other views of: as a matrix, its transpose; None if they leave gaps."""
        assert self.reference.of_exported is not None
        first, *others = weight.views
        item = KnownValue(ValueKey(node.name), first, tuple(others))
        try:
            return load_value(self.reference.of_exported.graphs[0], item, Symbols(), "cpu")
        except (NotEvaluableError, RunDirError):  # a part was not recorded, or a file is gone
            return None


class Loaded:
    """A program whose graph cannot be evaluated here, loaded by torch.

    Raises:
        NotEvaluableError: it cannot be loaded.
    """

    def __init__(self, path: str, inputs: input_files.Inputs | None) -> None:
        assert inputs is not None
        try:
            self._module = load_program.load(path).module()
        except Exception as error:
            raise NotEvaluableError(f"it cannot be loaded: {_text(error)}") from error
        self._inputs = inputs
        self._held: Mapping[str, torch.Tensor] = {
            **dict(self._module.named_buffers()),
            **dict(self._module.named_parameters()),
        }

    def call(self) -> Sequence[Any]:
        """Calls it once.

        Raises:
            RefusedError: it fails.
        """
        import torch
        from torch.utils import _pytree as pytree

        try:
            with torch.no_grad():
                returned = self._module(*self._inputs.args, **self._inputs.kwargs)
        except Exception as error:
            raise RefusedError(f"it fails in eager: {_text(error)}", error) from error
        leaves: Sequence[Any] = pytree.tree_leaves(returned)
        return leaves

    def state(self, name: str) -> torch.Tensor | None:
        """A weight or a buffer after the last call."""
        return self._held.get(name)

    def input(self, number: int) -> torch.Tensor | None:
        """An input after the last call."""
        import torch

        leaves = self._leaves
        value = leaves[number] if number < len(leaves) else None
        return value if isinstance(value, torch.Tensor) else None

    @property
    def overwritten(self) -> GivenTensors:
        """All: which of them a call overwrites is not known."""
        return GivenTensors(tuple(self._held), tuple(range(len(self._leaves))))

    @property
    def _leaves(self) -> Sequence[Any]:
        from torch.utils import _pytree as pytree

        leaves: Sequence[Any] = pytree.tree_leaves((self._inputs.args, dict(self._inputs.kwargs)))
        return leaves


MAX_TRIED = 8  # operators that are tried, in one call of the program each


@dataclass(frozen=True)
class MemoryTrials:
    """The results of a program with other numbers in the memory that nothing has written.

    Attributes:
        returned: with the usual numbers.
        changed: by operator that gives such memory: the outputs that other numbers in it change; for a tensor that
            keeps its shape, True for each element that changes, in row-major order; for any other output, None.
    """

    returned: Sequence[Any]
    changed: Mapping[str, Mapping[int, torch.Tensor | None]]


def fresh_memory(graph: Graph) -> Mapping[str, int]:
    """The first operators of a graph that give memory which nothing has written, each with its usual fill."""
    return dict.fromkeys([node.name for node in graph.nodes if node.target in FRESH][:MAX_TRIED], 0)


def memory_trials(
    source: ExportedSource, graph: Graph, calls: int = 1, watch: Adjustment | None = None
) -> MemoryTrials | None:
    """Calls the program with other numbers in its fresh memory; with as many calls again, returns the same trials.

    None where two equal calls differ: something else makes them different. Operators that refuse such numbers are
    passed over: others may not.

    Args:
        calls: of the program in each trial; what the last one returns counts.
        watch: sees what nodes compute, if it is called now, and changes nothing.
    """
    if calls not in source.trials:
        source.trials[calls] = _memory_trials(source, fresh_memory(graph), calls, watch)
    return source.trials[calls]


def _memory_trials(
    source: ExportedSource, usual: Mapping[str, int], calls: int, watch: Adjustment | None
) -> MemoryTrials | None:
    first, second = returned_with(source, usual, watch, calls), returned_with(source, usual, None, calls)
    if first is None or second is None or different_outputs(first, second):
        return None
    changed = {}
    for name in usual:
        other = returned_with(source, {**usual, name: 1}, calls=calls)
        changed[name] = {} if other is None else changed_elements(first, other)
    return MemoryTrials(first, changed)


def undefined_results(source: ExportedSource, called: Program) -> Iterator[UndefinedResult]:
    """Yields the operators that do what the graph does not say, with arguments or with memory.

    They overwrite an argument, return memory of one, or give memory that nothing has written.

    Memory is unwritten where outputs of a call change with what is in it before.

    Args:
        called: the program, after its calls in eager.
    """
    if not isinstance(called, ExportedCalls):
        return
    for name, done in called.undeclared.items():
        yield UndefinedResult(name, f"{done}, which its schema does not declare")
    trials = memory_trials(source, called.graph) if fresh_memory(called.graph) else None
    for name, changed in {} if trials is None else trials.changed.items():
        if changed:
            outputs = tuple(changed)
            seen = f"{UNWRITTEN}: with other numbers in it, in eager, "
            yield UndefinedResult(name, f"{seen}{outputs_text(outputs)} changes", outputs)


def inexact_results(called: Program) -> Iterator[InexactResult]:
    """Yields the operators whose results in eager were not the exact ones of their operands.

    Args:
        called: the program, after its calls in eager.
    """
    found = called.inexact if isinstance(called, ExportedCalls) else {}
    return (InexactResult(name, result.seen, result.is_open) for name, result in found.items())


def outputs_text(outputs: Sequence[int]) -> str:
    """ "output 1", "each of the outputs 0, 2"."""
    numbers = wording.comma_separated([str(number) for number in outputs])
    return f"output {numbers}" if len(outputs) == 1 else f"each of the outputs {numbers}"


def returned_with(
    source: ExportedSource, fills: Mapping[str, int], adjust: Adjustment | None = None, calls: int = 1
) -> Sequence[Any] | None:
    """Return what the program returns in the last of these calls, with fresh memory filled so.

    None where an operator refuses that, a dtype cannot be filled, or there is no memory for one more call.
    """
    program = source.program(Arithmetic.EAGER)
    assert isinstance(program, ExportedCalls)
    program.fills, program.adjust = fills, adjust
    try:
        returned: Sequence[Any] = ()
        for _ in range(calls):
            returned = program.call()
        return returned
    except (NotEvaluableError, RuntimeError):
        return None


def different_outputs(first: Sequence[Any], second: Sequence[Any]) -> tuple[int, ...]:
    """The numbers of the outputs that are not the same, bit for bit."""
    pairs = enumerate(zip(first, second, strict=True))
    return tuple(number for number, (a, b) in pairs if not _has_equal_values(a, b))


def changed_elements(first: Sequence[Any], second: Sequence[Any]) -> dict[int, torch.Tensor | None]:
    """The outputs that are not the same, bit for bit, with their elements that are not equal, as in MemoryTrials."""
    import torch

    found: dict[int, torch.Tensor | None] = {}
    for number in different_outputs(first, second):
        a, b = first[number], second[number]
        is_alike = isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) and a.shape == b.shape
        found[number] = unequal(a.cpu(), b.cpu()) if is_alike else None
    return found


def unequal(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """True for the elements that are not equal, in row-major order; two NaN are."""
    return ((first != second) & ~(first.isnan() & second.isnan())).reshape(-1)


def _has_equal_values(first: Any, second: Any) -> bool:
    """True for tensors with the same bits, or equal other values."""
    import torch

    if not isinstance(first, torch.Tensor) or not isinstance(second, torch.Tensor):
        return bool(first == second)
    return first.shape == second.shape and has_equal_bits(first.cpu(), second.cpu())


def _text(error: Exception) -> str:
    return wording.first_line(f"{type(error).__name__}: {error}")


def calls(nodes: Sequence[Node]) -> Iterator[Node]:
    """The nodes that call something."""
    return (node for node in nodes if node.kind is NodeKind.CALL)
