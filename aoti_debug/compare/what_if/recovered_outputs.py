"""The outputs of a model against what they should be, before and after results of launches were replaced."""

from __future__ import annotations

from enum import Enum

from aoti_debug.base.lazy.dataclass import dataclass
from aoti_debug.compare.measure.output_errors import OutputError

_FACTOR = 8.0  # an error that is smaller by this factor is clearly smaller


class Recovery(str, Enum):
    """The change of the outputs when results are replaced."""

    RECOVERED = "match again"  # they were wrong, and are right
    NEARER = "come nearer"  # by a clear factor, but not all of them are right
    UNCHANGED = "still do not match"
    RIGHT_BEFORE = "were right before"
    BROKEN = "become wrong"


@dataclass(frozen=True)
class Outputs:
    """The errors of the outputs, of the baseline and with results replaced; the same outputs in both."""

    before: tuple[OutputError, ...]
    after: tuple[OutputError, ...]

    @property
    def recovery(self) -> Recovery:
        """The change of the outputs."""
        was_right = all(error.is_right for error in self.before)
        if all(error.is_right for error in self.after):
            return Recovery.RIGHT_BEFORE if was_right else Recovery.RECOVERED
        if was_right:
            return Recovery.BROKEN
        is_nearer = _largest(self.after) * _FACTOR <= _largest(self.before)
        return Recovery.NEARER if is_nearer else Recovery.UNCHANGED


def _largest(errors: tuple[OutputError, ...]) -> float:
    return max((error.relative for error in errors), default=0.0)
