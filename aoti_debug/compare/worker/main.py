"""The process that evaluates regions: `python -m aoti_debug.compare.worker.main SOCKET DEVICE`.

SOCKET is the descriptor of a connected socket: the process reads a line from it, the path of a CompareRequest
(protocol/request.py), and writes its messages to it (protocol/messages.py). Until it is asked, it prepares DEVICE.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

from aoti_debug.base.errors import RunDirError, TargetError
from aoti_debug.base.machine import torch_settings, user_code
from aoti_debug.base.machine.exhaustion import advice, refusal, system_text
from aoti_debug.base.machine.files import json_data
from aoti_debug.base.machine.processes.messages import ErrorData
from aoti_debug.compare.evaluate.arguments import ExportedWeights
from aoti_debug.compare.evaluate.arithmetic import Arithmetic
from aoti_debug.compare.evaluate.evaluation import Evaluation
from aoti_debug.compare.evaluate.functions import FRESH, NotEvaluableError
from aoti_debug.compare.explain.bad_operand_search import BadOperandSearch
from aoti_debug.compare.explain.element_trace import ElementTrace
from aoti_debug.compare.measure.metric import metric_of
from aoti_debug.compare.protocol.measurement import PeakMemory
from aoti_debug.compare.protocol.messages import (
    BadOperand,
    EvaluationFailed,
    Origin,
    Started,
    TracedElement,
    message_line,
)
from aoti_debug.compare.protocol.request import CompareRequest, KnownValue, Region
from aoti_debug.compare.worker.exported_program import inputs_of
from aoti_debug.compare.worker.exported_results import exported_results
from aoti_debug.compare.worker.lowered_program import evaluate_program
from aoti_debug.compare.worker.recorded_tensors import as_written, load, load_value
from aoti_debug.compare.worker.region import RegionEvaluator
from aoti_debug.compare.worker.region_values import evaluated, save_region
from aoti_debug.package import program_graphs
from aoti_debug.package.inputs.symbolic_sizes import Symbols
from aoti_debug.package.program_graphs import Graph, Reference, ValueKey
from aoti_debug.package.pt2 import archive
from aoti_debug.runs.rundir.formats import stored_tensor

_LARGE = 1 << 20  # bytes of a tensor's file
_KEPT = 128 << 20  # bytes
_LARGEST = 32 << 20  # bytes of a tensor; glibc accepts no more


class OperatorLocator:
    """Locates operators of the regions of one reference."""

    def __init__(self, reference: Reference, device: str) -> None:
        self._reference = reference
        self._device = device

    def origin(self, region: Region, traced: TracedElement) -> Origin | None:
        """The operator that made an element of an output non-finite; None if no evaluation makes it so."""
        graph = self._reference.graph(region.graph, region.function)
        output = next((item for item in region.outputs if item.recorded.argument == traced.argument), None)
        if graph is None or output is None:
            return None
        with contextlib.suppress(NotEvaluableError, RunDirError):
            return self._trace(graph, region, output, traced)
        return None

    def bad_operand(self, region: Region) -> BadOperand | None:
        """The first element of an operand in a region that an operator cannot use; None if none can be seen."""
        import torch

        graph = self._reference.graph(region.graph, region.function)
        if graph is None:
            return None
        symbols = Symbols(known=region.symbols)
        known = self._loaded(graph, region.inputs, symbols)
        upstream = self._loaded(graph, region.upstream, symbols)
        with torch.no_grad():
            search = BadOperandSearch(self._reference, graph, known, symbols, self._device, upstream)
            bad = search.first(region.launch, region.nodes)
        if bad is None or bad.source is None:
            return bad
        items = {str(item.value): item.recorded for item in (*region.upstream, *region.inputs)}
        recorded = items[bad.source.node]
        return replace(bad, source=replace(bad.source, recorded=(recorded.launch, recorded.argument)))

    def _loaded(self, graph: Graph, items: Iterable[KnownValue], symbols: Symbols) -> dict[ValueKey, Any]:
        """The values of which the whole was recorded."""
        loaded: dict[ValueKey, Any] = {}
        for item in items:
            with contextlib.suppress(NotEvaluableError, RunDirError):
                loaded[item.value] = load_value(graph, item, symbols, self._device)
        return loaded

    def _trace(self, graph: Graph, region: Region, output: KnownValue, traced: TracedElement) -> Origin | None:
        import torch

        if any(graph.by_name[name].target in FRESH for name in region.nodes):
            raise NotEvaluableError("it has memory that is not written, whose numbers were others in the run")
        symbols = Symbols(known=region.symbols)
        known = {item.value: load_value(graph, item, symbols, self._device) for item in region.inputs}
        actual = load(graph, output, self._device)
        if actual.is_complex():
            return None
        number = actual.reshape(-1)[traced.element].double()
        with torch.no_grad():
            for arithmetic in Arithmetic:
                evaluation = Evaluation(self._reference, graph, arithmetic, self._device)
                evaluated(evaluation, graph, region, symbols, known)
                value = evaluation.value(output.value)
                numbered = torch.arange(value.numel(), device=value.device).reshape(value.shape)
                element = int(as_written(numbered, actual, output, symbols).reshape(-1)[traced.element])
                same = torch.isclose(value.reshape(-1)[element].double(), number, equal_nan=True)
                if not same or bool(number.isfinite()):
                    continue
                made = ElementTrace(self._reference, graph, evaluation, self._device).origin(output.value, element)
                return None if made is None else Origin(traced, *made)
        return None


@contextlib.contextmanager
def threads_for(values: Iterable[KnownValue]) -> Iterator[None]:
    """Inside the `with`, torch computes in one thread unless one of the recorded tensors is large."""
    import torch

    usual = torch.get_num_threads()
    recorded = (tensor for value in values for tensor in (value.recorded, *value.parts))
    is_large = any(_size(tensor.path) >= _LARGE for tensor in recorded)
    torch.set_num_threads(usual if is_large else 1)
    try:
        yield
    finally:
        torch.set_num_threads(usual)


def _size(path: str) -> int:
    """The size of a saved tensor in bytes; 0 if it is missing: reading it says so."""
    with contextlib.suppress(OSError, RunDirError):
        return stored_tensor.bytes_of(Path(path))
    return 0


_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of <malloc.h>


def keep_freed_memory() -> None:
    """Has malloc keep what is freed; does nothing with another libc than glibc."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "gnu_get_libc_version"):
        libc.mallopt(_MMAP_THRESHOLD, _LARGEST)
        libc.mallopt(_TRIM_THRESHOLD, _KEPT)


