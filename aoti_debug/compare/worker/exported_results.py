"""Calls the exported program of a run as often in eager, for its states and outputs. Runs in a child process.

The graph that kernels are generated from may be wrong already: Inductor decomposes operators, folds what it takes for
constant, and replaces patterns. A program that draws random numbers is handed those that the run drew, where they are
known; otherwise it is not called: its states and outputs are others each time.
An exception about values is a refusal; one about this machine or torch (no memory) says nothing about the model.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aoti_debug.base import wording
from aoti_debug.base.frozen import dataclass
from aoti_debug.compare.evaluate.arguments import ExportedWeights
from aoti_debug.compare.evaluate.arithmetic import Arithmetic
from aoti_debug.compare.evaluate.evaluation import Evaluation
from aoti_debug.compare.evaluate.functions import NotEvaluableError, RefusedError, first_line, operator_of
from aoti_debug.compare.evaluate.rounding_errors import RoundingNoise
from aoti_debug.compare.explain.bad_operand_search import BadOperandSearch
from aoti_debug.compare.explain.element_trace import MOVES, is_elementwise
from aoti_debug.compare.measure.state_change import (
    NOISE_SEEDS,
    NOISE_UNITS,
    is_small,
    judged_by_double,
    judged_by_noise,
    judged_by_nothing,
    state_change,
)
from aoti_debug.compare.protocol.measurement import (
    EXPORTED_EAGER,
    Advance,
    InexactResult,
    StateChange,
    StatesFailure,
    UndefinedResult,
)
from aoti_debug.compare.protocol.messages import BadOperand, InputElement, Refusal
from aoti_debug.compare.protocol.request import CallStates, CompareRequest, GivenTensors, ProgramState
from aoti_debug.compare.worker.exact_checks import lost_changes, misreturned, other_weights
from aoti_debug.compare.worker.exported_program import ExportedSource, Program, held, inexact_results, undefined_results
from aoti_debug.compare.worker.recorded_tensors import recorded_tensor
from aoti_debug.compare.worker.returned_outputs import Judged, judged_outputs
from aoti_debug.package.argument_values import unravel
from aoti_debug.package.inputs.symbolic_sizes import Symbols
from aoti_debug.package.program_graphs import Graph, Node, NodeKind, Reference, ValueKey
from aoti_debug.package.pt2.archive import Artifact
from aoti_debug.runs.run import saved_outputs

if TYPE_CHECKING:
    import torch

_OF_THIS_MACHINE = (TypeError, NotImplementedError, MemoryError, ImportError, OSError)
_SAYS_SO = (  # in the texts of errors that torch raises as RuntimeError
    *("not implemented for", "could not run", "not compiled with", "not linked with", "no kernel image"),
    *("out of memory", "can't allocate memory", "cuda error", "internal assert failed"),
    "expected all tensors to be on",
)
_MAX_INPUTS, _MAX_STEPS = 4, 10_000


def refusal_of(source: ExportedSource, error: RefusedError) -> Refusal | StatesFailure:
    """The refusal of the inputs by eager, or why this is none."""
    if not is_about_values(error.raised):
        return StatesFailure(error.of_dtype(source.reference.of_exported, source.device) or str(error))
    said = error.raised
    if error.node:
        try:
            loaded = source.loaded()
            if loaded is not None:
                for _ in range(error.call + 1):
                    loaded.call()
                return StatesFailure(f"{error}; the program itself, called by torch, does not fail")
        except RefusedError as other:
            if not is_about_values(other.raised):
                return StatesFailure(str(other))
            said = other.raised
        except NotEvaluableError:  # it cannot be loaded; that its operator fails was seen all the same
            pass
    refusal = Refusal(error=type(said).__name__, words=first_line(said), call=error.call)
    exported = source.reference.of_exported
    if not error.node or exported is None or error.node not in exported.graphs[0].by_name:
        return refusal
    operator = exported.graphs[0].by_name[error.node].target
    bad: BadOperand | None = None
    inputs: tuple[InputElement, ...] = ()
    if error.call == 0:
        with contextlib.suppress(NotEvaluableError, RuntimeError, TypeError, ValueError, IndexError):
            bad, inputs = _bad_operand(source, exported, error.node)
    return replace(refusal, node=error.node, operator=operator, bad=bad, inputs=inputs)


def is_about_values(error: BaseException) -> bool:
    """True for an exception by which an operator refuses the values that it is given."""
    import torch

    of_device = (torch.OutOfMemoryError, getattr(torch, "AcceleratorError", torch.OutOfMemoryError))
    if isinstance(error, (*_OF_THIS_MACHINE, *of_device)) or not isinstance(error, Exception):
        return False
    return not any(words in str(error).lower() for words in _SAYS_SO)


def _bad_operand(
    source: ExportedSource, exported: Reference, failing: str
) -> tuple[BadOperand | None, tuple[InputElement, ...]]:
    """The operand's element that the failing operator cannot use, and the elements of inputs that it comes from."""
    import torch

    graph = exported.graphs[0]
    names = graph.sorted(node.name for node in graph.behind(failing))
    with torch.no_grad():
        search = BadOperandSearch(exported, graph, source.given(), Symbols(), source.device)
        bad = search.first("", names[: names.index(failing) + 1])
        if bad is None or bad.node != failing:
            return None, ()
        trace = _InputTrace(graph, search.evaluation)
        return bad, trace.elements(graph.value_for(bad.name, failing), bad.index)


