"""Calls of packages that are timed in turn."""

from __future__ import annotations

from pathlib import Path

import pytest

from aoti_debug.base.errors import TargetError
from aoti_debug.runs.run.timed_pairs import PairedTimes, TimedPackages, time_calls
from tests.wrong_model import Wrong


def test_the_ratio_is_that_of_the_pairs() -> None:
    times = PairedTimes.of((1.0, 2.0, 4.0, 8.0, 1.0), (2.0, 4.0, 8.0, 16.0, 1.0))
    assert (times.ratio, times.low, times.high, times.pairs) == (2.0, 2.0, 2.0, 5)
    assert (times.before, times.after) == (2.0, 4.0)
    assert times.is_clear


@pytest.mark.parametrize(("after", "is_clear"), [((1.1, 1.2, 1.3), True), ((0.8, 1.1, 1.3), False), ((0.5,) * 3, True)])
def test_a_difference_is_clear_if_both_quartiles_say_the_same(after: tuple[float, ...], is_clear: bool) -> None:
    assert PairedTimes.of((1.0, 1.0, 1.0), after).is_clear is is_clear


def test_two_packages_are_timed(wrong: Wrong, tmp_path: Path) -> None:
    times = time_calls(TimedPackages((str(wrong.good), str(wrong.bad)), 6), tmp_path)
    assert [len(seconds) for seconds in times] == [6, 6]
    assert all(second > 0 for seconds in times for second in seconds)


def test_a_package_that_cannot_be_called(wrong: Wrong, tmp_path: Path) -> None:
    inputs = tmp_path / "inputs.pt"
    inputs.write_bytes(b"no inputs")
    with pytest.raises(TargetError, match="calls were not timed: ArtifactError"):
        time_calls(TimedPackages((str(wrong.good),), 3, inputs), tmp_path)
