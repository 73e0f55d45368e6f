"""Compares what a run returned with what its launches wrote for it, bit for bit. Runs in a child process.

This shows what the generated code around the launches does wrong: another tensor or another view that is returned, or
memory that is overwritten before that. It needs no arithmetic, so that random numbers do not matter.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from aoti_debug.compare.evaluate.arithmetic import Arithmetic
from aoti_debug.compare.evaluate.evaluation import Evaluation
from aoti_debug.compare.evaluate.functions import NotEvaluableError
from aoti_debug.compare.protocol.measurement import FaultyOutput
from aoti_debug.compare.protocol.request import ExportedRun, ProgramOutput
from aoti_debug.compare.worker.layouts import load_value
from aoti_debug.errors import RunDirError
from aoti_debug.inputs.symbolic_sizes import Symbols
from aoti_debug.reference.program import MODEL, Graph, Node, Reference, ValueKey, is_view, returned_nodes
from aoti_debug.run import saved_outputs
from aoti_debug.rundir import load_tensors

if TYPE_CHECKING:
    import torch


def misreturned(reference: Reference, run: ExportedRun) -> Iterator[FaultyOutput]:
    """Yields the outputs that are not what launches of the last call wrote for them."""
    graph = reference.graph("", MODEL)
    if graph is None or run.last is None or not run.returned:
        return
    symbols = Symbols(known=run.last.symbols)
    held = {output.recorded.value: output for output in run.written}
    returned = saved_outputs.saved(Path(run.returned))
    for index, name in enumerate(returned_nodes(graph)):
        if index not in returned or not name:
            continue
        chain, key = _views(graph, name, held)
        if key is None:
            continue
        output = held[key]
        try:
            actual = load_tensors.map_file(returned[index]).cpu()
            wanted = _value(reference, graph, output, chain, symbols)
        except (NotEvaluableError, RunDirError):
            continue
        is_comparable = wanted.dtype == actual.dtype and wanted.numel() == actual.numel()
        if is_comparable and (wanted.shape != actual.shape or not _equal(wanted, actual)):
            recorded = output.recorded.recorded
            yield FaultyOutput(index, f"is not what launch {output.launch} wrote for it, {name} in {recorded.argument}")


def _views(graph: Graph, name: str, held: Mapping[ValueKey, ProgramOutput]) -> tuple[list[Node], ValueKey | None]:
    """The views between a value that a launch wrote and a returned node, and that value; None if there is none."""
    chain: list[Node] = []
    node = graph.by_name[name]
    while True:
        key = graph.value_for(node.name, graph.nodes[-1].name)
        if key in held:
            return chain[::-1], key
        if key.after or not is_view(node):
            return [], None
        chain.append(node)
        node = graph.by_name[node.inputs[0]]


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
        evaluation.run(node)
    value = evaluation.value(ValueKey(views[-1].name) if views else key)
    if not isinstance(value, torch.Tensor):
        raise NotEvaluableError(f"{key} is no tensor")
    return value.resolve_conj().resolve_neg()


def _equal(first: torch.Tensor, second: torch.Tensor) -> bool:
    import torch

    bits = [tensor.contiguous().reshape(-1).view(torch.uint8) for tensor in (first, second)]
    return bool((bits[0] == bits[1]).all())