class _InputTrace:
    """Follows an element through operators that compute or move single elements, to inputs and weights."""

    def __init__(self, graph: Graph, evaluation: Evaluation) -> None:
        self._graph = graph
        self._evaluation = evaluation

    def elements(self, key: ValueKey, index: tuple[int, ...]) -> tuple[InputElement, ...]:
        """The elements that one was computed from; () if any of them is not known, or there are many."""
        found: dict[tuple[str, tuple[int, ...]], InputElement] = {}
        waiting, steps = [(key, index)], 0
        while waiting:
            key, index = waiting.pop()
            steps += 1
            node, value = self._graph.by_name[key.after or key.node], self._evaluation.values.get(key)
            if steps > _MAX_STEPS or value is None or len(found) > _MAX_INPUTS:
                return ()
            if node.kind in (NodeKind.INPUT, NodeKind.WEIGHT):
                name = node.target if node.kind is NodeKind.WEIGHT else node.name
                number = _numbered(value)[index] if index else 0
                found[name, index] = InputElement(name, index, int(number), str(value[index].item()))
            elif (operands := self._operands(node, index)) is not None:
                waiting += operands
            else:
                return ()
        return tuple(found.values())

    def _operands(self, node: Node, index: tuple[int, ...]) -> list[tuple[ValueKey, tuple[int, ...]]] | None:
        """The elements that an element of an operator's result was made of; None if they cannot be told."""
        if is_elementwise(node):
            return list(self._corresponding(node, index))
        return self._moved(node, index) if node.target.count(".") and node.target.split(".")[1] in MOVES else None

    def _corresponding(self, node: Node, index: tuple[int, ...]) -> Iterator[tuple[ValueKey, tuple[int, ...]]]:
        import torch

        for name in node.inputs:
            key = self._graph.value_for(name, node.name)
            value = self._evaluation.values.get(key)
            if isinstance(value, torch.Tensor):
                own = index[len(index) - value.dim() :]
                yield key, tuple(0 if size == 1 else i for size, i in zip(value.shape, own, strict=True))

    def _moved(self, node: Node, index: tuple[int, ...]) -> list[tuple[ValueKey, tuple[int, ...]]] | None:
        """Calls an operator that moves elements on the numbers of its first argument's elements."""
        import torch

        args, kwargs = self._evaluation.arguments(node)
        if not args or not isinstance(args[0], torch.Tensor) or len(node.inputs) > 1:
            return None
        try:
            numbers: Any = operator_of(node.target)(_numbered(args[0]), *args[1:], **kwargs)
        except (RuntimeError, TypeError, ValueError, IndexError):
            return None
        if not isinstance(numbers, torch.Tensor):
            return None
        place = unravel(int(numbers[index]), tuple(args[0].shape))
        return [(self._graph.value_for(node.inputs[0], node.name), place)]


