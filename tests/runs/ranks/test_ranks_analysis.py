"""Ranks that wait, and for which others."""

from __future__ import annotations

from pathlib import Path

from aoti_debug.runs.ranks.ranks_analysis import Parting, partings, waiting
from tests.runs.ranks.ranked import WAIT, Rank, killed, opened, terminated, threw


def test_ranks_in_a_collective_wait_for_those_that_have_not_begun_it(tmp_path: Path) -> None:
    (found,) = waiting(opened(tmp_path, threw(2), killed(0), terminated(2), terminated(None)).ranks)
    assert (found.launch.kernel, found.launch.id) == (WAIT, "1.2")
    assert (found.ranks, found.missing) == ((0, 2), (1, 3))


def test_a_rank_without_a_run_has_not_begun_it(tmp_path: Path) -> None:
    (found,) = waiting(opened(tmp_path, threw(2), threw(2), None).ranks)
    assert (found.ranks, found.missing) == ((0, 1), (2,))


def test_nobody_waits(tmp_path: Path) -> None:
    assert waiting(opened(tmp_path, Rank(), killed(0)).ranks) == ()


def test_a_launch_that_one_rank_has_not(tmp_path: Path) -> None:
    run = opened(tmp_path, Rank(), Rank(skipped=(3,)), Rank())
    assert partings(run.ranks) == (Parting(1, 0, 3, {"softmax": 1}, {}, (0, 2)),)


def test_two_against_two_is_no_majority(tmp_path: Path) -> None:
    assert partings(opened(tmp_path, Rank(), Rank(skipped=(3,))).ranks) == ()


def test_the_same(tmp_path: Path) -> None:
    assert partings(opened(tmp_path, Rank(calls=1), Rank(calls=2), Rank()).ranks) == ()
