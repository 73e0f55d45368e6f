"""Compares what needs no arithmetic, bit for bit: weights that a run began with, what it left and returned. In a child.

Every other comparison begins with the weights of the run: one that the package holds wrongly shows in none of them.
An output that is not what launches wrote for it shows what the generated code around them does wrong: another tensor or
another view that is returned, or memory that is overwritten before that. Random numbers do not matter to either.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aoti_debug.base.errors import RunDirError
from aoti_debug.compare.evaluate.arguments import ExportedWeights, has_type
from aoti_debug.compare.evaluate.arithmetic import Arithmetic
from aoti_debug.compare.evaluate.evaluation import Evaluation
from aoti_debug.compare.evaluate.functions import TORCH_RAISES, NotEvaluableError, first_line
from aoti_debug.compare.measure.state_change import begin_difference, lost_change
from aoti_debug.compare.protocol.measurement import FaultyOutput, StateChange, StatesFailure
from aoti_debug.compare.protocol.request import ExportedRun, ProgramOutput, RecordedWeight
from aoti_debug.compare.worker.recorded_tensors import as_integers, has_equal_bits, load_value, recorded_tensor
from aoti_debug.package.argument_values import extent_elements
from aoti_debug.package.inputs.symbolic_sizes import Symbols
from aoti_debug.package.program_graphs import MODEL, RESHAPE, Graph, Node, NodeKind, Reference, ValueKey, returned_nodes
from aoti_debug.runs.run import saved_outputs
from aoti_debug.runs.rundir import load_tensors

if TYPE_CHECKING:
    import torch

_PART = 1 << 20  # elements
_MAX_BYTES = 8  # of an element that is sorted: complex128 has no integer of its size
_MAX_SORTED = 1 << 22  # elements of a weight that is passed in an order of its own; larger ones are not compared
_BY_ADDRESS = "aten.as_strided.default"


def other_weights(
    graph: Graph, recorded: Sequence[RecordedWeight], weights: ExportedWeights
) -> Iterator[StateChange | StatesFailure]:
    """Yields the weights that have other elements than in the exported program, and those that cannot be compared.

    Args:
        graph: that of the exported program.
    """
    nodes: Mapping[str, str] = {node.target: node.name for node in graph.nodes if node.kind is NodeKind.WEIGHT}
    for weight in (weight for weight in recorded if weight.name in nodes):
        try:
            change = _difference(weight, graph.by_name[nodes[weight.name]], weights)
        except TORCH_RAISES as error:
            reason = first_line(error)
            yield StatesFailure(f"whether {weight.name} is what the program begins with is not known: {reason}")
        else:
            yield from () if change is None else (change,)


def lost_changes(
    before: Mapping[str | int, torch.Tensor], after: Mapping[str | int, torch.Tensor]
) -> Iterator[StateChange]:
    """Yields the changes that the program made in its first call to what the run never overwrites."""
    for key, value in before.items():
        if has_equal_bits(value, after[key]):
            continue
        change = lost_change(f"input {key}" if isinstance(key, int) else key, value, after[key])
        if change is not None:
            yield change


def _difference(weight: RecordedWeight, node: Node, weights: ExportedWeights) -> StateChange | None:
    """The difference of a weight from the program's; None if there is none, or one of them is not known."""
    right, actual = weights.value(node), recorded_tensor(weight.path)
    if right is None or actual is None or actual.dtype != right.dtype or actual.numel() != right.numel():
        return None
    (type_,) = node.types
    if weight.is_view or type_ is None or not has_type(actual, type_):
        return None if _has_same_elements(actual, right) else begin_difference(weight.name, None, right)
    return None if _equal(actual, right) else begin_difference(weight.name, actual, right)


def _equal(first: torch.Tensor, second: torch.Tensor) -> bool:
    """True if two tensors of one type have the same bits, or the same numbers and NaN in the same places."""
    import torch

    if has_equal_bits(first, second):
        return True
    if first.dtype.itemsize == 1 or not (first.is_floating_point() or first.is_complex()):
        return False
    numbers = [torch.view_as_real(tensor) if tensor.is_complex() else tensor for tensor in (first, second)]
    return all(
        bool(((a == b) | ((a != a) & (b != b))).all())
        for a, b in zip(*(tensor.reshape(-1).split(_PART) for tensor in numbers), strict=True)
    )


def _has_same_elements(first: torch.Tensor, second: torch.Tensor) -> bool:
    """True if two tensors have the same elements in memory, or in any order: that of a view may be another one."""
    import torch

    if first.dtype.itemsize > _MAX_BYTES:
        return True
    flat = [as_integers(_in_memory(tensor)) for tensor in (first, second)]
    if bool(torch.equal(*flat)):
        return True
    return first.numel() > _MAX_SORTED or bool(torch.equal(flat[0].sort().values, flat[1].sort().values))