def _numbered(value: torch.Tensor) -> torch.Tensor:
    """The row-major numbers of a tensor's elements, in their places."""
    import torch

    return torch.arange(value.numel(), device=value.device).reshape(value.shape)


_MAX_JUDGED = 8  # calls in which a state deviates: of each, its value is held

Result = StateChange | Judged | Refusal | UndefinedResult | InexactResult


def exported_results(
    request: CompareRequest,
    package: Artifact,
    reference: Reference,
    device: str,
    weights: ExportedWeights,
    folder: Path,
) -> Iterator[Result]:
    """Yields the changes of the states of a run that its exported program has too, and what that returns in the end.

    Also outputs that are not what launches wrote, and weights that are not the program's. If the program could not be
    called, the reason.

    Args:
        folder: for the outputs.
    """
    if request.exported_run is None:
        return
    yield from misreturned(reference, request.exported_run)
    if reference.exported:
        yield from other_weights(reference.exported[0], request.exported_run.weights, weights)
    try:
        source = ExportedSource(request, request.exported_run, package, reference, device, weights)
        if source.inputs is not None:
            yield from _results(source, folder)
        elif reference.exported or request.exported:
            yield StatesFailure("the inputs of the run are not known")
    except NotEvaluableError as error:
        yield StatesFailure(wording.first_line(str(error)))
    except Exception as error:  # noqa: BLE001 - what launches wrote is compared all the same
        reason = f"comparing states and outputs fails here: {type(error).__name__}: {error}"
        yield StatesFailure(wording.first_line(reason))


def _results(source: ExportedSource, folder: Path) -> Iterator[Result]:
    from torch.utils import _pytree as pytree

    program = source.program(Arithmetic.EAGER)
    states = dict(enumerate(source.run.states))
    began_alike: set[str] = set()
    deviating: list[_StateAfterCall] = []
    unjudged: set[str] = set()
    returned: Sequence[Any] = ()
    for number in range(source.run.calls):
        call = states.get(number, CallStates(number, ()))
        known = ((state.name, held(program, state)) for state in call.states)
        earlier = {name: value.cpu().clone() for name, value in known if value is not None}
        untouched = _values(program, source.run.untouched) if number == 0 else {}
        try:
            returned = program.call()
        except RefusedError as error:
            yield refusal_of(source, error)
            return
        yield from lost_changes(untouched, _values(program, source.run.untouched) if number == 0 else {})
        for found in _state_changes(program, call, earlier, began_alike, number):
            name, is_right = found.change.name, found.change.advance is Advance.RIGHT
            earlier_ones = [state for state in deviating if state.change.name == name]
            if is_right and not earlier_ones:
                yield found.change
            elif is_right:
                deviating.append(found)
            elif sum(state.change.advance is not Advance.RIGHT for state in earlier_ones) < _MAX_JUDGED:
                deviating.append(replace(found, eager=found.eager.clone()))  # the next call overwrites it
            elif not is_small(found.change):
                unjudged.add(name)
    given = [] if source.inputs is None else pytree.tree_leaves((source.inputs.args, dict(source.inputs.kwargs)))
    saved_outputs.save(list(returned), folder / EXPORTED_EAGER, list(map(program.input, range(len(given)))))
    yield from undefined_results(source, program)
    yield from inexact_results(program)
    del program
    yield from judged_outputs(source, folder)
    yield from _judged_states(source, deviating, unjudged)


def _values(program: Program, given: GivenTensors) -> dict[str | int, torch.Tensor]:
    """The states that the program may overwrite, by their names, and such inputs, by their numbers."""
    may_change = program.overwritten
    values: dict[str | int, torch.Tensor | None] = {
        name: program.state(name) for name in given.states if name in may_change.states
    }
    values |= {number: program.input(number) for number in given.inputs if number in may_change.inputs}
    return {key: value.cpu().clone() for key, value in values.items() if value is not None}


