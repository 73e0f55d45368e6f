"""Evaluates one region from the recorded tensors that it begins with, and measures its outputs. Runs in a child."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aoti_debug.base import wording
from aoti_debug.base.errors import RunDirError
from aoti_debug.base.frozen import dataclass
from aoti_debug.compare.evaluate import arithmetic as tensor_float
from aoti_debug.compare.evaluate.arguments import ExportedWeights
from aoti_debug.compare.evaluate.arithmetic import Arithmetic
from aoti_debug.compare.evaluate.evaluation import Adjustment, Evaluation
from aoti_debug.compare.evaluate.functions import NotEvaluableError, failure_text
from aoti_debug.compare.measure.choices import equal_choices, may_choose, range_of_choices, selected_from
from aoti_debug.compare.measure.evaluated import Evaluated, Subject
from aoti_debug.compare.measure.measure import measure
from aoti_debug.compare.measure.metric import Metric
from aoti_debug.compare.measure.ulp import misplaced, relative_difference
from aoti_debug.compare.measure.verdicts import is_rounded_otherwise
from aoti_debug.compare.protocol import messages
from aoti_debug.compare.protocol.measurement import NOT_REPEATABLE, Explanation, Measurement, RegionResult
from aoti_debug.compare.protocol.request import KnownValue, Region
from aoti_debug.compare.worker import region_values
from aoti_debug.compare.worker.error_bounds import BoundedEvaluation, followed
from aoti_debug.compare.worker.explanations import Blamed, Rounding, WrittenValue, decisive_rounding, explanations_of
from aoti_debug.compare.worker.recorded_tensors import as_written, load
from aoti_debug.package.inputs.symbolic_sizes import Symbols
from aoti_debug.package.program_graphs import Graph, Reference, ValueKey

if TYPE_CHECKING:
    import torch

_UNITS = (1.0,) * 3  # how far the inputs are moved, in one evaluation each
_SENSITIVE_FROM = 8.0  # relative ULP: from here on it is worth knowing how sensitive an output is
_HALF = ("float16", "bfloat16")
_NOWHERE = Rounding("", 0.0)
_ROUNDINGS = 4  # regions in which the rounding that makes a difference is looked for
_EAGER_AND_DOUBLE = (Arithmetic.EAGER, Arithmetic.DOUBLE)
_REPEATED = 1e-3  # relative difference of two evaluations in eager of what is repeatable
_SPREADS = 16  # outputs whose distribution of errors is kept


@dataclass(frozen=True, kw_only=True)
class _Evaluations:
    """The evaluations of a region: in eager's arithmetic, in those that kernels may use, and in float64.

    Attributes:
        known: the recorded values that the region reads.
        evaluate: evaluates it in another way.
    """

    graph: Graph
    symbols: Symbols
    known: dict[ValueKey, Any]
    evaluate: Callable[..., Evaluation]
    eager: Evaluation
    kernels: Sequence[Evaluation]
    double: Evaluation


class RegionEvaluator:
    """Evaluates the regions of one graph, each in several arithmetics.

    Args:
        kept: the folder for the values of the first region with a wrong output; None to keep none.
        weights: those that launches were not passed.
    """

    def __init__(
        self,
        reference: Reference,
        device: str,
        metric: Metric | None = None,
        kept: Path | None = None,
        weights: ExportedWeights | None = None,
    ) -> None:
        self._reference = reference
        self._device = device
        self._metric = metric
        self._kept = kept
        self._weights = weights
        self._spreads = _SPREADS
        self._nonfinite = True  # of no region was looked for where it begins to be not finite otherwise than in eager
        self._roundings = _ROUNDINGS

    def measure(self, region: Region) -> RegionResult:
        """Evaluates a region and measures its outputs; what prevents it is in the result."""
        began = time.monotonic()
        try:
            outputs, notes, explanations, begins = self._measure(region)
        except (NotEvaluableError, RunDirError) as error:
            return RegionResult(launch=region.launch, failure=str(error), seconds=time.monotonic() - began)
        except (RuntimeError, MemoryError) as error:  # no memory for a copy in float64, a device that is lost
            return RegionResult(launch=region.launch, failure=failure_text(error), seconds=time.monotonic() - began)
        seconds = time.monotonic() - began
        return RegionResult(
            launch=region.launch,
            outputs=outputs,
            failure="",
            notes=notes,
            seconds=seconds,
            explanations=explanations,
            begins=begins.node,
            share=begins.share,
        )

    def _measure(
        self, region: Region
    ) -> tuple[tuple[Measurement, ...], tuple[str, ...], tuple[Explanation, ...], Rounding]:
        import torch

        graph = self._reference.graph(region.graph, region.function)
        if graph is None:
            raise NotEvaluableError("the reference lacks its graph")
        symbols = Symbols(known=region.symbols)
        with torch.no_grad():
            inputs = region_values.region_inputs(graph, region, symbols, self._device, self._weights)
            known = inputs.known
            read = frozenset(item.value.node for item in region.outputs)
            read |= frozenset(name for item in region.outputs for name in selected_from(graph, item.value.node))

            def evaluate(
                arithmetic: Arithmetic,
                values: dict[ValueKey, Any],
                stored: Set[str] = frozenset(),
                adjust: Adjustment | None = None,
                kept: Set[str] | None = read,
            ) -> Evaluation:
                evaluation = Evaluation(self._reference, graph, arithmetic, self._device, stored, adjust, self._weights)
                return region_values.evaluated(evaluation, graph, region, symbols, values, kept)

            double = evaluate(Arithmetic.DOUBLE, known)
            eager = evaluate(Arithmetic.EAGER, known)
            other = None if inputs.other is None else evaluate(Arithmetic.EAGER, inputs.other)
            kernels: tuple[Evaluation, ...] = (eager,)
            if _has_half(graph, region) or self._may_use_tensor_float(graph, region):
                outputs = frozenset(item.value.node for item in region.outputs)
                kernels = (evaluate(Arithmetic.KERNEL, known), evaluate(Arithmetic.KERNEL, known, outputs))
            bounds = _Bounds(self._reference, graph, region, self._device, self._weights, symbols, known)
            measured: list[Measurement] = []
            at = _Evaluations(
                graph=graph,
                symbols=symbols,
                known=known,
                evaluate=evaluate,
                eager=eager,
                kernels=kernels,
                double=double,
            )
            notes = [f"{name} computed in its own dtype: {why}" for name, why in double.fallbacks.items()]
            for item in region.outputs:
                try:
                    if other is not None:
                        self._require_recorded(item, symbols, graph, (eager, other), inputs.parts)
                    measured.append(self._output(item, at, bounds, region.nodes))
                except NotEvaluableError as error:
                    if len(region.outputs) == 1:
                        raise
                    notes.append(f"{item.recorded.argument} is not compared: {error}")
            if self._metric is not None:
                without = any(output.metric is None for output in measured)
                notes += ["--metric gives no finite number for one of its outputs"] if without else []
            begins = self._beginning(graph, region, symbols, measured, eager, double, known, evaluate)
            explanations: tuple[Explanation, ...] = ()
            if self._kept is not None and any(output.wrong for output in measured):
                self._keep(self._kept, graph, region, symbols, double)
                self._kept = None
                names = {output.argument for output in measured}
                compared = [item for item in region.outputs if item.recorded.argument in names]
                try:
                    right = evaluate(Arithmetic.KERNEL, known, kept=None)
                    written = [WrittenValue(item, load(graph, item, self._device), symbols) for item in compared]
                    wrong = {output.argument for output in measured if output.wrong}
                    explanations = explanations_of(
                        Blamed(graph, region.nodes, written, wrong),
                        right,
                        lambda: Evaluation(self._reference, graph, Arithmetic.KERNEL, self._device),
                    )
                except (NotEvaluableError, RuntimeError, MemoryError) as error:  # that it is wrong is known already
                    notes.append(f"no operator was tried for what is wrong: {wording.first_line(str(error))}")
        if not measured:
            raise NotEvaluableError(notes[-1])
        return tuple(measured), tuple(notes), explanations, begins

    def _beginning(
        self,
        graph: Graph,
        region: Region,
        symbols: Symbols,
        measured: Sequence[Measurement],
        eager: Evaluation,
        double: Evaluation,
        known: dict[ValueKey, Any],
        evaluate: Callable[..., Evaluation],
    ) -> Rounding:
        """The node in which outputs begin to be otherwise in eager; it is looked for in the first such regions."""
        if any(output.misplaced for output in measured):
            if not self._nonfinite:
                return _NOWHERE
            self._nonfinite = False
            node = region_values.first_nonfinite(
                graph, region, *(evaluate(a, known, kept=None) for a in _EAGER_AND_DOUBLE)
            )
            return Rounding(node, 0.0)
        differing = next((output.argument for output in measured if is_rounded_otherwise(output)), None)
        if differing is None or self._roundings == 0:
            return _NOWHERE
        self._roundings -= 1
        item = next(item for item in region.outputs if item.recorded.argument == differing)
        actual = load(graph, item, self._device)

        def written(evaluation: Evaluation) -> torch.Tensor:
            return as_written(evaluation.value(item.value), actual, item, symbols)

        def rounded(adjust: Adjustment) -> torch.Tensor:
            return written(evaluate(Arithmetic.DOUBLE, known, adjust=adjust))

        return decisive_rounding(graph, region, written(double), written(eager), rounded) or _NOWHERE

    def _require_recorded(
        self,
        item: KnownValue,
        symbols: Symbols,
        graph: Graph,
        evaluations: tuple[Evaluation, Evaluation],
        parts: Sequence[str],
    ) -> None:
        """Checks that an output does not depend on elements that were not recorded.

        Raises:
            NotEvaluableError: it does.
        """
        actual = load(graph, item, self._device)
        first, second = (as_written(e.value(item.value), actual, item, symbols) for e in evaluations)
        if not bool(((first == second) | ((first != first) & (second != second))).all()):
            raise NotEvaluableError(f"it depends on elements of {' and '.join(parts)} that were not recorded")

    def _may_use_tensor_float(self, graph: Graph, region: Region) -> bool:
        return any(tensor_float.may_use_tensor_float(graph.by_name[name].target, self._device) for name in region.nodes)

    def _keep(self, folder: Path, graph: Graph, region: Region, symbols: Symbols, double: Evaluation) -> None:
        for item in region.outputs:
            with contextlib.suppress(NotEvaluableError):
                value = as_written(double.value(item.value), load(graph, item, self._device), item, symbols)
                messages.save(folder, item.recorded.argument, value)

    def _output(self, item: KnownValue, at: _Evaluations, bounds: _Bounds, nodes: Sequence[str]) -> Measurement:
        import torch

        graph, symbols, known, evaluate, double = at.graph, at.symbols, at.known, at.evaluate, at.double
        actual = load(graph, item, self._device)

        def expected(evaluation: Evaluation) -> torch.Tensor:
            return as_written(evaluation.value(item.value), actual, item, symbols)

        node = graph.by_name[item.value.after or item.value.node]
        named = graph.by_name[node.inputs[0]] if node.is_member and node.inputs else node
        subject = Subject(item.recorded.argument, str(item.value), named.target)
        ties = equal_choices(graph, item.value.node, actual, at.eager, nodes)
        in_eager = expected(at.eager)
        output = Evaluated(
            actual=actual,
            eager=in_eager,
            kernel=in_eager
            if at.eager in at.kernels
            else _nearest([expected(kernel) for kernel in at.kernels], actual),
            double=expected(double),
            ties=ties,
            terms=double.terms,
            largest_sum=double.largest_sum,
        )
        if bounds.has(item.value) and _is_single(actual.dtype):
            output = replace(output, bound=torch.zeros_like(output.double))
        measured = measure(subject, output)
        if measured.wrong and output.bound is not None:
            output = replace(output, bound=bounds.of(item, actual))
            measured = measure(subject, output)
        if measured.wrong or measured.relative_ulp > _SENSITIVE_FROM:
            with region_values.fresh_memory_filled():
                again = expected(evaluate(Arithmetic.EAGER, known))
            if _is_other(again, in_eager) or measure(subject, replace(output, actual=again.to(actual.dtype))).wrong:
                raise NotEvaluableError(NOT_REPEATABLE)
        choices = None
        if measured.wrong and ties is None and any(map(may_choose, graph.nodes)):
            choices = range_of_choices(graph, expected, actual, known, evaluate)
            measured = measured if choices is None else measure(subject, choices.applied(output))
        if measured.wrong or measured.relative_ulp > _SENSITIVE_FROM:
            is_discrete = not (actual.dtype.is_floating_point or actual.dtype.is_complex)
            moved = []
            for seed, units in enumerate(_discrete_units(double.terms) if is_discrete else _UNITS):
                noise = torch.Generator().manual_seed(seed)
                inputs = region_values.perturbed(known, noise, units)
                moved.append(expected(evaluate(Arithmetic.DOUBLE, inputs, adjust=region_values.approximated(noise))))
            output = replace(output, perturbed=tuple(moved))
            measured = measure(subject, output if choices is None else choices.applied(output))
        if measured.spread is not None and self._spreads == 0:
            measured = replace(measured, spread=None)
        self._spreads -= measured.spread is not None
        if self._metric is not None:
            number = self._metric(actual, output.double)
            measured = replace(measured, metric=number if math.isfinite(number) else None)
        return measured


class _Bounds:
    """How far rounding may move what a region writes, where it is known; computed when it is asked for first."""

    def __init__(
        self,
        reference: Reference,
        graph: Graph,
        region: Region,
        device: str,
        weights: ExportedWeights | None,
        symbols: Symbols,
        known: dict[ValueKey, Any],
    ) -> None:
        self._evaluation = BoundedEvaluation(reference, graph, device, weights)
        self._graph, self._region, self._symbols, self._known = graph, region, symbols, known
        self._followed = followed(graph, region.nodes)
        self._is_evaluated = False

    def has(self, key: ValueKey) -> bool:
        """True if a value may have a bound."""
        return not key.after and key.node in self._followed

    def of(self, item: KnownValue, actual: torch.Tensor) -> torch.Tensor | None:
        """The bound of an output, in the layout that it is written in; None if it has none."""
        if not self._is_evaluated:
            read = frozenset(item.value.node for item in self._region.outputs)
            region_values.evaluated(self._evaluation, self._graph, self._region, self._symbols, self._known, read)
            self._is_evaluated = True
        try:
            return as_written(self._evaluation.error(item.value), actual, item, self._symbols)
        except NotEvaluableError:
            return None


def _is_other(again: torch.Tensor, before: torch.Tensor) -> bool:
    """True if two evaluations of one output in eager differ by more than sums in another order do."""
    return bool(misplaced(again, before)) or relative_difference(again, before) > _REPEATED


def _is_single(dtype: torch.dtype) -> bool:
    """True for real floating numbers that kernels compute in float32."""
    return str(dtype).removeprefix("torch.") in ("float32", *_HALF)


def _discrete_units(terms: int) -> tuple[float, ...]:
    """The sizes of the movements of the inputs, in units, one for each evaluation of integers and booleans.

    An evaluation only shows whether an element turns over, so there are many. Half of them move the inputs as far as
    rounding in a sum of so many terms may move a floating result.
    """
    return (1.0,) * 8 + (8 * (1 + math.sqrt(terms) / 4),) * 8


def _nearest(candidates: Sequence[torch.Tensor], actual: torch.Tensor) -> torch.Tensor:
    """Of each element, the candidate that is nearest to the actual one: a kernel may reload what it has stored."""
    import torch

    nearest, *others = candidates
    for other in others:
        wide = actual.to(nearest.dtype)
        equal = (other == wide) | (other.isnan() & wide.isnan())
        if other.dtype is torch.bool:
            nearest = torch.where(equal, other, nearest)
            continue
        nearest = torch.where(equal | ((other - wide).abs() < (nearest - wide).abs()), other, nearest)
    return nearest


def _has_half(graph: Graph, region: Region) -> bool:
    names = (*region.nodes, *(item.value.node for item in region.inputs))
    return any(t is not None and t.dtype in _HALF for name in names for t in graph.by_name[name].types)
