"""Saves what the program gives: the values that a launch should have written, and what a call returns. In a child."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from aoti_debug.base.errors import RunDirError
from aoti_debug.compare.evaluate.arithmetic import Arithmetic
from aoti_debug.compare.evaluate.evaluation import Evaluation
from aoti_debug.compare.evaluate.functions import NotEvaluableError, failure_text
from aoti_debug.compare.evaluate.weights import ExportedWeights
from aoti_debug.compare.protocol.measurement import RegionResult, SavedOutput, SavedValue
from aoti_debug.compare.protocol.request import ProgramRun, Region, ValueArithmetic
from aoti_debug.compare.worker.recorded_tensors import as_written, load
from aoti_debug.compare.worker.region_values import evaluated, region_inputs
from aoti_debug.package.inputs.symbolic_sizes import Symbols
from aoti_debug.package.reference.program import Graph, NodeKind, Reference
from aoti_debug.runs.run.saved_outputs import write_tensor
from aoti_debug.runs.rundir.formats.tensor_file_format import escape

_ARITHMETICS = {ValueArithmetic.EAGER: Arithmetic.EAGER, ValueArithmetic.DOUBLE: Arithmetic.DOUBLE}
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
