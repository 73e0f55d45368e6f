"""The verdict on a launch, from the measured differences alone.

In order; the first rule that holds decides, and a launch gets the worst verdict of its outputs:

    wrong               an element differs by more than rounding allows there (aoti_debug.compare.measure.measure)
    ok                  equal to eager, or its mean error is below 4 ULP of its mean value (root mean square)
    better than eager   its mean error is less than half of eager's
    ill-conditioned     a change of its inputs by one ULP changes it by more than 64 ULP of its mean value
    rounding            the rest: rounding explains it

A launch none of whose outputs could be compared is `not comparable`. Where there is no program, a launch is compared
with the source of its own kernel: `matches its source` or `differs from its source`. A wrong lowering cannot be seen
there.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from aoti_debug.compare.measure.output_errors import is_exact
from aoti_debug.compare.protocol.measurement import Measurement

CLOSE = 4.0
CONDITION = 64.0
BETTER = 0.5
MULTIPLE = 8.0  # of the launch's own error: what eager's rounding makes worse


class LaunchVerdict(str, Enum):
    """The verdict on a launch, those against a program from the best to the worst."""

    OK = "ok"
    BETTER = "better than eager"
    ROUNDING = "rounding"
    ILL_CONDITIONED = "ill-conditioned"
    WRONG = "wrong"
    MATCHES_SOURCE = "matches its source"
    DIFFERS_FROM_SOURCE = "differs from its source"
    NOT_COMPARABLE = "not comparable"


_ORDER = tuple(LaunchVerdict)


def verdict_on(outputs: Sequence[Measurement]) -> LaunchVerdict:
    """The verdict on a launch."""
    if not outputs:
        return LaunchVerdict.NOT_COMPARABLE
    return max(map(verdict_on_output, outputs), key=_ORDER.index)


def verdict_on_output(output: Measurement) -> LaunchVerdict:
    """The verdict on one output."""
    if output.wrong:
        return LaunchVerdict.WRONG
    if output.equals_eager or output.relative_ulp < CLOSE:
        return LaunchVerdict.OK
    if output.rms < BETTER * output.eager_rms:
        return LaunchVerdict.BETTER
    if output.sensitivity > CONDITION:
        return LaunchVerdict.ILL_CONDITIONED
    return LaunchVerdict.ROUNDING


def is_rounded_otherwise(output: Measurement) -> bool:
    """True if eager rounds an output worse than the launch, or decides otherwise by what it has rounded."""
    if output.equals_eager:
        return False
    return is_exact(output.dtype) or output.eager_rms > MULTIPLE * output.rms


def worst_output(outputs: Sequence[Measurement]) -> Measurement | None:
    """The output that the verdict on a launch is about; None if it has none."""
    return max(outputs, key=lambda o: (_ORDER.index(verdict_on_output(o)), o.excess), default=None)
