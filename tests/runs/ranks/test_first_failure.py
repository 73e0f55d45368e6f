"""Clocks of machines, compared by collectives."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from aoti_debug.package.manifest import Manifest
from aoti_debug.runs.ranks.first_failure import RankFailure, clocks_of
from aoti_debug.runs.ranks.ranks_analysis import analyse
from aoti_debug.runs.ranks.ranks_run import open_ranks
from aoti_debug.runs.rundir.run_json import Exit, ExitKind
from tests.runs.ranks.ranked import Rank, killed, manifest, opened, terminated, threw, write_rank


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


SUM, WAIT, OWN = 1, 2, 3  # launches
STALLED = Exit(ExitKind.TIMEOUT, "no progress for 5 s")


def failure(base: Path, *ranks: Rank | None) -> RankFailure:
    found = analyse(opened(base, *ranks)).failure
    assert found is not None
    return found


def test_none(tmp_path: Path) -> None:
    assert analyse(opened(tmp_path, Rank(), Rank())).failure is None


CRASHED = Rank(calls=1, stops=0, ends=False, signal=(11, 3.0))


@pytest.mark.parametrize(
    "guilty", [killed(0), killed(OWN), threw(0), CRASHED], ids=["killed", "killed later", "threw", "crashed"]
)
@pytest.mark.parametrize("victim", [terminated(WAIT), threw(WAIT)], ids=["terminated", "threw"])
def test_a_rank_that_fails_by_itself_comes_before_its_victims(tmp_path: Path, guilty: Rank, victim: Rank) -> None:
    found = failure(tmp_path, victim, guilty, victim, terminated(None))
    assert (found.rank.number, found.is_certain) == (1, True)
    assert found.launch is not None
    assert found.launch.id == f"1.{guilty.stops}"


def test_the_earliest_of_two(tmp_path: Path) -> None:
    found = failure(tmp_path, threw(0, late=2), threw(0, late=1), terminated(WAIT))
    assert (found.rank.number, found.is_certain) == (1, True)
    assert found.why == "it failed 1.0 s before rank 0, the next one"


def test_a_rank_that_others_wait_for_hangs(tmp_path: Path) -> None:
    """gloo gives up in the waiting ranks, which throw; torchrun then ends the one that hangs."""
    found = failure(tmp_path, threw(WAIT), terminated(0), threw(WAIT))
    assert (found.rank.number, found.what) == (1, "it hangs")
    assert "2 ranks wait in a collective" in found.why


@pytest.mark.parametrize(
    ("thread", "what"), [(7, "it hangs"), (1, "SIGABRT (Aborted)")], ids=["the watchdog", "the launch"]
)
def test_a_rank_that_hangs_is_aborted_by_nccl(tmp_path: Path, thread: int, what: str) -> None:
    aborted = Rank(calls=1, stops=0, ends=False, signal=(6, 20.0), thread=thread)
    found = failure(tmp_path, aborted, terminated(WAIT, after=22.0))
    assert found.launch is not None
    assert (found.rank.number, found.what, found.launch.id) == (0, what, "1.0")


def test_a_rank_that_aborts_between_its_launches_does_not_hang(tmp_path: Path) -> None:
    aborted = Rank(calls=1, ends=False, signal=(6, 20.0))
    found = failure(tmp_path, aborted, terminated(WAIT, after=22.0))
    assert (found.rank.number, found.what) == (0, "SIGABRT (Aborted)")


def test_a_time_limit_ends_all_of_them(tmp_path: Path) -> None:
    stalled = [Rank(calls=1, stops=stops, ends=False, exit=STALLED) for stops in (WAIT, WAIT, 0)]
    assert failure(tmp_path, *stalled).rank.number == 2


def test_a_rank_that_was_ended_between_launches_hangs_outside_of_the_package(tmp_path: Path) -> None:
    found = failure(tmp_path, terminated(WAIT), terminated(None), terminated(WAIT))
    assert (found.rank.number, found.launch) == (1, None)


def test_all_wait_for_each_other(tmp_path: Path) -> None:
    assert analyse(opened(tmp_path, terminated(WAIT), terminated(WAIT))).failure is None


def test_somebody_killed_all_of_them(tmp_path: Path) -> None:
    """Nobody saw when: the one that is behind may have worked."""
    found = failure(tmp_path, killed(WAIT), killed(0), killed(WAIT))
    assert (found.rank.number, found.is_certain) == (1, False)


def test_somebody_ended_ranks_that_worked(tmp_path: Path) -> None:
    """Ctrl-C, scancel: SIGTERM comes to all of them 0.1 ms after their last record."""
    ranks = (terminated(WAIT, after=0.0001), terminated(0, after=0.0001), terminated(WAIT, after=0.0001))
    assert analyse(opened(tmp_path / "a", *ranks)).failure is None
    assert analyse(opened(tmp_path / "b", *ranks, None)).failure is None


def test_a_rank_that_is_late(tmp_path: Path) -> None:
    """Others lost patience; it worked until then."""
    found = failure(tmp_path, threw(WAIT), terminated(0, after=0.0001), terminated(WAIT))
    assert (found.rank.number, found.what, found.is_certain) == (1, "it is late", False)


@pytest.mark.parametrize("number", [4, 7, 8, 11])
def test_a_crash_within_a_collective_comes_before_ranks_that_are_behind(tmp_path: Path, number: int) -> None:
    crashed = Rank(calls=1, stops=SUM, ends=False, signal=(number, 3.0))
    found = failure(tmp_path, terminated(WAIT), crashed, terminated(0))
    assert (found.rank.number, found.is_certain) == (1, True)
    assert found.what.startswith("SIG")


@pytest.mark.parametrize("other", [threw(WAIT), terminated(WAIT)], ids=["threw", "terminated"])
def test_a_rank_without_a_run_is_behind_all(tmp_path: Path, other: Rank) -> None:
    found = failure(tmp_path, threw(WAIT), other, None)
    assert (found.rank.number, found.what, found.is_certain) == (2, "it has not called the package", False)
    assert found.why.endswith("2 ranks wait in a collective")


def test_nothing_is_certain_while_a_rank_has_no_run(tmp_path: Path) -> None:
    found = failure(tmp_path / "one", threw(0), terminated(WAIT), None)
    assert (found.rank.number, found.is_certain) == (0, False)
    found = failure(tmp_path / "two", threw(WAIT), terminated(WAIT), None, None)
    assert (found.rank.number, found.is_certain) == (0, False)
    assert found.why.endswith("it was in a collective, and 2 ranks left no run")


def test_a_rank_of_another_machine_may_run(tmp_path: Path) -> None:
    there = killed(0, machine="other")
    assert analyse(opened(tmp_path / "runs", Rank(), there)).failure is None
    found = failure(tmp_path / "failed", threw(WAIT), there)
    assert (found.rank.number, found.what, found.is_certain) == (1, "status unknown (killed or running)", False)


def test_one_rank_waits(tmp_path: Path) -> None:
    assert failure(tmp_path, threw(WAIT), terminated(0)).why.endswith("; 1 rank waits in a collective")


def test_a_program_that_ended_first(tmp_path: Path) -> None:
    """An exception of the script: its process ends in order, while others wait outside of the package."""
    found = failure(tmp_path, terminated(None), Rank(calls=1), terminated(None))
    assert (found.rank.number, found.is_certain) == (1, False)


def test_clocks_that_are_apart(tmp_path: Path) -> None:
    """The clock of rank 1's machine is an hour ahead: it failed first all the same."""
    found = failure(tmp_path, threw(0, late=2), threw(0, clock=3600, machine="other"))
    assert (found.rank.number, found.is_certain) == (1, True)


def test_clocks_that_nothing_compares(tmp_path: Path) -> None:
    ranks = [Rank(calls=0, stops=0, fault="no", late=late, machine=name) for late, name in ((2, "a"), (1, "b"))]
    found = failure(tmp_path, *ranks)
    assert (found.rank.number, found.is_certain) == (1, False)
    assert "by clocks that may differ" in found.why


def test_a_collective_that_fails_on_every_rank(tmp_path: Path) -> None:
    found = failure(tmp_path, threw(WAIT, late=2), threw(WAIT, late=1))
    assert (found.rank.number, found.is_certain) == (1, False)
    assert found.why.endswith("it was in a collective, and no rank is behind")
