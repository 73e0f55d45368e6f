"""Launches that others have and one has not."""

from __future__ import annotations

from pathlib import Path

from aoti_debug.runs.ranks.diverging_launches import Parting, partings
from tests.runs.ranks.ranked import Rank, opened


def test_a_launch_that_one_rank_has_not(tmp_path: Path) -> None:
    run = opened(tmp_path, Rank(), Rank(skipped=(3,)), Rank())
    assert partings(run.ranks) == (Parting(1, 0, 3, {"softmax": 1}, {}, (0, 2)),)


def test_two_against_two_is_no_majority(tmp_path: Path) -> None:
    assert partings(opened(tmp_path, Rank(), Rank(skipped=(3,))).ranks) == ()


def test_the_same(tmp_path: Path) -> None:
    assert partings(opened(tmp_path, Rank(calls=1), Rank(calls=2), Rank()).ranks) == ()
