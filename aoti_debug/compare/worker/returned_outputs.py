"""Judges what a run returned by what its exported program returns, in eager and in float64. Runs in a child process."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence, Set
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aoti_debug.base.frozen import dataclass
from aoti_debug.compare.evaluate.arithmetic import Arithmetic
from aoti_debug.compare.evaluate.evaluation import Adjustment
from aoti_debug.compare.evaluate.exported_calls import ExportedCalls
from aoti_debug.compare.evaluate.functions import NotEvaluableError
from aoti_debug.compare.evaluate.rounding_errors import RoundingNoise
from aoti_debug.compare.measure import output_errors
from aoti_debug.compare.measure.choices import Choice, chooses_equal, leaves_order_open, other_choice
from aoti_debug.compare.measure.differences import deviating, is_suspicious
from aoti_debug.compare.measure.ulp import relative_difference
from aoti_debug.compare.protocol.measurement import (
    EXPLAINED,
    EXPORTED_DOUBLE,
    EXPORTED_EAGER,
    LARGEST,
    AlteredProgram,
    ExportedOutputs,
    FaultyOutput,
    OutputNoise,
    StatesFailure,
    UndefinedResult,
)
from aoti_debug.compare.worker.altered_program import WrongOutput, altered_program
from aoti_debug.compare.worker.exported_program import (
    MAX_TRIED,
    ExportedSource,
    changed_elements,
    different_outputs,
    fresh_memory,
    memory_trials,
    outputs_text,
    returned_with,
    unequal,
)
from aoti_debug.compare.worker.recorded_tensors import recorded_tensor
from aoti_debug.package.program_graphs import MODEL, Node, Reference, returned_nodes
from aoti_debug.runs.run import saved_outputs

if TYPE_CHECKING:
    import torch

Judged = ExportedOutputs | AlteredProgram | FaultyOutput | OutputNoise | StatesFailure | UndefinedResult
_NOISE_SEEDS, _NOISE_UNITS = range(4), 8.0
_SURE, _SURE_MULTIPLE = 10.0, 64.0  # of rounding, and of eager's own error: what no operator without float64 makes
_DECIDED = 4.0  # times as far as another rounding moves an element
_MAX_DIFFERENT = 0.5  # of the elements of an output that differ
_GROSS = 0.01  # relative error, root mean square: a decision that rounding makes otherwise changes few elements


def judged_outputs(source: ExportedSource, folder: Path) -> Iterator[Judged]:
    """Yields what eager returns; where the run returned something else, also in float64, and what passes have made.

    Outputs that differ only where the program leaves open what they are say nothing about passes, unless both graphs
    make the same choices, and float64 has other numbers.
    """
    actual = saved_outputs.saved(Path(source.run.returned)) if source.run.returned else {}
    eager = saved_outputs.saved(folder / EXPORTED_EAGER)
    yield ExportedOutputs(str(folder / EXPORTED_EAGER))  # also where float64 fails
    all_errors = output_errors.errors(actual, eager)
    behind = source.reference.dtypes_behind
    found = output_errors.of_program(all_errors, behind)
    found = output_errors.with_casts(found, source.reference.computed_behind)
    coarsest = {error.index: output_errors.coarsest_of(behind(error.index)) for error in all_errors}
    suspicious = {error.index for error in found if not error.is_right or error.may_have_lost_rounding}
    suspicious |= {e.index for e in all_errors if e.different and _is_suspicious(e, actual, eager, coarsest[e.index])}
    if not suspicious:
        return
    open_ = left_open(source)
    settled = {index for index in suspicious if _is_left_open(open_, index, actual[index], eager[index])}
    following = settled & open_.following if keeps_choices(source.reference) else set()
    altered: Set[int] = frozenset()
    if suspicious - settled or following:
        judged = tuple(error for error in found if error.index not in settled - following)
        altered = yield from _judged_in_double(source, folder, judged, coarsest, following)
    left = settled - altered
    yield from (operator for operator in open_.operators if left.intersection(operator.outputs))


def _judged_in_double(
    source: ExportedSource,
    folder: Path,
    found: Sequence[output_errors.OutputError],
    coarsest: Mapping[int, str],
    following: Set[int],
) -> Generator[Judged, None, Set[int]]:
    """Yields what float64 says of outputs that are not as in eager; returns those that the kernels' graph has changed.

    Args:
        coarsest: the dtypes that outputs are rounded to.
        following: of the outputs, those that may follow from a choice: nothing is said of them if they are not changed.
    """
    actual, eager = (saved_outputs.saved(path) for path in (Path(source.run.returned), folder / EXPORTED_EAGER))
    suspicious = {error.index for error in found}
    try:
        exact = source.program(Arithmetic.DOUBLE)
        returned: Sequence[Any] = ()
        for _ in range(source.run.calls):
            returned = exact.call()
    except NotEvaluableError as error:
        if any(not error.is_right and error.index not in following for error in found):
            yield StatesFailure(f"outputs are not judged in float64: {error}")
        return frozenset()
    saved_outputs.save(list(returned), folder / EXPORTED_DOUBLE)
    double = saved_outputs.saved(folder / EXPORTED_DOUBLE)
    judged = output_errors.with_double(found, actual, eager, double)
    wrong = {error.index for error in judged if not error.is_right}
    yield ExportedOutputs(str(folder / EXPORTED_EAGER), str(folder / EXPORTED_DOUBLE))
    outputs = undecided(source, _wrong_outputs(suspicious, wrong, actual, eager, double, coarsest), double)
    for item in (item for item in judged if item.index in outputs):
        least = max(_SURE * output_errors.rounding_in(item.computed or item.dtype), _SURE_MULTIPLE * item.eager_double)
        outputs[item.index] = replace(outputs[item.index], rounding=least)
    program = source.program(Arithmetic.DOUBLE)
    if not isinstance(program, ExportedCalls):
        return frozenset()
    explained: set[int] = set()
    kept: set[int] = set()
    if outputs and source.run.last is not None:
        for _ in range(source.run.calls - 1):
            program.call()
        altered = altered_program(source.reference, program, source.run.last, source.device, outputs, source.weights)
        explained = {output.index for output in altered.outputs if output.explained >= EXPLAINED}
        kept = {output.index for output in altered.outputs if output.relative <= output.least}
        wrong -= following - explained
        if wrong or explained:
            yield altered
        if altered.is_rounded:
            return explained
    if not source.is_random:
        unexplained = {error.index: error for error in judged if error.index in wrong - explained - following}
        yield from _unexplained(source, unexplained, double, kept)
    return explained


def keeps_choices(reference: Reference) -> bool:
    """True if the kernels' graph chooses among equal elements by the operators that the exported program has."""
    exported, lowered = reference.of_exported, reference.graph("", MODEL)
    if exported is None or lowered is None:
        return False
    graphs = (exported.graphs[0], lowered)
    before, after = (Counter(node.target for node in graph.nodes if leaves_order_open(node)) for graph in graphs)
    return before == after


