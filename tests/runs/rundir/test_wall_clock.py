"""Times of a journal by the wall clock."""

from __future__ import annotations

from pathlib import Path

from aoti_debug.runs.rundir import run_directory
from aoti_debug.runs.rundir.wall_clock import WallClock
from tests import factories
from tests.factories import JournalWriter


def clock(tmp_path: Path, journal: JournalWriter) -> WallClock:
    run = run_directory.open_run(factories.run_directory(tmp_path, factories.make_manifest(), journal))
    assert run.journal is not None
    return WallClock(run.journal)


def test_times_between_two_records_are_interpolated(tmp_path: Path) -> None:
    journal = JournalWriter()
    journal.time_ns = 9_000
    journal.clock(1_000_000)  # at 10 µs: a record advances the clock
    journal.time_ns = 29_000
    journal.clock(1_040_000)  # the journal's clock runs at half the rate
    found = clock(tmp_path, journal)
    assert found.is_recorded
    assert [found.unix_ns(time) for time in (10_000, 15_000, 30_000)] == [1_000_000, 1_010_000, 1_040_000]
    assert found.unix_ns(8_000) == 998_000
    assert found.unix_ns(31_000) == 1_041_000


def test_a_journal_without_such_records_has_the_time_of_its_start(tmp_path: Path) -> None:
    journal = JournalWriter()
    journal.call_begin()
    found = clock(tmp_path, journal)
    assert not found.is_recorded
    assert found.unix_ns(500) == journal.start_unix_ns + 500
