"""Calls the exported program of a run as often in eager, for its states and outputs. Runs in a child process.

The graph that kernels are generated from may be wrong already: Inductor decomposes operators, folds what it takes for
constant, and replaces patterns. Programs that draw random numbers are not called: their states and outputs are others
each time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from aoti_debug import wording
from aoti_debug.compare.evaluate.arithmetic import Arithmetic
from aoti_debug.compare.evaluate.exported_calls import ExportedCalls
from aoti_debug.compare.evaluate.functions import NotEvaluableError, is_random, missing_function_reason
from aoti_debug.compare.evaluate.weights import ExportedWeights, has_type
from aoti_debug.compare.measure.output_errors import errors, of_program, with_double
from aoti_debug.compare.measure.state_change import judged_by_double, state_change
from aoti_debug.compare.protocol.measurement import (
    EXPORTED_DOUBLE,
    EXPORTED_EAGER,
    Advance,
    AlteredProgram,
    ExportedOutputs,
    StateChange,
    StatesFailure,
)
from aoti_debug.compare.protocol.request import CallStates, CompareRequest, ExportedRun, Recorded
from aoti_debug.compare.worker.altered import altered_program
from aoti_debug.errors import RunDirError
from aoti_debug.inputs import input_files
from aoti_debug.printing import registration
from aoti_debug.pt2.archive import Artifact
from aoti_debug.reference.program import Node, NodeKind, Reference
from aoti_debug.run import saved_outputs
from aoti_debug.rundir import load_tensors

if TYPE_CHECKING:
    import torch

Result = StateChange | ExportedOutputs | AlteredProgram | StatesFailure


class Program(Protocol):
    """An exported program that keeps its state from call to call."""

    def call(self) -> Sequence[Any]:
        """Calls it once; returns what the user gets, as leaves."""

    def state(self, name: str) -> torch.Tensor | None:
        """A weight or a buffer by its name; None if it is not known."""


def exported_results(
    request: CompareRequest,
    package: Artifact,
    reference: Reference,
    device: str,
    weights: ExportedWeights,
    folder: Path,
) -> Iterator[Result]:
    """Yields the changes of the states of a run that its exported program has too, and what that returns in the end.

    If it could not be called, the reason.

    Args:
        folder: for the outputs.
    """
    if request.exported_run is None:
        return
    if _draws_random_numbers(reference):
        yield StatesFailure("it draws random numbers")
        return
    try:
        source = _Source(request, request.exported_run, package, reference, device, weights)
        if source.inputs is not None:
            yield from _results(source, folder)
    except Exception as error:  # noqa: BLE001 - the user's program may raise anything in eager
        is_known = isinstance(error, NotEvaluableError)
        reason = str(error) if is_known else f"it fails in eager: {type(error).__name__}: {error}"
        yield StatesFailure(wording.first_line(reason))


class _Source:
    """What the exported program is made of.

    Attributes:
        run: the calls to make.
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
        self._inputs_file = request.inputs
        self._package = package
        self._recorded = {weight.name: weight.path for weight in run.weights}
        self._exported_weights = weights

    @cached_property
    def inputs(self) -> input_files.Inputs | None:
        """The inputs of the run; None if they are not known."""
        if self._inputs_file:
            return input_files.read(self._inputs_file, input_files.read_signature(self._package))
        return input_files.read_embedded(self._package)

    def program(self, arithmetic: Arithmetic) -> Program:
        """The program as it is before the first call.

        Raises:
            NotEvaluableError: it is not known, or cannot be computed in this arithmetic.
        """
        exported = self.reference.of_exported
        reason = self.reference.exported_failure or "the package does not hold its graph"
        if exported is not None:
            reason = missing_function_reason(node.target for graph in exported.graphs for node in _calls(graph.nodes))
        if exported is not None and not reason:
            return ExportedCalls(exported, arithmetic, self.device, self._leaves(), self._weight)
        if not self._path or arithmetic is not Arithmetic.EAGER:
            raise NotEvaluableError(reason)
        return _Loaded(self._path, self.inputs)

    def _leaves(self) -> list[Any]:
        import torch
        from torch.utils import _pytree as pytree

        given = self.inputs
        assert given is not None
        leaves = pytree.tree_leaves((given.args, dict(given.kwargs)))
        return [leaf.clone() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]

    def _weight(self, node: Node) -> torch.Tensor | None:
        path = self._recorded.get(node.target)
        if path is not None:
            (type_,) = node.types
            value = _load(Recorded("", node.target, path))
            if type_ is not None and value is not None and has_type(value, type_):
                return value
        return self._exported_weights.value(node)


class _Loaded:
    """A program whose graph cannot be evaluated here, loaded by torch."""

    def __init__(self, path: str, inputs: input_files.Inputs | None) -> None:
        import torch

        assert inputs is not None
        registration.register()
        self._module = torch.export.load(path).module()
        self._inputs = inputs
        self._held: Mapping[str, torch.Tensor] = {
            **dict(self._module.named_buffers()),
            **dict(self._module.named_parameters()),
        }

    def call(self) -> Sequence[Any]:
        import torch
        from torch.utils import _pytree as pytree

        with torch.no_grad():
            leaves: Sequence[Any] = pytree.tree_leaves(self._module(*self._inputs.args, **self._inputs.kwargs))
        return leaves

    def state(self, name: str) -> torch.Tensor | None:
        return self._held.get(name)


