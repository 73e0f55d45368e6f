"""What level 2 saw of NaN and infinities in what a launch read and in what it left."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from aoti_debug.abi import Phase
from aoti_debug.diagnosis.dataflow import Dataflow
from aoti_debug.manifest import Manifest, Role
from aoti_debug.rundir.statistics import Statistics
from aoti_debug.rundir.timeline import Argument, Launch
from aoti_debug.triage.kernel_source import slices


class Special(str, Enum):
    NAN = "NaN"
    PLUS = "+Inf"
    MINUS = "-Inf"

    @property
    def sign(self) -> int:
        return {Special.NAN: 0, Special.PLUS: 1, Special.MINUS: -1}[self]


INFINITE = (Special.PLUS, Special.MINUS)


@dataclass(frozen=True)
class Spot:
    """Something that is not finite, in what a launch left in an argument."""

    launch: Launch
    argument: Argument
    special: Special

    @property
    def key(self) -> tuple[object, str, Special]:
        return self.launch.key, self.argument.name, self.special


def count(statistics: Statistics | None, special: Special) -> int:
    if statistics is None:
        return 0
    match special:
        case Special.NAN:
            return statistics.n_nan
        case Special.PLUS:
            return statistics.n_pos_inf
        case Special.MINUS:
            return statistics.n_neg_inf


def seen(argument: Argument, phase: Phase) -> Statistics | None:
    """None where nothing was recorded, or where the memory was not set yet."""
    recorded = argument.stats.get(phase)
    return None if recorded is None or recorded.uninitialised else recorded.statistics


def left(argument: Argument) -> Statistics | None:
    """What a launch left in an argument that it may have written."""
    return seen(argument, Phase.AFTER) if argument.written else None


class Reads:
    """Which arguments of a launch the values of a result come from."""

    def __init__(self, manifest: Manifest, dataflow: Dataflow) -> None:
        self._manifest = manifest
        self._dataflow = dataflow
        self._allocated = {allocation.name for allocation in manifest.allocations}

    def feeding(self, launch: Launch, result: Argument) -> tuple[Argument, ...]:
        """As the kernel's source has it; for an operator, all that it reads."""
        made = slices.of_launch(launch, self._manifest).get(result.spec.param)
        found: dict[str, Argument] = {}
        for argument in launch.args:
            if seen(argument, Phase.BEFORE) is None or argument.name in found:
                continue
            if self._reads(launch, argument, result, None if made is None else made.sources):
                found[argument.name] = argument
        return tuple(found.values())

    def _reads(self, launch: Launch, argument: Argument, result: Argument, sources: frozenset[str] | None) -> bool:
        if sources is not None and argument.spec.param in sources:
            return True
        if argument.role is Role.IN:
            return sources is None
        if argument.role is Role.OUT:
            return False
        return (sources is None or argument.name == result.name) and self._was_set(launch, argument)

    def _was_set(self, launch: Launch, argument: Argument) -> bool:
        """Whether somebody had put something into a buffer that the launch writes to: what its memory's last owner had
        left there does not count."""
        writer = self._dataflow.writer(launch, argument)
        if writer.launch is None or writer.argument is None:
            return bool(writer.input)
        own, other = argument.spec, writer.argument.spec
        if {own.base, own.name} & {other.base, other.name} - {""}:
            return True
        return bool(self._allocated) and (own.base or own.name) not in self._allocated
