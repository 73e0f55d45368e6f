"""Clocks of machines, compared by collectives."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from aoti_debug.package.manifest import Manifest
from aoti_debug.runs.ranks.clocks import clocks_of
from aoti_debug.runs.ranks.ranks_run import open_ranks
from tests.runs.ranks.ranked import Rank, manifest, opened, write_rank


@pytest.mark.parametrize("ahead", [-3600.0, 0.0, 0.25, 3600.0])
def test_bounds_hold_the_offset(tmp_path: Path, ahead: float) -> None:
    run = opened(tmp_path, Rank(), Rank(), Rank(machine="other", clock=ahead))
    offset = clocks_of(run.ranks).offsets["other"]
    assert offset.is_known
    assert offset.low is not None
    assert offset.high is not None
    assert offset.low <= ahead * 1e9 <= offset.high
    assert offset.high - offset.low < 100_000  # the records of a collective are microseconds apart


@pytest.mark.parametrize("package", [manifest(group="3"), manifest(device="cuda")], ids=["some ranks", "a GPU"])
def test_collectives_that_a_rank_may_leave_early_say_nothing(tmp_path: Path, package: Manifest) -> None:
    path = opened(tmp_path, Rank(), None).path
    shutil.rmtree(path / "rank0")
    for number, machine in enumerate(("one", "other")):
        write_rank(path, number, 2, Rank(machine=machine), package)
    assert clocks_of(open_ranks(path).ranks).unknown == ("other",)


def test_without_a_collective_nothing_is_known(tmp_path: Path) -> None:
    run = opened(tmp_path, Rank(skipped=(1, 2)), Rank(machine="other", skipped=(1, 2)))
    clocks = clocks_of(run.ranks)
    assert clocks.unknown == ("other",)
    assert clocks.common(run.ranks[1], 5) == 5
