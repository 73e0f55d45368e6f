"""Compares what a run returned with what its launches wrote for it, bit for bit. Runs in a child process.

This shows what the generated code around the launches does wrong: another tensor or another view that is returned, or
memory that is overwritten before that. It needs no arithmetic, so that random numbers do not matter.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aoti_debug.base.errors import RunDirError
from aoti_debug.compare.evaluate.arithmetic import Arithmetic
from aoti_debug.compare.evaluate.evaluation import Evaluation
from aoti_debug.compare.evaluate.functions import TORCH_RAISES, NotEvaluableError, first_line
from aoti_debug.compare.protocol.measurement import FaultyOutput, StatesFailure
from aoti_debug.compare.protocol.request import ExportedRun, ProgramOutput
from aoti_debug.compare.worker.layouts import load_value
from aoti_debug.compare.worker.recorded_tensor import has_equal_bits
from aoti_debug.package.inputs.symbolic_sizes import Symbols
from aoti_debug.package.recording.values import extent_elements
from aoti_debug.package.reference.program import MODEL, RESHAPE, Graph, Node, Reference, ValueKey, returned_nodes
from aoti_debug.runs.run import saved_outputs
from aoti_debug.runs.rundir import load_tensors

if TYPE_CHECKING:
    import torch

_BY_ADDRESS = "aten.as_strided.default"


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
