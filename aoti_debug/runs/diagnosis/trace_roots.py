"""Traces a non-finite value back through the launches to where it came from (its root)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from enum import Enum
from functools import cached_property

from aoti_debug.base.abi import CallKind, Phase
from aoti_debug.base.frozen import dataclass
from aoti_debug.package.argument_values import Tensor
from aoti_debug.package.manifest import Manifest, Role
from aoti_debug.runs.diagnosis.dataflow import Dataflow, Writer
from aoti_debug.runs.diagnosis.special_values import (
    Measure,
    Occurrence,
    Special,
    SpecialValues,
    count,
    intended_signs,
    statistics_of,
)
from aoti_debug.runs.kernel_source import result_slices
from aoti_debug.runs.rundir.launch import Argument, Launch


class RootKind(str, Enum):
    """The way in which a non-finite value came into the run."""

    PRODUCED = "produced"  # by a launch whose operands have none
    INTENDED = "intended_signs"  # an infinity in the launch's code or call
    EXTERNAL = "external"  # it came in with a model input or a weight
    UNEXPLAINED = "unexplained"  # no recorded launch wrote it


@dataclass(frozen=True)
class Root:
    """The origin of a non-finite value.

    Attributes:
        occurrence: what the launch produced; for EXTERNAL and UNEXPLAINED, the argument that holds it, at the first
            launch that reads it.
        input: the model input or weight of EXTERNAL; "" for the other kinds.
        path: from the root's occurrence to where the search began, both included.
    """

    kind: RootKind
    occurrence: Occurrence
    input: str
    path: tuple[Occurrence, ...]


class ResultOperands:
    """Finds the arguments of a launch that the values of a result are computed from."""

    def __init__(self, manifest: Manifest, dataflow: Dataflow, measure: Measure = statistics_of) -> None:
        """`measure`: the statistics of an argument; by default those that level 2 recorded."""
        self._manifest = manifest
        self._dataflow = dataflow
        self._measure = measure
        self._allocated = {allocation.name for allocation in manifest.allocations}

    def operands(self, launch: Launch, result: Argument) -> tuple[Argument, ...]:
        """The operands of a result according to the kernel's source; for an operator, all that it reads."""
        result_slice = result_slices.launch_slices(launch, self._manifest).get(result.spec.param)
        operands: dict[str, Argument] = {}
        for argument in launch.args:
            if argument.name in operands or self._measure(argument, Phase.BEFORE) is None:
                continue
            if self._is_operand(launch, argument, result, None if result_slice is None else result_slice.sources):
                operands[argument.name] = argument
        return tuple(operands.values())

    def unmeasured(self, launch: Launch, result: Argument) -> tuple[Argument, ...]:
        """The tensors that a result is computed from, and that have no statistics, as one that oneDNN has packed."""
        result_slice = result_slices.launch_slices(launch, self._manifest).get(result.spec.param)
        sources = None if result_slice is None else result_slice.sources
        found = (a for a in launch.args if a.role is Role.IN and self._measure(a, Phase.BEFORE) is None)
        return tuple({a.name: a for a in found if self._is_operand(launch, a, result, sources)}.values())

    def _is_operand(self, launch: Launch, argument: Argument, result: Argument, sources: frozenset[str] | None) -> bool:
        if sources is not None and argument.spec.param in sources:
            return True
        if argument.role is Role.IN:
            return sources is None
        if argument.role is Role.OUT:
            return False
        return (sources is None or argument.name == result.name) and self._was_initialised(launch, argument)

    def _was_initialised(self, launch: Launch, argument: Argument) -> bool:
        """True if a buffer that the launch writes to had content of its own before.

        What the previous owner of its memory wrote there does not count.
        """
        writer = self._dataflow.writer(launch, argument)
        if writer.launch is None or writer.argument is None:
            return bool(writer.input)
        own, written = argument.spec, writer.argument.spec
        if {own.base, own.name} & {written.base, written.name} - {""}:
            return True
        return bool(self._allocated) and (own.base or own.name) not in self._allocated


