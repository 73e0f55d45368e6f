"""Traces a non-finite value back through the launches to where it came from (its root)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from enum import Enum
from functools import cached_property

from aoti_debug.base.abi import CallKind, Phase
from aoti_debug.base.frozen import dataclass
from aoti_debug.package.recording.values import Tensor
from aoti_debug.runs.diagnosis.dataflow import Dataflow, Writer
from aoti_debug.runs.rundir.timeline import Argument, Launch
from aoti_debug.triage.nonfinite.infinities import intended_signs
from aoti_debug.triage.nonfinite.observed_values import (
    Occurrence,
    ResultOperands,
    Special,
    SpecialValues,
    count,
    statistics_after,
    statistics_of,
)


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


class RootSearch:
    """Finds the roots of non-finite values in one run."""

    def __init__(self, flow: Dataflow) -> None:
        run = flow.run
        self._run = run
        self._dataflow = flow
        self._operands = ResultOperands(run.manifest, flow)

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
        if not any(count(statistics_of(a, Phase.BEFORE), special) for a in launch.args):
            return ()
        return tuple(a for a in self.operands(launch, result) if count(statistics_of(a, Phase.BEFORE), special))

    def operands(self, launch: Launch, result: Argument) -> tuple[Argument, ...]:
        """The arguments that a result is computed from."""
        return self._operands.operands(launch, result)

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
        if count(statistics_after(writer.argument), special):
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