def _results(source: _Source, folder: Path) -> Iterator[Result]:
    program = source.program(Arithmetic.EAGER)
    states = dict(enumerate(source.run.states))
    began_alike: set[str] = set()
    deviating: list[_StateAfterCall] = []
    returned: Sequence[Any] = ()
    for number in range(source.run.calls):
        call = states.get(number, CallStates(number, ()))
        names = [state.name for state in call.states]
        earlier = {name: held.cpu().clone() for name in names if (held := program.state(name)) is not None}
        returned = program.call()
        for found in _state_changes(program, call, earlier, began_alike, number):
            if found.change.advance is Advance.RIGHT and found.change.name not in {s.change.name for s in deviating}:
                yield found.change
            else:
                deviating.append(replace(found, eager=found.eager.clone()))  # the next call overwrites it
    saved_outputs.save(list(returned), folder / EXPORTED_EAGER)
    del program
    yield from _judged(source, folder)
    yield from _judged_states(source, deviating)


@dataclass(frozen=True)
class _StateAfterCall:
    """A state after a call, in the run and in the program.

    Attributes:
        number: of the call, from 0.
        after: the state in the run.
        eager: the state in the program, in its own dtypes.
    """

    number: int
    change: StateChange
    after: torch.Tensor
    eager: torch.Tensor


def _state_changes(
    program: Program, call: CallStates, earlier: Mapping[str, torch.Tensor], began_alike: set[str], number: int
) -> Iterator[_StateAfterCall]:
    """Yields the changes in a call of those states that the run began with as the program does.

    Args:
        began_alike: their names. A state that is not recorded in a call is none any more.
    """
    import torch

    known = set(began_alike)
    began_alike.clear()
    for state in call.states:
        before, after, expected = _load(state.before), _load(state.after), program.state(state.name)
        if state.name not in earlier or before is None or after is None or expected is None:
            continue
        old = earlier[state.name]
        if not old.shape == before.shape == after.shape:
            continue
        is_alike = torch.equal(before.nan_to_num(), old.nan_to_num()) if number == 0 else state.name in known
        if is_alike:
            began_alike.add(state.name)
            change = state_change(state.name, call.call, state.launch, before, after, expected.cpu())
            yield _StateAfterCall(number, change, after, expected.cpu())


def _judged_states(source: _Source, deviating: Sequence[_StateAfterCall]) -> Iterator[StateChange | StatesFailure]:
    """Yields changes as the program in float64 judges them; of each state those up to the first wrong one.

    Where that is not known, rounding may explain those of numbers that are rounded: they are not called wrong.
    """
    of_call: dict[int, list[_StateAfterCall]] = defaultdict(list)
    for state in deviating:
        of_call[state.number].append(state)
    wrong: set[str] = set()
    reason, exact = "", None
    for number in range(max(of_call, default=-1) + 1):
        try:
            exact = source.program(Arithmetic.DOUBLE) if number == 0 else exact
            if exact is not None:
                exact.call()
        except NotEvaluableError as error:
            reason, exact = str(error), None
        for state in of_call.get(number, ()):
            value = None if exact is None else exact.state(state.change.name)
            judged = _judged_state(state, value)
            if judged is None:
                said = f"whether rounding explains how {state.change.name} changes is not known: "
                yield StatesFailure(said + (reason or "float64 has no value for it"))
            elif judged.name not in wrong:  # what follows is a consequence
                yield judged
                if judged.advance is not Advance.RIGHT:
                    wrong.add(judged.name)


def _judged_state(state: _StateAfterCall, exact: torch.Tensor | None) -> StateChange | None:
    """The change as float64 judges it; None where that is needed and not known."""
    if state.change.advance is Advance.RIGHT:
        return state.change
    if exact is not None and exact.shape == state.after.shape:
        return judged_by_double(state.change, state.after, state.eager, exact.cpu())
    is_rounded = state.after.dtype.is_floating_point or state.after.dtype.is_complex
    return None if is_rounded else state.change


def _judged(source: _Source, folder: Path) -> Iterator[ExportedOutputs | AlteredProgram]:
    """Yields what eager returns; where the run returned something else, also in float64, and what passes have made."""
    actual = saved_outputs.saved(Path(source.run.returned)) if source.run.returned else {}
    eager = saved_outputs.saved(folder / EXPORTED_EAGER)
    dtypes = source.reference.dtypes
    found = of_program(errors(actual, eager), dtypes)
    yield ExportedOutputs(str(folder / EXPORTED_EAGER))  # also where float64 fails
    if all(error.is_right for error in found):
        return
    try:
        exact = source.program(Arithmetic.DOUBLE)
        for _ in range(source.run.calls):
            returned = exact.call()
    except NotEvaluableError:
        return
    saved_outputs.save(list(returned), folder / EXPORTED_DOUBLE)
    yield ExportedOutputs(str(folder / EXPORTED_EAGER), str(folder / EXPORTED_DOUBLE))
    judged = with_double(found, actual, eager, saved_outputs.saved(folder / EXPORTED_DOUBLE))
    wrong = {
        error.index: value
        for error in judged
        if not error.is_right and (value := _load(Recorded("", "", str(actual[error.index])))) is not None
    }
    program = source.program(Arithmetic.DOUBLE)
    if wrong and source.run.last is not None and isinstance(program, ExportedCalls):
        for _ in range(source.run.calls - 1):
            program.call()
        yield altered_program(source.reference, program, source.run.last, source.device, wrong)


def _calls(nodes: Sequence[Node]) -> Iterator[Node]:
    return (node for node in nodes if node.kind is NodeKind.CALL)


def _draws_random_numbers(reference: Reference) -> bool:
    for node in (node for graph in (*reference.graphs, *reference.exported) for node in _calls(graph.nodes)):
        try:
            if is_random(node.target, node.args, node.kwargs):
                return True
        except NotEvaluableError:  # a branch, a loop, an operator that is not known here
            continue
    return False


def _load(recorded: Recorded) -> torch.Tensor | None:
    try:
        return load_tensors.map_file(Path(recorded.path)).cpu()
    except RunDirError:
        return None