@dataclass(frozen=True)
class LeftOpen:
    """The outputs that a program leaves open.

    Attributes:
        changed: of outputs, True for the elements that were seen to change, in row-major order.
        chosen: outputs that are indices of an operator: its node, and the elements that it chooses from.
        operators: those that choose among equal elements, and the outputs that change with another choice.
        following: outputs that change with another choice alone, and are no such indices themselves.
    """

    changed: Mapping[int, torch.Tensor] = field(default_factory=dict)
    chosen: Mapping[int, tuple[Node, torch.Tensor]] = field(default_factory=dict)
    operators: Sequence[UndefinedResult] = ()
    following: Set[int] = frozenset()

    def has(self, index: int, actual: torch.Tensor, eager: torch.Tensor) -> bool:
        """True if an output that is not eager's is as good as that."""
        if actual.shape != eager.shape or index not in self.changed:
            return False
        if index in self.chosen:
            node, elements = self.chosen[index]
            return chooses_equal(node, elements, actual, eager)
        return not bool((unequal(actual, eager) & ~_is_rounding(actual, eager) & ~self.changed[index]).any())


def left_open(source: ExportedSource) -> LeftOpen:
    """Find what changes with the memory that nothing has written, or with the choice among equal elements."""
    exported = source.reference.of_exported
    graph = None if exported is None else exported.graphs[0]
    nodes = () if graph is None else graph.nodes
    choosing = {node.name: node for node in nodes if leaves_order_open(node)}
    usual = {} if graph is None else fresh_memory(graph)
    if graph is None or not (usual or choosing):
        return LeftOpen()
    elements: dict[str, torch.Tensor] = {}

    def keep(node: Node, args: Sequence[Any], result: Any) -> Any:
        if node.name in choosing:
            elements[node.name] = args[0].clone()
        return result

    calls = source.run.calls
    trials = memory_trials(source, graph, calls, keep)
    if trials is None:
        return LeftOpen()
    first = trials.returned
    found: dict[int, torch.Tensor] = {}
    results = []
    for changed in trials.changed.values():
        _add(found, changed)
    unwritten = set(found)
    together = returned_with(source, usual, _choosing(choosing, Choice.NEXT), calls) if choosing else first
    has_ties = together is None or bool(different_outputs(first, together))
    if choosing and not elements:  # the trials were made before
        returned_with(source, usual, keep, calls)
    for name in list(choosing)[:MAX_TRIED] if has_ties else ():
        own: dict[int, torch.Tensor] = {}
        for choice in (Choice.NEXT, Choice.PREVIOUS):
            other = returned_with(source, usual, _choosing((name,), choice), calls)
            _add(own, {} if other is None else changed_elements(first, other))
        if own:
            seen = "leaves open which of equal elements comes first: with another choice, in eager, "
            results.append(UndefinedResult(name, f"{seen}{outputs_text(tuple(own))} changes", tuple(own)))
        found |= {number: changed | found.get(number, changed) for number, changed in own.items()}
    chosen: dict[int, tuple[Node, torch.Tensor]] = {}
    for number, name in enumerate(returned_nodes(graph)):
        node = graph.by_name.get(name)
        if node is not None and node.is_member and node.args[1:] == (1,) and node.inputs[0] in elements:
            chosen[number] = choosing[node.inputs[0]], elements[node.inputs[0]].cpu()
    return LeftOpen(found, chosen, results, found.keys() - unwritten - chosen.keys())


