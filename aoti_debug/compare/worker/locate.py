"""Locates the operator of a region behind a non-finite element, or behind a fault. Runs in a child process."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from aoti_debug.base.errors import RunDirError
from aoti_debug.compare.evaluate.arithmetic import Arithmetic
from aoti_debug.compare.evaluate.evaluation import Evaluation
from aoti_debug.compare.evaluate.functions import NotEvaluableError
from aoti_debug.compare.explain.bad_operand_search import BadOperandSearch
from aoti_debug.compare.explain.element_trace import ElementTrace
from aoti_debug.compare.protocol.bad_elements import BadOperand, Origin, TracedElement
from aoti_debug.compare.protocol.request import KnownValue, Region
from aoti_debug.compare.worker.recorded_tensors import as_written, load, load_value
from aoti_debug.compare.worker.region_values import evaluated
from aoti_debug.package.inputs.symbolic_sizes import Symbols
from aoti_debug.package.reference.program import Graph, Reference, ValueKey


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

        symbols = Symbols(known=region.symbols)
        known = {item.value: load_value(graph, item, symbols, self._device) for item in region.inputs}
        actual = load(graph, output, self._device)
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
