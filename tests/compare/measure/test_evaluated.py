"""The distribution of errors: histogram, map, index ranges."""

from __future__ import annotations

import torch

from aoti_debug.compare.measure.evaluated import spread_of
from aoti_debug.compare.protocol.measurement import LARGEST_BIN, MAX_COLUMNS, MAX_ROWS, SMALLEST_BIN


def test_errors_are_counted_by_powers_of_two() -> None:
    ulp = torch.tensor([0.0, 0.1, 0.25, 0.3, 0.5, 1.0, 1.5, 2.0, 2.0**60])
    spread = spread_of((9,), torch.zeros(9), ulp)
    assert spread.ulp[:6] == (1, 2, 2, 1, 2, 0)
    assert len(spread.ulp) == LARGEST_BIN - SMALLEST_BIN + 2
    assert spread.ulp[-1] == 1
    assert sum(spread.ulp) == 9


def test_a_wrong_row_is_seen_in_the_map_and_the_ranges() -> None:
    excess = torch.zeros(2, 3, 4)
    excess[1, 2, 1:3] = torch.tensor([5.0, torch.inf])
    excess[0, 0, 0] = 0.5
    flat = excess.reshape(-1)
    spread = spread_of((2, 3, 4), flat, torch.zeros(24), flat.isinf())
    assert (spread.rows, spread.columns, spread.misplaced) == (3, 4, 1)
    assert tuple(spread.map) == (0.5, 0, 0, 0, 0, 0, 0, 0, 0, 5.0, 1e300, 0)
    assert spread.ranges == (((1, 1),), ((2, 2),), ((1, 2),))
    assert sum(spread.ulp) == 23


def test_a_large_tensor_has_a_small_map() -> None:
    excess = torch.zeros(100, 1000)
    excess[99, 999] = 7.0
    excess[0, ::2] = 2.0
    spread = spread_of((100, 1000), excess.reshape(-1))
    assert (spread.rows, spread.columns, spread.ulp) == (MAX_ROWS, MAX_COLUMNS, ())
    assert len(spread.map) == MAX_ROWS * MAX_COLUMNS
    assert (spread.map[-1], spread.map[0], spread.map[MAX_COLUMNS]) == (7.0, 2.0, 0)
    assert spread.ranges == (((0, 0), (99, 99)), ((0, 999),))


def test_few_dimensions() -> None:
    assert spread_of((), torch.tensor([3.0])).map == (3.0,)
    assert spread_of((), torch.tensor([3.0])).ranges == ()
    line = spread_of((3,), torch.tensor([0.0, 3.0, 0.0]))
    assert (line.rows, line.columns, line.ranges) == (1, 3, (((1, 1),),))
