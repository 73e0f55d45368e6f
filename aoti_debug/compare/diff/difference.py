"""The differences of two runs."""

from __future__ import annotations

from pathlib import Path

from aoti_debug.base.lazy.dataclass import dataclass
from aoti_debug.compare.diff.differing_settings import RunSetting
from aoti_debug.compare.diff.element_difference import ElementDifference
from aoti_debug.compare.diff.explanation import DiffExplanation, SideError
from aoti_debug.compare.diff.pairing.pair import LaunchPair, PairedBy, PairRelation, TensorPair
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.runs.rundir.timeline import Launch


@dataclass(frozen=True)
class TensorDifference:
    """A pair of tensors whose bytes differ.

    Attributes:
        elements: where and how much; None if it is not known.
        reason: why it is not; "" if it is.
        errors: of the first and of the second side, against the program in float64; None where it is not known.
    """

    pair: TensorPair
    elements: ElementDifference | None
    reason: str = ""
    errors: tuple[SideError | None, SideError | None] = (None, None)

    @property
    def nearer(self) -> str:
        """The side that is nearer to the program in float64, "a" or "b"; "" if neither is, or it is not known."""
        first, second = self.errors
        if first is None or second is None or first.relative == second.relative:
            return ""
        return "a" if first.relative < second.relative else "b"

    @property
    def name(self) -> str:
        """The name of the argument in the second run."""
        return self.pair.b.argument.name


@dataclass(frozen=True)
class InputDifference:
    """A model input or a weight that is not the same in both runs.

    Attributes:
        name: the user's name of it.
    """

    name: str
    tensor: TensorDifference


@dataclass(frozen=True)
class LaunchDifference:
    """A launch that wrote different results than its counterpart.

    Attributes:
        tensors: those that differ.
        notes: sentences that may explain it.
        explanation: whether rounding explains it; None if that was not looked at.
    """

    pair: LaunchPair
    outcome: PairRelation
    tensors: tuple[TensorDifference, ...]
    notes: tuple[str, ...] = ()
    explanation: DiffExplanation | None = None

    @property
    def launch(self) -> Launch:
        """The launch of the second run."""
        return self.pair.launch


@dataclass(frozen=True)
class WrongAlone:
    """A launch without a counterpart that is wrong, compared with the program.

    Attributes:
        side: "a" or "b".
        reason: where.
    """

    side: str
    launch: Launch
    reason: str


@dataclass(frozen=True)
class Diff:
    """The differences of two runs.

    Attributes:
        by: how their launches are paired.
        pairs: in the order of the second run.
        same, not_recorded: how many of them wrote the same bytes, or bytes that were not recorded.
        launches: those that wrote different results, in the order of the second run.
        only_a, only_b: launches that have no counterpart.
        unpaired_outputs: outputs of the model in the second run that have no counterpart.
        unfinished: sentences about runs that did not end well.
        notes: what else limits the comparison.
        wrong_alone: launches without a counterpart that are wrong.
        unexplained_reason: why it was not looked at whether rounding explains the differences; "" if it was, or if
            there are none.
        directory: that was made for the comparison; None if both runs were there.
    """

    a: RunDir
    b: RunDir
    by: PairedBy
    pairs: tuple[LaunchPair, ...]
    same: int
    not_recorded: int
    settings: tuple[RunSetting, ...]
    inputs: tuple[InputDifference, ...]
    launches: tuple[LaunchDifference, ...]
    only_a: tuple[Launch, ...]
    only_b: tuple[Launch, ...]
    unpaired_outputs: tuple[str, ...] = ()
    unfinished: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    wrong_alone: tuple[WrongAlone, ...] = ()
    unexplained_reason: str = ""
    directory: Path | None = None

    @property
    def paired(self) -> int:
        """The number of pairs."""
        return len(self.pairs)

    @property
    def parted(self) -> tuple[LaunchDifference, ...]:
        """The launches that read the same inputs, and wrote different results."""
        return tuple(item for item in self.launches if item.outcome is PairRelation.PARTS)

    @property
    def first(self) -> LaunchDifference | None:
        """The first launch that parts; without any, the first that differs."""
        return next(iter((*self.parted, *self.launches)), None)

    @property
    def is_explained(self) -> bool:
        """True if it was looked at whether rounding explains the differences."""
        return bool(self.launches) and all(item.explanation is not None for item in self.launches)

    @property
    def unexplained(self) -> tuple[LaunchDifference, ...]:
        """The launches that differ by more than rounding explains, or of which that is not known."""
        found = ((item, item.explanation) for item in self.launches)
        return tuple(item for item, explanation in found if explanation is not None and not explanation.is_explained)

    @property
    def is_rounding(self) -> bool | None:
        """True if nothing but rounding is needed for the differences; None if that was not looked at.

        Inputs that differ are not rounding.
        """
        if not self.is_explained:
            return None
        return not (self.unexplained or self.inputs or self.unfinished or self.wrong_alone)

    @property
    def is_same(self) -> bool:
        """True if nothing that was recorded differs, both runs ended well, and what had to be paired was.

        Of launches that are paired by value, only the outputs of the model need a counterpart.
        """
        if self.inputs or self.launches or self.unfinished or self.unpaired_outputs:
            return False
        return self.by is PairedBy.VALUE or not (self.only_a or self.only_b)
