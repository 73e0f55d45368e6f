"""States of a model after a call: which differences are judged, and by what."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from aoti_debug.compare.measure.state_change import (
    is_small,
    judged_by_double,
    judged_by_noise,
    judged_by_nothing,
    state_change,
)
from aoti_debug.compare.protocol.measurement import Advance, StateChange

BEFORE, RIGHT = torch.zeros(4), torch.tensor([0.5, 1.0, -1.0, 2.0])


def changed(after: Tensor, before: Tensor = BEFORE, expected: Tensor = RIGHT) -> StateChange:
    return state_change("cache", 0, "0.1", before, after, expected)


@pytest.mark.parametrize(
    ("after", "advance", "small"),
    [
        (RIGHT, Advance.RIGHT, True),
        (RIGHT * (1 + 1e-6), Advance.RIGHT, True),
        (RIGHT * 1.03, Advance.OTHERWISE, True),
        (RIGHT * -1, Advance.OTHERWISE, False),
        (RIGHT * 2, Advance.TWICE, False),
        (BEFORE, Advance.NOT_AT_ALL, False),
        (torch.tensor([0.5, 1.0, -1.0, torch.nan]), Advance.OTHERWISE, False),
    ],
)
def test_differences_beside_the_change(after: Tensor, advance: Advance, small: bool) -> None:
    found = changed(after)
    assert (found.advance, is_small(found)) == (advance, small)


def test_one_integer_of_many() -> None:
    before, expected = torch.zeros(2, dtype=torch.int64), torch.tensor([5000, 3])
    found = changed(torch.tensor([5001, 3]), before, expected)
    assert (found.advance, is_small(found)) == (Advance.OTHERWISE, True)
    assert changed(expected, before, expected).advance is Advance.RIGHT


def test_a_small_difference_that_float64_does_not_have_is_wrong() -> None:
    after = RIGHT * 1.03
    found = judged_by_double(changed(after), after, RIGHT, RIGHT.double())
    assert found.advance is Advance.OTHERWISE
    assert judged_by_noise(found, after, RIGHT.double(), [RIGHT.double() + 1e-7]).advance is Advance.OTHERWISE
    assert judged_by_noise(found, after, RIGHT.double(), [RIGHT.double() * 1.02]).advance is Advance.RIGHT


def test_a_small_difference_that_eager_has_as_well_is_rounding() -> None:
    after, eager = RIGHT * 1.03, RIGHT * 0.99
    assert judged_by_double(changed(after, expected=eager), after, eager, RIGHT.double()).advance is Advance.RIGHT


def test_what_float64_does_not_know() -> None:
    small, large = changed(RIGHT * 1.03), changed(RIGHT * -1)
    known = judged_by_nothing(small, RIGHT)
    assert known is not None
    assert known.advance is Advance.RIGHT
    assert judged_by_nothing(large, RIGHT) is None
    assert judged_by_nothing(large, torch.ones(4, dtype=torch.int32)) == large
