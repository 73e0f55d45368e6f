"""Evaluates the whole graph that kernels come from, in eager, and compares what launches wrote with it. In a child.

A value is dropped after the last node that reads it.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from aoti_debug.base.errors import RunDirError
from aoti_debug.base.frozen import dataclass
from aoti_debug.compare.evaluate.arguments import ExportedWeights
from aoti_debug.compare.evaluate.arithmetic import Arithmetic
from aoti_debug.compare.evaluate.evaluation import Evaluation
from aoti_debug.compare.evaluate.functions import NotEvaluableError
from aoti_debug.compare.evaluate.rounding_errors import RoundingNoise
from aoti_debug.compare.measure.state_change import (
    NOISE_SEEDS,
    NOISE_UNITS,
    judged_by_double,
    judged_by_noise,
    judged_by_nothing,
    state_change,
)
from aoti_debug.compare.measure.ulp import misplaced, relative_difference
from aoti_debug.compare.protocol.measurement import (
    LARGEST,
    Advance,
    Inherited,
    ProgramFailure,
    SavedOutput,
    StateChange,
    StatesFailure,
)
from aoti_debug.compare.protocol.request import KnownValue, ProgramOutput, ProgramRun, ProgramState
from aoti_debug.compare.worker.recorded_tensors import as_written, load, load_value
from aoti_debug.compare.worker.region_values import save_outputs
from aoti_debug.package.inputs.symbolic_sizes import Symbols
from aoti_debug.package.program_graphs import Graph, Node, NodeKind, Reference, ValueKey

if TYPE_CHECKING:
    import torch


def evaluate_program(
    reference: Reference,
    program: ProgramRun,
    device: str,
    weights: ExportedWeights | None = None,
    kept: Path | None = None,
) -> Iterator[Inherited | StateChange | SavedOutput | ProgramFailure | StatesFailure]:
    """Yields the difference of each output and state that could be evaluated, or the first reason why one could not.

    A state that differs by more than a part of its change is evaluated once more in float64.

    Args:
        kept: a folder for what the program returns; None to drop it.
    """
    graph = reference.graph(program.graph, program.function)
    if graph is None:
        yield ProgramFailure("the reference lacks its graph")
        return
    symbols = Symbols(known=program.symbols)
    evaluation = Evaluation(reference, graph, Arithmetic.EAGER, device, weights=weights)
    outputs: dict[ValueKey, list[ProgramOutput]] = defaultdict(list)
    for output in program.outputs:
        outputs[output.recorded.value].append(output)
    deviating: list[_Deviation] = []
    for node in _evaluated(evaluation, graph, program, device):
        for key in (ValueKey(node.name), *(ValueKey(name, node.name) for name in node.mutates)):
            for output in outputs.get(key, ()):
                yield from _difference(evaluation, graph, output, symbols, device)
        for state in program.states:
            if state.mutator != node.name or (found := _state(evaluation, graph, state, program, device)) is None:
                continue
            if found.change.advance is Advance.RIGHT:
                yield found.change
            else:
                deviating.append(found)
    if kept is not None:
        yield from save_outputs(evaluation, graph, program, kept)
    failed = [reason for name, reason in evaluation.failures.items() if graph.by_name[name].kind is NodeKind.CALL]
    if failed:
        yield ProgramFailure(failed[0])
    if deviating:

        def double(noise: RoundingNoise | None = None) -> Evaluation:
            return Evaluation(reference, graph, Arithmetic.DOUBLE, device, weights=weights, noise=noise)

        yield from _judged(double, graph, program, device, deviating)


def _evaluated(evaluation: Evaluation, graph: Graph, program: ProgramRun, device: str) -> Iterator[Node]:
    """Evaluates the nodes of a program in order, and yields each of them while its value is held."""
    import torch

    symbols = Symbols(known=program.symbols)
    outputs: dict[ValueKey, list[ProgramOutput]] = defaultdict(list)
    for output in program.outputs:
        outputs[output.recorded.value].append(output)
    last_uses = graph.last_readers(node.name for node in graph.nodes)
    begin = _Begin(evaluation, graph, program, device)
    with torch.no_grad():
        for node in graph.nodes:
            begin.load(node.inputs)
            is_evaluated = node.kind in (NodeKind.CALL, NodeKind.WEIGHT, NodeKind.INPUT)
            if not is_evaluated or begin.has(node.name):
                continue
            evaluation.run(node, symbols.value(node.size) if node.size else None)
            if node.name in evaluation.random:
                _take_drawn(evaluation, graph, outputs.get(ValueKey(node.name), ()), symbols, device)
            yield node
            evaluation.values.drop(last_uses.get(node.name, frozenset()))


@dataclass(frozen=True)
class _Deviation:
    """A state of a call, in the run and in the program.

    Attributes:
        after: in the run.
        eager: in the program, in its own dtypes.
    """

    state: ProgramState
    change: StateChange
    after: torch.Tensor
    eager: torch.Tensor


def _judged(
    double: Callable[..., Evaluation], graph: Graph, program: ProgramRun, device: str, deviating: Sequence[_Deviation]
) -> Iterator[StateChange | StatesFailure]:
    """Yields changes as the program in float64 judges them; where it cannot, rounding may explain them.

    Args:
        double: makes an evaluation in float64, with noise if it is given some.
    """
    wrong: list[tuple[_Deviation, StateChange, torch.Tensor]] = []
    for deviation, exact in _states_of(double(), graph, program, device, deviating):
        if isinstance(exact, NotEvaluableError):
            yield from _unjudged(deviation, str(exact))
            continue
        judged = judged_by_double(deviation.change, deviation.after, deviation.eager, exact)
        if judged.advance is Advance.RIGHT:
            yield judged
        else:
            wrong.append((deviation, judged, exact.clone()))
    if not wrong:
        return
    noisy: dict[str, list[torch.Tensor]] = defaultdict(list)
    suspects = [deviation for deviation, _, _ in wrong]
    for seed in NOISE_SEEDS:
        evaluation = double(RoundingNoise(seed, NOISE_UNITS))
        for deviation, value in _states_of(evaluation, graph, program, device, suspects):
            if not isinstance(value, NotEvaluableError):
                noisy[deviation.state.name].append(value.clone())
    for deviation, judged, exact in wrong:
        yield judged_by_noise(judged, deviation.after, exact, noisy[deviation.state.name])


def _states_of(
    evaluation: Evaluation, graph: Graph, program: ProgramRun, device: str, deviating: Sequence[_Deviation]
) -> Iterator[tuple[_Deviation, torch.Tensor | NotEvaluableError]]:
    """Yields the value of each state after the node that overwrites it last, or why there is none."""
    last = next(reversed([node.name for node in graph.nodes if node.name in {d.state.mutator for d in deviating}]))
    for node in _evaluated(evaluation, graph, program, device):
        for deviation in deviating:
            if deviation.state.mutator != node.name:
                continue
            try:
                yield deviation, evaluation.value(ValueKey(deviation.state.node, node.name))
            except NotEvaluableError as error:
                yield deviation, error
        if node.name == last:
            return


def _unjudged(deviation: _Deviation, reason: str) -> Iterator[StateChange | StatesFailure]:
    """Yields a change that float64 cannot judge: only a large one of integers is wrong all the same."""
    judged = judged_by_nothing(deviation.change, deviation.after)
    name = deviation.change.name
    yield judged or StatesFailure(f"whether rounding explains how {name} changes is not known: {reason}")


class _Begin:
    """The inputs and weights that a program begins with, each of them loaded when the first node reads it."""

    def __init__(self, evaluation: Evaluation, graph: Graph, program: ProgramRun, device: str) -> None:
        self._evaluation, self._graph, self._device = evaluation, graph, device
        self._symbols = Symbols(known=program.symbols)
        self._items = {item.value.node: item for item in program.inputs}
        self._remaining = dict(self._items)

    def has(self, name: str) -> bool:
        """True if a node is one of them."""
        return name in self._items

    def load(self, names: Iterable[str]) -> None:
        """Loads those that were not loaded yet; one that cannot be is evaluated, if it is a weight that is known."""
        for name in names:
            item = self._remaining.pop(name, None)
            if item is None:
                continue
            try:
                self._evaluation.set(item.value, load_value(self._graph, item, self._symbols, self._device))
            except (NotEvaluableError, RunDirError) as error:
                self._evaluation.failures[name] = str(error)
                node = self._graph.by_name[name]
                if node.kind is NodeKind.WEIGHT or node.is_empty:
                    self._evaluation.run(node)


def _take_drawn(
    evaluation: Evaluation, graph: Graph, outputs: Sequence[ProgramOutput], symbols: Symbols, device: str
) -> None:
    """Takes random numbers as the run drew them, if a launch wrote them."""
    for output in outputs:
        with contextlib.suppress(NotEvaluableError, RunDirError):
            evaluation.set(output.recorded.value, load_value(graph, output.recorded, symbols, device))
            evaluation.failures.pop(output.recorded.value.node, None)


def _difference(
    evaluation: Evaluation, graph: Graph, output: ProgramOutput, symbols: Symbols, device: str
) -> Iterator[Inherited]:
    """The difference of an output; nothing if it cannot be compared."""
    item = output.recorded
    try:
        actual = load(graph, item, device)
        expected = as_written(evaluation.value(item.value), actual, item, symbols)
    except (NotEvaluableError, RunDirError):
        return
    relative = LARGEST if misplaced(actual, expected) else relative_difference(actual, expected)
    yield Inherited(output.launch, item.recorded.argument, relative)


def _state(
    evaluation: Evaluation, graph: Graph, state: ProgramState, program: ProgramRun, device: str
) -> _Deviation | None:
    """The change of a state; None if it cannot be compared."""
    symbols = Symbols(known=program.symbols)
    try:
        expected = evaluation.value(ValueKey(state.node, state.mutator))
        before, after = (
            load_value(graph, KnownValue(ValueKey(state.node), recorded), symbols, device)
            for recorded in (state.before, state.after)
        )
    except (NotEvaluableError, RunDirError):
        return None
    if not before.shape == after.shape == expected.shape:
        return None
    change = state_change(state.name, program.call, state.launch, before, after, expected)
    return _Deviation(state, change, after, expected)