def main() -> int:
    """Evaluates the regions of the request; 1 if that raised an exception, else 0."""
    descriptor, device = int(sys.argv[1]), sys.argv[2]
    with os.fdopen(descriptor, "w", buffering=1) as messages, open(descriptor, closefd=False) as requests:
        messages.write(message_line(Started()) + "\n")
        keep_freed_memory()
        try:
            _prepare(device)
            path = requests.readline().rstrip("\n")
            if path:
                request = json_data.parse(CompareRequest, Path(path).read_bytes())
                _compare(request, Path(path).parent, messages)
        except Exception as error:  # noqa: BLE001 - every exception is reported to the parent
            messages.write(message_line(EvaluationFailed(_described(error))) + "\n")
            return 1
    return 0


def _described(error: Exception) -> ErrorData:
    """The exception that ended the evaluation; what the system refused is an error of its own, with what helps."""
    described, refused = ErrorData.from_exception(error), refusal(error)
    if described.ours or described.lacks or refused is None:
        return described
    said = f"the process that evaluates the program failed: {system_text(refused)}"
    return ErrorData.from_exception(TargetError(said, hint=advice(refused)))


def _prepare(device: str) -> None:
    """Has torch and the device load what most evaluations need; where the device fails, the evaluation will say so."""
    import torch

    if device != "cuda" or not torch.cuda.is_available():
        return
    with contextlib.suppress(RuntimeError):
        for dtype in (torch.float32, torch.float64):
            square = torch.ones(8, 8, device=device, dtype=dtype)
            torch.addmm(square, square, square)
        torch.cuda.synchronize()


def _compare(request: CompareRequest, folder: Path, pipe: TextIO) -> None:
    import torch

    user_code.load(request.imports, request.libraries)
    if request.torch_settings is not None:
        torch_settings.apply(request.torch_settings)
    package = archive.inspect(request.package)
    is_alone = program_graphs.MEMBER not in package.members
    reference = program_graphs.from_json(
        package.read(program_graphs.EXPORTED_MEMBER if is_alone else program_graphs.MEMBER)
    )
    device = request.device if request.device != "cuda" or torch.cuda.is_available() else "cpu"
    weights = ExportedWeights(Path(request.exported) if request.exported else None, lambda: _given_inputs(request))
    locator = OperatorLocator(reference, device)
    evaluator = RegionEvaluator(reference, device, metric_of(request.metric), folder, weights)
    traced = {element.launch: element for element in request.traced}
    wanted = {values.launch: values.arithmetic for values in request.wanted}
    for region in request.regions:
        with threads_for((*region.inputs, *region.outputs)):
            if region.launch in request.faulty:
                if (bad := locator.bad_operand(region)) is not None:
                    pipe.write(message_line(bad) + "\n")
            elif region.launch in wanted:
                for message in save_region(reference, region, wanted[region.launch], device, weights, folder):
                    pipe.write(message_line(message) + "\n")
            elif region.launch not in traced:
                pipe.write(message_line(evaluator.measure(region)) + "\n")
            elif (origin := locator.origin(region, traced[region.launch])) is not None:
                pipe.write(message_line(origin) + "\n")
    for run in request.programs:
        with threads_for((*run.inputs, *(output.recorded for output in run.outputs))):
            kept = folder if request.outputs else None
            for difference in evaluate_program(reference, run, device, weights, kept):
                pipe.write(message_line(difference) + "\n")
    if request.exported_run is not None:
        last = request.exported_run.last
        with threads_for(() if last is None else last.inputs):
            for result in exported_results(request, package, reference, device, weights, folder):
                pipe.write(message_line(result) + "\n")
    pipe.write(message_line(PeakMemory(1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)) + "\n")


def _given_inputs(request: CompareRequest) -> Sequence[Any]:
    """The leaves of the inputs of the run's calls; () if they are not known."""
    from torch.utils import _pytree as pytree

    if request.exported_run is None:
        return ()
    given = inputs_of(request, archive.inspect(request.package))
    return () if given is None else pytree.tree_leaves((given.args, dict(given.kwargs)))


if __name__ == "__main__":
    sys.exit(main())
