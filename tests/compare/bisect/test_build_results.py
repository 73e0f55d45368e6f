"""The file of finished trials: an interrupted bisection goes on, a finished one begins anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from aoti_debug.base.errors import RunDirError
from aoti_debug.compare.bisect.build_results import NAME, Finding, Trial, Trials
from aoti_debug.compare.bisect.delta_debugging import Outcome
from aoti_debug.instrument.frontend.protocol.inductor_parts import Applied

AS_IT_IS = Trial(
    "as it is",
    finding=Finding.LAUNCH,
    wrong="0.1 relu is wrong",
    applied=Applied(("remove_noop_ops",), (), ("aten.relu.default",)),
    suspects=("aten.relu.default",),
    seconds=2.5,
)
OTHER = Trial("without a and b", ("a", "b"))


def test_an_interrupted_bisection_goes_on(tmp_path: Path) -> None:
    first = Trials(tmp_path, "key", {"freezing": True})
    first.add(AS_IT_IS)
    first.add(OTHER)
    again = Trials(tmp_path, "key", {"freezing": True})
    assert (again.all, again.known) == ((AS_IT_IS, OTHER), 2)
    assert again.find(()) == AS_IT_IS
    assert again.find(("b", "a")) == OTHER
    assert again.find(("a",)) is None


@pytest.mark.parametrize(("key", "is_done"), [("other", False), ("key", True)])
def test_another_or_a_finished_bisection_begins_anew(tmp_path: Path, key: str, is_done: bool) -> None:
    first = Trials(tmp_path, "key", {})
    first.add(AS_IT_IS)
    if is_done:
        first.finish()
    assert Trials(tmp_path, key, {}).all == ()


def test_a_damaged_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / NAME).write_text('{"format": 2, "key": 3}')
    with pytest.raises(RunDirError, match="is damaged"):
        Trials(tmp_path, "key", {})


@pytest.mark.parametrize(
    ("trial", "of_numbers", "of_a_crash"),
    [
        (Trial("x"), Outcome.YES, Outcome.YES),
        (Trial("x", failure="it does not compile"), Outcome.UNKNOWN, Outcome.UNKNOWN),
        (Trial("x", finding=Finding.OUTPUT, wrong="output 0 is 1 off"), Outcome.NO, Outcome.UNKNOWN),
        (Trial("x", finding=Finding.END, wrong="it was killed"), Outcome.UNKNOWN, Outcome.NO),
        (Trial("x", finding=Finding.BUILD, wrong="lowering of a: no"), Outcome.UNKNOWN, Outcome.UNKNOWN),
    ],
)
def test_what_a_trial_tells(trial: Trial, of_numbers: Outcome, of_a_crash: Outcome) -> None:
    assert trial.outcome(AS_IT_IS) is of_numbers
    assert trial.outcome(Trial("as it is", finding=Finding.END, wrong="it was killed")) is of_a_crash


def test_of_a_build_that_fails_another_one_that_does_tells_that_it_is_not_healed() -> None:
    failed = Trial("x", finding=Finding.BUILD, wrong="lowering of a: no")
    assert failed.outcome(failed) is Outcome.NO
    assert OTHER.outcome(failed) is Outcome.YES
    assert AS_IT_IS.outcome(failed) is Outcome.UNKNOWN
