"""Back from something that is not finite to where it came into being."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from aoti_debug.abi import CallKind, Phase
from aoti_debug.diagnosis.dataflow import Dataflow, Writer
from aoti_debug.rundir.timeline import Argument, Launch
from aoti_debug.triage.nonfinite.infinities import intended
from aoti_debug.triage.nonfinite.observed import Reads, Special, Spot, count, left, seen
from aoti_debug.values import Tensor


class RootKind(str, Enum):
    MADE = "made"  # by a launch whose inputs have none
    MEANT = "meant"  # an infinity that the launch's code or call says
    OUTSIDE = "outside"  # it came in with a model input or a weight
    APPEARED = "appeared"  # no recorded launch put it there


@dataclass(frozen=True)
class Root:
    """
    Attributes:
        spot: what the launch made; for OUTSIDE and APPEARED, the argument that was found to hold it, at the first
            launch that read it.
        input: the model input or weight of OUTSIDE.
        path: from the root's spot to where the search began, both included.
    """

    kind: RootKind
    spot: Spot
    input: str
    path: tuple[Spot, ...]


class Roots:
    def __init__(self, flow: Dataflow) -> None:
        run = flow.run
        self._run = run
        self._dataflow = flow
        self._reads = Reads(run.manifest, flow)
        self._order = {launch.key: order for order, launch in enumerate(run.launches)}

    @property
    def dataflow(self) -> Dataflow:
        return self._dataflow

    def feeding(self, launch: Launch, result: Argument, special: Special) -> tuple[Argument, ...]:
        """What a result is made of and holds such values before the launch."""
        if not any(count(seen(a, Phase.BEFORE), special) for a in launch.args):
            return ()
        return tuple(a for a in self._reads.feeding(launch, result) if count(seen(a, Phase.BEFORE), special))

    def inputs(self, launch: Launch, result: Argument) -> tuple[Argument, ...]:
        return self._reads.feeding(launch, result)

    def is_made(self, spot: Spot) -> bool:
        """Whether a launch made it of inputs that have none, and nobody meant it."""
        return [kind for kind, _, _ in self._step(spot)] == [RootKind.MADE]

    def of(self, spots: Iterable[Spot]) -> list[Root]:
        """The roots of some spots, the earliest first."""
        found: list[Root] = []
        waiting = deque({spot.key: spot for spot in spots}.values())
        after: dict[object, Spot | None] = {spot.key: None for spot in waiting}
        while waiting:
            spot = waiting.popleft()
            for kind, name, earlier in self._step(spot):
                if kind is None:
                    if earlier.key not in after:
                        after[earlier.key] = spot
                        waiting.append(earlier)
                    continue
                path = [] if earlier.key == spot.key else [earlier]
                step: Spot | None = spot
                while step is not None:
                    path.append(step)
                    step = after[step.key]
                found.append(Root(kind, earlier, name, tuple(path)))
        return sorted(found, key=lambda root: (self._order[root.spot.launch.key], root.kind is RootKind.MADE))

    def of_read(self, launch: Launch, argument: Argument, special: Special) -> list[Root]:
        """The roots of what an argument holds before a launch."""
        kind, name, spot = self._origin(launch, argument, special)
        return self.of([spot]) if kind is None else [Root(kind, spot, name, (spot,))]

    def _step(self, spot: Spot) -> list[tuple[RootKind | None, str, Spot]]:
        launch, argument, special = spot.launch, spot.argument, spot.special
        if special.sign and special.sign in intended(launch, argument, self._run.manifest):
            return [(RootKind.MEANT, "", spot)]
        bearers = [(special, a) for a in self.feeding(launch, argument, special)]
        if not bearers and special.sign:
            other = Special.MINUS if special is Special.PLUS else Special.PLUS
            bearers = [(other, a) for a in self.feeding(launch, argument, other)]
        return [self._origin(launch, a, s) for s, a in bearers] or [(RootKind.MADE, "", spot)]

    def _origin(self, launch: Launch, argument: Argument, special: Special) -> tuple[RootKind | None, str, Spot]:
        """(None, "", the earlier spot), or the kind of a root."""
        writer = self._writer(launch, argument)
        if writer.launch is None or writer.argument is None:
            kind = RootKind.OUTSIDE if writer.input else RootKind.APPEARED
            return kind, writer.input, Spot(launch, argument, special)
        if count(left(writer.argument), special):
            return None, "", Spot(writer.launch, writer.argument, special)
        return RootKind.APPEARED, "", Spot(launch, argument, special)

    def _writer(self, launch: Launch, argument: Argument) -> Writer:
        writer = self._dataflow.writer(launch, argument)
        names = {argument.name, argument.spec.base}
        if writer.launch is not None or writer.input:
            return writer
        if any(c.folded and c.name in names for c in self._run.manifest.constants):
            return self._folded(argument) or writer
        return writer

    def _folded(self, argument: Argument) -> Writer | None:
        """Who made a weight that is computed from others when the package is loaded."""
        for launch in reversed(self._run.launches):
            if launch.key.kind is not CallKind.CONSTANT:
                continue
            for made in launch.args:
                if made.written and _address(made) and _address(made) == _address(argument):
                    return Writer(launch, made, "")
        return None


def _address(argument: Argument) -> int:
    return argument.tensor.data_ptr if isinstance(argument.tensor, Tensor) else 0