class RootSearch:
    """Finds the roots of non-finite values in one run."""

    def __init__(self, flow: Dataflow, measure: Measure = statistics_of) -> None:
        """`measure`: the statistics of an argument; by default those that level 2 recorded."""
        run = flow.run
        self._run = run
        self._dataflow = flow
        self._measure = measure
        self._operands = ResultOperands(run.manifest, flow, measure)

    def order(self, root: Root) -> tuple[int, bool]:
        """The position of a root among others: that of its launch in the run, what was produced there last."""
        return self._run.launches.position(root.occurrence.launch.key) or 0, root.kind is RootKind.PRODUCED

    @cached_property
    def values(self) -> SpecialValues:
        """The non-finite values of the run."""
        return SpecialValues(self._run.launches.notable())

    @property
    def dataflow(self) -> Dataflow:
        """The dataflow of the run."""
        return self._dataflow

    def operands_with(self, launch: Launch, result: Argument, special: Special) -> tuple[Argument, ...]:
        """The operands of a result that hold such values before the launch."""
        if not any(count(self._measure(a, Phase.BEFORE), special) for a in launch.args):
            return ()
        return tuple(a for a in self.operands(launch, result) if count(self._measure(a, Phase.BEFORE), special))

    def operands(self, launch: Launch, result: Argument) -> tuple[Argument, ...]:
        """The arguments that a result is computed from."""
        return self._operands.operands(launch, result)

    def unmeasured(self, launch: Launch, result: Argument) -> tuple[Argument, ...]:
        """The tensors that a result is computed from, and whose values are not known."""
        return self._operands.unmeasured(launch, result)

    def is_produced(self, occurrence: Occurrence) -> bool:
        """True if a launch produced the value, unintended, from operands that have none."""
        return [kind for kind, _, _ in self._previous(occurrence)] == [RootKind.PRODUCED]

    def trace(self, occurrences: Iterable[Occurrence]) -> list[Root]:
        """The roots of the occurrences, the earliest first."""
        roots: list[Root] = []
        waiting = deque({occurrence.key: occurrence for occurrence in occurrences}.values())
        following: dict[object, Occurrence | None] = {occurrence.key: None for occurrence in waiting}
        while waiting:
            occurrence = waiting.popleft()
            for kind, name, earlier in self._previous(occurrence):
                if kind is None:
                    if earlier.key not in following:
                        following[earlier.key] = occurrence
                        waiting.append(earlier)
                    continue
                path = [] if earlier.key == occurrence.key else [earlier]
                step: Occurrence | None = occurrence
                while step is not None:
                    path.append(step)
                    step = following[step.key]
                roots.append(Root(kind, earlier, name, tuple(path)))
        return sorted(roots, key=self.order)

    def trace_argument(self, launch: Launch, argument: Argument, special: Special) -> list[Root]:
        """The roots of the non-finite values that an argument holds before a launch."""
        kind, name, occurrence = self._origin(launch, argument, special)
        return self.trace([occurrence]) if kind is None else [Root(kind, occurrence, name, (occurrence,))]

    @staticmethod
    def unintended(roots: Sequence[Root]) -> list[Root]:
        """The roots of an infinity that nobody may have meant: those that came in; launches if none is intended."""
        external = [root for root in roots if root.kind is RootKind.EXTERNAL]
        if any(root.kind is RootKind.INTENDED for root in roots):
            return external
        return [*external, *(root for root in roots if root.kind is RootKind.PRODUCED)]

    def is_filled(self, root: Root) -> bool:
        """True for an infinity that came in and looks intended: in a mask, or in a tensor that holds nothing else."""
        if root.kind is not RootKind.EXTERNAL:
            return False
        statistics = self._measure(root.occurrence.argument, Phase.BEFORE)
        if statistics is None or count(statistics, Special.NAN):
            return False
        plus, minus = count(statistics, Special.PLUS_INF), count(statistics, Special.MINUS_INF)
        is_mask = bool(minus) and not plus and (statistics.max is None or statistics.max <= 0)
        return is_mask or (plus == statistics.numel > 1)

    def _previous(self, occurrence: Occurrence) -> list[tuple[RootKind | None, str, Occurrence]]:
        """The earlier occurrences that one comes from, or its root: as `_origin` returns them."""
        launch, argument, special = occurrence.launch, occurrence.argument, occurrence.special
        if special.sign and special.sign in intended_signs(launch, argument, self._run.manifest):
            return [(RootKind.INTENDED, "", occurrence)]
        sources = [(special, a) for a in self.operands_with(launch, argument, special)]
        if not sources and special.sign:
            other = Special.MINUS_INF if special is Special.PLUS_INF else Special.PLUS_INF
            sources = [(other, a) for a in self.operands_with(launch, argument, other)]
        return [self._origin(launch, a, s) for s, a in sources] or [(RootKind.PRODUCED, "", occurrence)]

    def _origin(self, launch: Launch, argument: Argument, special: Special) -> tuple[RootKind | None, str, Occurrence]:
        """(None, "", the earlier occurrence), or (kind, model input, occurrence) of a root."""
        writer = self._writer(launch, argument)
        if writer.launch is None or writer.argument is None:
            kind = RootKind.EXTERNAL if writer.input else RootKind.UNEXPLAINED
            return kind, writer.input, Occurrence(launch, argument, special)
        if writer.argument.written and count(self._measure(writer.argument, Phase.AFTER), special):
            return None, "", Occurrence(writer.launch, writer.argument, special)
        return RootKind.UNEXPLAINED, "", Occurrence(launch, argument, special)

    def _writer(self, launch: Launch, argument: Argument) -> Writer:
        writer = self._dataflow.writer(launch, argument)
        names = {argument.name, argument.spec.base}
        if writer.launch is not None or writer.input:
            return writer
        if any(c.folded and c.name in names for c in self._run.manifest.constants):
            return self._folding_writer(argument) or writer
        return writer

    def _folding_writer(self, argument: Argument) -> Writer | None:
        """The launch that computed a weight from others when the package was loaded (constant folding)."""
        for launch in reversed(self._run.launches):
            if launch.key.kind is not CallKind.CONSTANT:
                continue
            for result in launch.args:
                if result.written and _address(result) and _address(result) == _address(argument):
                    return Writer(launch, result, "")
        return None


def _address(argument: Argument) -> int:
    return argument.tensor.data_ptr if isinstance(argument.tensor, Tensor) else 0
