"""The explanation of a difference: rounding, or not; from the errors of both sides against the program in float64."""

from __future__ import annotations

from enum import Enum

from aoti_debug.base.lazy.dataclass import dataclass


class DiffCause(str, Enum):
    """The reason why a launch wrote different results than its counterpart."""

    ROUNDING = "rounding"  # from the same inputs, both sides are within what rounding explains
    TIES = "ties"  # integers or booleans that rounding, or the order of equal elements, decides
    ILL_CONDITIONED = "ill-conditioned"  # both are within it, because a change of the inputs by one ULP changes a lot
    CONSEQUENCE = "consequence"  # they read what differs, and each is within what rounding explains from that
    WRONG = "wrong"  # a side is farther from float64 than rounding explains
    UNKNOWN = "not known"


@dataclass(frozen=True)
class SideError:
    """The error of what one side wrote, against the program in float64 from what that side itself had read.

    Attributes:
        relative: root mean square, divided by that of the expected values.
        absolute: the largest.
        share: the largest, as a multiple of what rounding explains there.
    """

    relative: float
    absolute: float
    share: float


@dataclass(frozen=True)
class DiffExplanation:
    """The explanation of what a launch wrote.

    Attributes:
        wrong: the sides that are wrong, of "a" and "b".
        reason: of a wrong side, where; why it is not known; what else there is to say.
    """

    cause: DiffCause
    wrong: tuple[str, ...] = ()
    reason: str = ""

    @property
    def is_explained(self) -> bool:
        """True if no more than rounding is needed for the difference, or differences that were there before."""
        return self.cause not in (DiffCause.WRONG, DiffCause.UNKNOWN)
