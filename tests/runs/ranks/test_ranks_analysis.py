"""Tensors that should be equal on all ranks."""

from __future__ import annotations

import shutil
from pathlib import Path

from aoti_debug.runs.ranks.ranks_analysis import (
    AgreementReason,
    Disagreement,
    Expectation,
    Parting,
    agreement,
    partings,
    waiting,
)
from aoti_debug.runs.ranks.ranks_run import open_ranks
from tests.runs.ranks.ranked import REDUCE, WAIT, Rank, killed, manifest, opened, terminated, threw, write_rank


def test_equal_ones(tmp_path: Path) -> None:
    found = agreement(opened(tmp_path, Rank(), Rank()).ranks, Expectation())
    assert (found.compared, found.disagreements) == (3, ())  # the weight, and the sum of each call


def test_the_odd_weight(tmp_path: Path) -> None:
    ranks = opened(tmp_path, Rank(), Rank(), Rank(hashes=(7, 2)), Rank()).ranks
    (found,) = agreement(ranks, Expectation()).disagreements
    assert found == Disagreement(AgreementReason.WEIGHT, "layer.weight", "0.0 mm", ((0, 1, 3), (2,)))
    assert found.odd == (2,)
    assert agreement(ranks, Expectation(sharded=("layer.*",))).disagreements == ()


def test_the_odd_result_of_a_collective(tmp_path: Path) -> None:
    ranks = opened(tmp_path, Rank(hashes=(1, 5)), Rank(), Rank()).ranks
    (found,) = agreement(ranks, Expectation()).disagreements
    assert (found.subject, found.name, found.odd, found.times) == (AgreementReason.COLLECTIVE, REDUCE, (0,), 2)


def test_results_of_some_ranks_are_not_compared(tmp_path: Path) -> None:
    """Rank 2 is of another group, with another sum."""
    path = opened(tmp_path, None, None, Rank()).path
    for number, hashes in enumerate([(1, 5), (1, 5), (1, 2)]):
        shutil.rmtree(path / f"rank{number}", ignore_errors=True)
        write_rank(path, number, 3, Rank(hashes=hashes), manifest(group="3"))
    found = agreement(open_ranks(path).ranks, Expectation())
    assert (found.compared, found.disagreements) == (1, ())  # the weight


def test_results_of_different_replays_are_not_compared(tmp_path: Path) -> None:
    ranks = opened(tmp_path, Rank(replays=8), Rank(replays=8), Rank(hashes=(1, 5), replays=9)).ranks
    found = agreement(ranks, Expectation())
    assert (found.compared, found.disagreements) == (3, ())  # the weight, and the sum of each call by two ranks
    other = opened(tmp_path / "same", Rank(replays=8), Rank(replays=8), Rank(hashes=(1, 5), replays=8)).ranks
    (odd,) = agreement(other, Expectation()).disagreements
    assert (odd.subject, odd.odd) == (AgreementReason.COLLECTIVE, (2,))


def test_without_a_majority_no_rank_is_the_odd_one(tmp_path: Path) -> None:
    (found,) = agreement(opened(tmp_path, Rank(), Rank(hashes=(7, 2))).ranks, Expectation()).disagreements
    assert (found.groups, found.odd) == (((0,), (1,)), ())


def test_a_named_tensor(tmp_path: Path) -> None:
    ranks = opened(tmp_path, Rank(), Rank(), Rank(hashes=(7, 2))).ranks
    found = agreement(ranks, Expectation(agree=("mm:layer_*",), sharded=("*",))).disagreements
    assert [(one.subject, one.name, one.odd, one.times) for one in found] == [
        (AgreementReason.NAMED, "layer_weight", (2,), 2)
    ]


def test_ranks_of_another_program_are_not_compared(tmp_path: Path) -> None:
    path = opened(tmp_path, Rank(), Rank(), None).path
    other = manifest()
    vars(other)["source_sha256"] = "another program"
    write_rank(path, 2, 3, Rank(hashes=(7, 9)), other)
    assert agreement(open_ranks(path).ranks, Expectation()).disagreements == ()


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
