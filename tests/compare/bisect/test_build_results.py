"""The file of finished trials: an interrupted bisection is resumable, a finished one begins anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from aoti_debug.base.errors import RunDirError
from aoti_debug.compare.bisect.build_results import NAME, BuildFault, BuildTrial, BuildTrials
from aoti_debug.compare.bisect.delta_debugging import SetOutcome
from aoti_debug.instrument.frontend.protocol.messages import Applied

BASELINE = BuildTrial(
    name="baseline",
    finding=BuildFault.LAUNCH,
    wrong="0.1 relu is wrong",
    applied=Applied(("remove_noop_ops",), (), ("aten.relu.default",)),
    suspects=("aten.relu.default",),
    seconds=2.5,
)
OTHER = BuildTrial(name="without a and b", changes=("a", "b"))


def test_an_interrupted_bisection_goes_on(tmp_path: Path) -> None:
    first = BuildTrials(tmp_path, "key", {"freezing": True})
    first.add(BASELINE)
    first.add(OTHER)
    again = BuildTrials(tmp_path, "key", {"freezing": True})
    assert (again.all, again.earlier) == ((BASELINE, OTHER), 2)
    assert again.find(()) == BASELINE
    assert again.find(("b", "a")) == OTHER
    assert again.find(("a",)) is None


@pytest.mark.parametrize(("key", "is_done"), [("other", False), ("key", True)])
def test_another_or_a_finished_bisection_begins_anew(tmp_path: Path, key: str, is_done: bool) -> None:
    first = BuildTrials(tmp_path, "key", {})
    first.add(BASELINE)
    if is_done:
        first.finish()
    assert BuildTrials(tmp_path, key, {}).all == ()


def test_a_damaged_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / NAME).write_text('{"format": 2, "key": 3}')
    with pytest.raises(RunDirError, match="is damaged"):
        BuildTrials(tmp_path, "key", {})


@pytest.mark.parametrize(
    ("trial", "of_numbers", "of_a_crash"),
    [
        (BuildTrial(name="x"), SetOutcome.YES, SetOutcome.YES),
        (BuildTrial(name="x", failure="it does not compile"), SetOutcome.UNKNOWN, SetOutcome.UNKNOWN),
        (BuildTrial(name="x", finding=BuildFault.OUTPUT, wrong="output 0 is 1 off"), SetOutcome.NO, SetOutcome.UNKNOWN),
        (BuildTrial(name="x", finding=BuildFault.END, wrong="it was killed"), SetOutcome.UNKNOWN, SetOutcome.NO),
        (
            BuildTrial(name="x", finding=BuildFault.BUILD, wrong="lowering of a: no"),
            SetOutcome.UNKNOWN,
            SetOutcome.UNKNOWN,
        ),
    ],
)
def test_what_a_trial_tells(trial: BuildTrial, of_numbers: SetOutcome, of_a_crash: SetOutcome) -> None:
    assert trial.outcome(BASELINE) is of_numbers
    assert trial.outcome(BuildTrial(name="baseline", finding=BuildFault.END, wrong="it was killed")) is of_a_crash


def test_of_a_build_that_fails_another_one_that_does_tells_that_it_is_not_fixed() -> None:
    failed = BuildTrial(name="x", finding=BuildFault.BUILD, wrong="lowering of a: no")
    assert failed.outcome(failed) is SetOutcome.NO
    assert OTHER.outcome(failed) is SetOutcome.YES
    assert BASELINE.outcome(failed) is SetOutcome.UNKNOWN
