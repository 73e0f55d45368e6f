"""Calls taken apart into launches and gaps."""

from __future__ import annotations

from pathlib import Path

from aoti_debug.runs.rundir import run_directory
from aoti_debug.views.profile.measured_call import measured_calls
from tests import factories
from tests.factories import JournalWriter, tensor
from tests.views.profile import measured


def test_launches_and_gaps_are_the_call(tmp_path: Path) -> None:
    run = measured.write(tmp_path, [(50_000, 10_000, 20_000), (60_000, 11_000, 21_000), (70_000, 12_000, 22_000)])
    second, third = measured_calls(run, warm_up=1)
    assert (second.call, third.call) == (1, 2)
    assert second.launches_ns == {0: 60_000, 1: 32_000}
    assert second.counts == {0: 1, 1: 2}
    assert second.gaps_ns == 40_000
    assert second.wall_ns == 60_000 + 32_000 + 40_000


def test_a_launch_within_another_one_counts_once(tmp_path: Path) -> None:
    journal = JournalWriter()
    journal.call_begin()
    journal.launch_begin(0, 0, *(tensor(2),) * 3)  # a record a microsecond
    journal.launch(1, 1, tensor(2))
    journal.launch_end(0)
    journal.launch(2, 1, tensor(2))
    journal.call_end(launches=3)
    run = run_directory.open_run(factories.run_directory(tmp_path, measured.package(), journal))
    (call,) = measured_calls(run, warm_up=0)
    assert call.launches_ns == {0: 2_000, 1: 2_000}
    assert call.gaps_ns == call.wall_ns - 4_000


def test_calls_that_did_not_return_are_left_out(tmp_path: Path) -> None:
    journal = JournalWriter()
    journal.call_begin(0)
    journal.launch(0, 1, tensor(2), call=0)
    journal.call_end(0, failed=True)
    journal.call_begin(1)
    journal.launch_begin(0, 1, tensor(2), call=1)
    run = run_directory.open_run(factories.run_directory(tmp_path, measured.package(), journal))
    assert measured_calls(run, warm_up=0) == ()
