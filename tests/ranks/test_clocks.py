"""Clocks of machines, compared by collectives."""

from __future__ import annotations

from pathlib import Path

import pytest
from ranked import Rank, opened

from aoti_debug.ranks.clocks import clocks_of


@pytest.mark.parametrize("ahead", [-3600.0, 0.0, 0.25, 3600.0])
def test_bounds_hold_the_offset(tmp_path: Path, ahead: float) -> None:
    run = opened(tmp_path, Rank(), Rank(), Rank(machine="other", clock=ahead))
    offset = clocks_of(run.ranks).offsets["other"]
    assert offset.is_known
    assert offset.low is not None
    assert offset.high is not None
    assert offset.low <= ahead * 1e9 <= offset.high
    assert offset.high - offset.low < 100_000  # the records of a collective are microseconds apart


def test_without_a_collective_nothing_is_known(tmp_path: Path) -> None:
    run = opened(tmp_path, Rank(skipped=(1, 2)), Rank(machine="other", skipped=(1, 2)))
    clocks = clocks_of(run.ranks)
    assert clocks.unknown == ("other",)
    assert clocks.common(run.ranks[1], 5) == 5
