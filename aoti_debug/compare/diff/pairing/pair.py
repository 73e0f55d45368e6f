"""A launch of the second run with its counterpart in the first, tensor by tensor."""

from __future__ import annotations

from enum import Enum

from aoti_debug.base.lazy.dataclass import dataclass
from aoti_debug.compare.diff.pairing.recorded_tensor import RecordedTensor
from aoti_debug.runs.rundir.timeline import Launch


class PairedBy(str, Enum):
    """The way in which launches of two runs are paired."""

    LAUNCH = "launch"  # the same kernels with the same arguments, in the same order
    VALUE = "value"  # the values of the program that they write


class PairRelation(str, Enum):
    """The relation of a launch to its counterpart."""

    SAME = "same"  # it wrote the same bytes
    PARTS = "parts"  # it read the same inputs, and wrote different results
    CONSEQUENCE = "consequence"  # it read different inputs, and wrote different results
    INPUTS_UNKNOWN = "inputs unknown"  # it wrote different results, and not all that it read was recorded
    NOT_RECORDED = "not recorded"  # not all that it wrote was recorded or has a counterpart


@dataclass(frozen=True)
class TensorPair:
    """A tensor of each run, which should be equal.

    Attributes:
        a, b: of the first and the second run.
    """

    a: RecordedTensor
    b: RecordedTensor

    @property
    def equal(self) -> bool | None:
        """True if the bytes are equal; None if it is not known.

        Two views of one value in other shapes may have their elements in another order: only equal bytes say something.
        """
        first, second = self.a.hash, self.b.hash
        layouts = self.a.argument.layout, self.b.argument.layout
        if first is None or second is None or layouts[0] is None or layouts[1] is None:
            return None
        if (layouts[0].dtype, layouts[0].numel) != (layouts[1].dtype, layouts[1].numel):
            return False
        return True if first == second else None if layouts[0].shape != layouts[1].shape else False


@dataclass(frozen=True)
class LaunchPair:
    """A launch of the second run, and what it is compared with.

    Attributes:
        counterparts: the launches of the first run that wrote the same values; several where kernels are fused in
            another way.
        reads, writes: its tensors with their counterparts.
        unpaired_reads, unpaired_writes: names of its tensors that have none.
        numbers: names of numbers that were passed to it and differ.
    """

    launch: Launch
    counterparts: tuple[Launch, ...]
    reads: tuple[TensorPair, ...]
    writes: tuple[TensorPair, ...]
    unpaired_reads: tuple[str, ...] = ()
    unpaired_writes: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()

    @property
    def outcome(self) -> PairRelation:
        """The relation of the launch to its counterpart."""
        written = [pair.equal for pair in self.writes]
        if False not in written:
            is_known = written and None not in written and not self.unpaired_writes
            return PairRelation.SAME if is_known else PairRelation.NOT_RECORDED
        read = [pair.equal for pair in self.reads]
        if False in read:
            return PairRelation.CONSEQUENCE
        return PairRelation.INPUTS_UNKNOWN if None in read or self.unpaired_reads else PairRelation.PARTS


@dataclass(frozen=True)
class Pairing:
    """The launches of two runs, paired.

    Attributes:
        pairs: in the order of the second run.
        only_a, only_b: launches without a counterpart.
    """

    by: PairedBy
    pairs: tuple[LaunchPair, ...]
    only_a: tuple[Launch, ...]
    only_b: tuple[Launch, ...]
