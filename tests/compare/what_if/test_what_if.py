"""Whether outputs match again."""

from __future__ import annotations

import math

import pytest

from aoti_debug.compare.measure.output_errors import OutputError
from aoti_debug.compare.what_if.what_if import Outputs, Recovery


def of(*relative: float) -> tuple[OutputError, ...]:
    return tuple(
        OutputError(index=i, dtype="float32", elements=8, different=int(value != 0), relative=value)
        for i, value in enumerate(relative)
    )


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ((0.1, 1e-7), (1e-7, 1e-7), Recovery.RECOVERED),
        ((math.inf,), (0.0,), Recovery.RECOVERED),
        ((2e-5,), (1e-7,), Recovery.RIGHT_BEFORE),
        ((1e-7,), (1e-7,), Recovery.RIGHT_BEFORE),
        ((0.0,), (0.0,), Recovery.RIGHT_BEFORE),
        ((1.0,), (0.01,), Recovery.NEARER),
        ((0.1,), (0.09,), Recovery.UNCHANGED),
        ((1e-7,), (0.1,), Recovery.BROKEN),
    ],
)
def test_recovery(before: tuple[float, ...], after: tuple[float, ...], expected: Recovery) -> None:
    assert Outputs(of(*before), of(*after)).recovery is expected