@dataclass(frozen=True)
class _StateAfterCall:
    """A state after a call, in the run and in the program.

    Attributes:
        number: of the call, from 0.
        after: the state in the run.
        eager: the state in the program, in its own dtypes.
    """

    state: ProgramState
    number: int
    change: StateChange
    after: torch.Tensor
    eager: torch.Tensor

    @property
    def key(self) -> tuple[str, int]:
        """The name of the state, and the number of the call."""
        return self.change.name, self.number


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
        before, after = recorded_tensor(state.before.path), recorded_tensor(state.after.path)
        expected = held(program, state)
        if state.name not in earlier or before is None or after is None or expected is None:
            continue
        old = earlier[state.name]
        if not old.shape == before.shape == after.shape:
            continue
        is_new = number == 0 or state.input is not None  # inputs may be given again
        is_alike = torch.equal(before.nan_to_num(), old.nan_to_num()) if is_new else state.name in known
        if is_alike:
            began_alike.add(state.name)
            change = state_change(state.name, call.call, state.launch, before, after, expected.cpu())
            yield _StateAfterCall(state, number, change, after, expected.cpu())


def _judged_states(
    source: ExportedSource, deviating: Sequence[_StateAfterCall], unjudged: Set[str]
) -> Iterator[StateChange | StatesFailure]:
    """Yields changes as the program in float64 judges them; of each state those up to the first wrong one.

    Where that is not known, rounding may explain those of numbers that are rounded: they are not called wrong.

    Args:
        unjudged: the states that deviate in later calls too.
    """
    exact, reason = _states_after(source, [s for s in deviating if s.change.advance is not Advance.RIGHT])
    judged = [_judged_state(state, exact.get(state.key)) for state in deviating]
    suspects = [s for s, c in zip(deviating, judged, strict=True) if c is not None and c.advance is not Advance.RIGHT]
    noisy = [_states_after(source, suspects, RoundingNoise(seed, NOISE_UNITS))[0] for seed in NOISE_SEEDS if exact]
    wrong: set[str] = set()
    for state, change in zip(deviating, judged, strict=True):
        if change is None:
            said = f"whether rounding explains how {state.change.name} changes is not known: "
            yield StatesFailure(said + (reason or "float64 has no value for it"))
            continue
        value = exact.get(state.key)
        if change.advance is not Advance.RIGHT and value is not None:
            others = [
                one for values in noisy if (one := values.get(state.key)) is not None and one.shape == value.shape
            ]
            change = judged_by_noise(change, state.after, value, others)
        if change.name not in wrong:  # what follows is a consequence
            yield change
            if change.advance is not Advance.RIGHT:
                wrong.add(change.name)
    for name in sorted(unjudged - wrong):
        yield StatesFailure(
            f"{name} is judged in the first {_MAX_JUDGED} calls in which it deviates, not in later ones"
        )


def _states_after(
    source: ExportedSource, wanted: Sequence[_StateAfterCall], noise: RoundingNoise | None = None
) -> tuple[dict[tuple[str, int], torch.Tensor], str]:
    """The states after their calls in float64, as far as they are known; and why not, if for one reason."""
    found: dict[tuple[str, int], torch.Tensor] = {}
    if not wanted:
        return found, ""
    try:
        program = source.program(Arithmetic.DOUBLE, noise)
        for number in range(max(state.number for state in wanted) + 1):
            program.call()
            for state in wanted:
                value = held(program, state.state) if state.number == number else None
                if value is not None:
                    found[state.key] = value.cpu().clone()
    except NotEvaluableError as error:
        return found, str(error)
    return found, ""


def _judged_state(state: _StateAfterCall, exact: torch.Tensor | None) -> StateChange | None:
    """The change as float64 judges it; None where that is needed and not known."""
    if state.change.advance is Advance.RIGHT:
        return state.change
    if exact is not None and exact.shape == state.after.shape:
        return judged_by_double(state.change, state.after, state.eager, exact.cpu())
    return judged_by_nothing(state.change, state.after)
