"""Whether outputs heal."""

from __future__ import annotations

import math

import pytest

from aoti_debug.compare.measure.output_errors import OutputError
from aoti_debug.compare.replay.healed_outputs import Healing, Outputs


def of(*relative: float) -> tuple[OutputError, ...]:
    return tuple(OutputError(i, "float32", 8, int(value != 0), value) for i, value in enumerate(relative))


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ((0.1, 1e-7), (1e-7, 1e-7), Healing.HEALED),
        ((math.inf,), (0.0,), Healing.HEALED),
        ((2e-5,), (1e-7,), Healing.RIGHT_BEFORE),
        ((1e-7,), (1e-7,), Healing.RIGHT_BEFORE),
        ((0.0,), (0.0,), Healing.RIGHT_BEFORE),
        ((1.0,), (0.01,), Healing.NEARER),
        ((0.1,), (0.09,), Healing.UNCHANGED),
        ((1e-7,), (0.1,), Healing.BROKEN),
    ],
)
def test_healing(before: tuple[float, ...], after: tuple[float, ...], expected: Healing) -> None:
    assert Outputs(of(*before), of(*after)).healing is expected