def _choosing(names: Collection[str], choice: Choice) -> Adjustment:
    """The adjustment that replaces the index of each element that these nodes choose by that of an equal one."""
    return lambda node, args, result: other_choice(node, args, result, choice) if node.name in names else result


def _add(found: dict[int, torch.Tensor], changed: Mapping[int, torch.Tensor | None]) -> None:
    """Adds the elements that change, of the outputs of which they are known."""
    for number, elements in changed.items():
        if elements is not None:
            found[number] = elements | found.get(number, elements)


def _is_rounding(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """True for the elements that differ by no more than rounding in a whole model, beside all of the second."""
    import torch

    if not second.is_floating_point():
        return torch.zeros(second.numel(), dtype=torch.bool)
    limit = output_errors.rounding_in(str(second.dtype).removeprefix("torch."))
    a, b = first.reshape(-1).double(), second.reshape(-1).double()
    size = float(b[b.isfinite()].square().mean().sqrt().nan_to_num())
    return torch.isclose(a, b, rtol=limit, atol=limit * size)


def _is_left_open(open_: LeftOpen, index: int, actual: Path, eager: Path) -> bool:
    first, second = recorded_tensor(actual), recorded_tensor(eager)
    return first is not None and second is not None and open_.has(index, first, second)


def _is_suspicious(
    error: output_errors.OutputError, actual: Mapping[int, Path], eager: Mapping[int, Path], coarsest: str
) -> bool:
    first, second = (recorded_tensor(files[error.index]) for files in (actual, eager))
    if first is None or second is None or first.shape != second.shape:
        return False
    return is_suspicious(first, second, coarsest)


def _wrong_outputs(
    suspicious: set[int],
    wrong: set[int],
    actual: Mapping[int, Path],
    eager: Mapping[int, Path],
    double: Mapping[int, Path],
    coarsest: Mapping[int, str],
) -> dict[int, WrongOutput]:
    """The outputs with elements that rounding does not explain; of one that is wrong as a whole, all of them."""
    import torch

    found: dict[int, WrongOutput] = {}
    for index in sorted(suspicious & double.keys()):
        tensors = [recorded_tensor(files[index]) for files in (actual, eager, double)]
        if any(tensor is None or tensor.shape != tensors[0].shape for tensor in tensors):  # type: ignore[union-attr]
            continue
        returned, expected, exact = tensors
        assert returned is not None
        assert expected is not None
        assert exact is not None
        elements = deviating(returned, expected, exact, coarsest[index])
        if index in wrong:
            elements = torch.ones(returned.numel(), dtype=torch.bool)
        if bool(elements.any()):
            found[index] = WrongOutput(returned, elements)
    return found


def undecided(
    source: ExportedSource, outputs: Mapping[int, WrongOutput], double: Mapping[int, Path]
) -> dict[int, WrongOutput]:
    """The outputs with the elements that rounding does not decide.

    Where another rounding makes another truth value of an element, or a number that is about as far off, float64 proves
    nothing: the graph of the kernels sums in another order in float64, too. If most elements are decided so, all
    are, unless NaN or infinities are in other places.

    Raises:
        NotEvaluableError: the program cannot be called.
    """
    import torch

    if source.is_random or not outputs:
        return dict(outputs)
    returned = list(_with_other_rounding(source))
    found: dict[int, WrongOutput] = {}
    for index, output in outputs.items():
        exact = recorded_tensor(double[index])
        assert exact is not None
        off = _distances(output.actual, exact)
        decided = torch.zeros(off.numel(), dtype=torch.bool)
        for leaves in returned:
            other = saved_outputs.as_tensor(leaves[index])
            if other is not None and other.shape == exact.shape:
                decided |= _distances(other.cpu(), exact) * _DECIDED >= off
        differing = output.elements & (off > 0)
        decided &= differing
        open_ = differing & ~decided
        is_misplaced = bool((open_ & off.isinf()).any())  # numbers that rounding moves say nothing about NaN
        if int(decided.sum()) < _MAX_DIFFERENT * int(differing.sum()) or not bool(differing.any()) or is_misplaced:
            found[index] = replace(output, elements=output.elements & ~decided)
    return found


def _with_other_rounding(source: ExportedSource) -> Iterator[Sequence[Any]]:
    """Yields what the program returns in float64 when every operator rounds otherwise."""
    for seed in _NOISE_SEEDS:
        program = source.program(Arithmetic.DOUBLE, RoundingNoise(seed, _NOISE_UNITS))
        returned: Sequence[Any] = ()
        for _ in range(source.run.calls):
            returned = program.call()
        yield returned


def _distances(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """The absolute difference of each element, in row-major order; inf where only one of them is finite."""
    import torch

    wide = torch.complex128 if second.is_complex() else torch.float64
    a, b = (tensor.reshape(-1).to(wide) for tensor in (first, second))
    same = (a == b) | (a.isnan() & b.isnan())
    return torch.where(same, 0.0, (a - b).abs().nan_to_num(math.inf))


def _unexplained(
    source: ExportedSource,
    wrong: Mapping[int, output_errors.OutputError],
    double: Mapping[int, Path],
    kept: Set[int],
) -> Iterator[FaultyOutput | OutputNoise | StatesFailure]:
    """Yields how far outputs move when operators round otherwise.

    An output that moves little, and is far off while the graph is right, is faulty. One whose numbers are not finite
    otherwise may be right: float64 overflows nowhere.

    Args:
        kept: the outputs that the graph of the kernels was seen to give in float64.
    """
    if not wrong:
        return
    moved = dict.fromkeys(wrong, 0.0)
    try:
        for returned in _with_other_rounding(source):
            for index in wrong:
                moved[index] = max(moved[index], _distance(returned[index], double[index]))
    except NotEvaluableError as failure:
        yield StatesFailure(f"whether rounding explains how far outputs are off is not known: {failure}")
        return
    for index, error in wrong.items():
        yield OutputNoise(index, min(moved[index], LARGEST))
        if not error.misplaced and output_errors.far_off(error) > max(
            _GROSS, output_errors.NOISE_MULTIPLE * moved[index]
        ):
            graph = "; the graph of the kernels gives what that does in float64" if index in kept else ""
            far = "is far from what the exported program returns, by more than other rounding makes of it"
            yield FaultyOutput(index, f"{far}{graph}")


def _distance(returned: Any, exact: Path) -> float:
    """The relative difference of an output from its value without noise; inf where they cannot be compared."""
    import torch

    value, expected = saved_outputs.as_tensor(returned), recorded_tensor(exact)
    if value is None or expected is None or value.shape != expected.shape:
        return math.inf
    is_alike = torch.equal(value.cpu().isfinite(), expected.isfinite())
    return relative_difference(value.cpu(), expected) if is_alike else math.inf
