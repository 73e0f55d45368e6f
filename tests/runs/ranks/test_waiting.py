"""Ranks that wait, and for which others."""

from __future__ import annotations

from pathlib import Path

from aoti_debug.runs.ranks.waiting import waiting
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