def _in_memory(tensor: torch.Tensor) -> torch.Tensor:
    """The elements in the order of their addresses."""
    order = sorted(range(tensor.dim()), key=lambda dim: (-tensor.stride(dim), dim))
    return tensor.permute(order).contiguous().view(-1)


def misreturned(reference: Reference, run: ExportedRun) -> Iterator[FaultyOutput | StatesFailure]:
    """Yields the outputs that are not what launches of the last call wrote for them, and those that cannot be compared.

    Where it is not known what was written for an output, nothing is said.
    """
    graph = reference.graph("", MODEL)
    if graph is None or run.last is None or not run.returned:
        return
    held = {output.recorded.value: output for output in run.written}
    returned = saved_outputs.saved(Path(run.returned))
    for index, name in enumerate(returned_nodes(graph)):
        if index not in returned or not name:
            continue
        views, key = _views(graph, name, held)
        if key is None:
            continue
        output = held[key]
        try:
            is_written = _is_written(reference, graph, returned[index], output, views, Symbols(known=run.last.symbols))
        except (NotEvaluableError, RunDirError):
            continue
        except TORCH_RAISES as error:
            yield StatesFailure(f"whether output {index} is what launches wrote is not known: {first_line(error)}")
            continue
        if not is_written:
            recorded = output.recorded.recorded
            yield FaultyOutput(index, f"is not what launch {output.launch} wrote for it, {name} in {recorded.argument}")


def _is_written(
    reference: Reference, graph: Graph, returned: Path, output: ProgramOutput, views: list[Node], symbols: Symbols
) -> bool:
    """True if a launch wrote what was returned; also for another kind of tensor: that is found elsewhere.

    Raises:
        NotEvaluableError: it is not known what the launch wrote.
        RunDirError: a file is missing or damaged.
    """
    actual = load_tensors.map_file(returned).cpu()
    wanted = _value(reference, graph, output, views, symbols)
    is_comparable = wanted.dtype == actual.dtype and wanted.numel() == actual.numel()
    return not is_comparable or has_equal_bits(wanted, actual)


def _views(graph: Graph, name: str, held: Mapping[ValueKey, ProgramOutput]) -> tuple[list[Node], ValueKey | None]:
    """The views between a value that a launch wrote and a returned node, and that value; None if there is none."""
    views: list[Node] = []
    node = graph.by_name[name]
    while True:
        key = graph.value_for(node.name, graph.nodes[-1].name)
        may_be_copied = any(view.target == RESHAPE for view in views)
        if key in held and not (key.after and may_be_copied):  # a copy is not overwritten
            return views[::-1], key
        base = graph.viewed(node)
        if key.after or base is None:
            return [], None
        views.append(node)
        node = base


def _value(
    reference: Reference, graph: Graph, output: ProgramOutput, views: list[Node], symbols: Symbols
) -> torch.Tensor:
    """What a launch wrote, seen through views.

    Raises:
        NotEvaluableError: a part of it was not recorded, or a view needs what is not known.
    """
    import torch

    key = output.recorded.value
    evaluation = Evaluation(reference, graph, Arithmetic.EAGER, "cpu")
    evaluation.values[key] = load_value(graph, output.recorded, symbols, "cpu")
    for node in views:
        for name in node.inputs[1:]:
            size = symbols.value(graph.by_name[name].size) if graph.by_name[name].size else None
            if size is not None:
                evaluation.values[ValueKey(name)] = size
        if node.target == _BY_ADDRESS:
            base = graph.by_name[node.inputs[0]]
            _require_layout(base, evaluation.value(key if node is views[0] else ValueKey(base.name)), symbols)
        evaluation.run(node)
    value = evaluation.value(ValueKey(views[-1].name) if views else key)
    if not isinstance(value, torch.Tensor):
        raise NotEvaluableError(f"{key} is no tensor")
    return value.resolve_conj().resolve_neg()


def _require_layout(node: Node, value: Any, symbols: Symbols) -> None:
    """Checks that a tensor lies in memory as in the program, dense and from the beginning.

    Raises:
        NotEvaluableError: it does not.
    """
    import torch

    type_ = node.types[0] if len(node.types) == 1 else None
    strides = () if type_ is None else tuple(symbols.value(stride) for stride in type_.strides)
    is_dense = isinstance(value, torch.Tensor) and extent_elements(value.shape, value.stride()) == value.numel()
    if not is_dense or value.storage_offset() or value.stride() != strides:
        raise NotEvaluableError(f"{node.name} lies otherwise in memory than in the program")
