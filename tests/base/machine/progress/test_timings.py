from __future__ import annotations

import time

from aoti_debug.base.machine.progress.timings import Stopwatch, covered, since_process_start


def test_the_phases_add_up_to_the_time_that_has_passed() -> None:
    began = time.monotonic()
    stopwatch = Stopwatch("first")
    time.sleep(0.02)
    stopwatch.next("second")
    stopwatch.next("first")
    time.sleep(0.01)
    seconds = stopwatch.seconds
    passed = time.monotonic() - began
    assert list(seconds) == ["first", "second"]
    assert seconds["first"] >= 0.03
    assert 0.03 <= sum(seconds.values()) <= passed


def test_a_phase_that_is_not_over_counts_until_now() -> None:
    stopwatch = Stopwatch("only")
    first = stopwatch.seconds["only"]
    time.sleep(0.01)
    assert stopwatch.seconds["only"] >= first + 0.01


def test_the_age_of_this_process() -> None:
    age = since_process_start()
    assert age > 0
    time.sleep(0.05)
    assert 0.03 < since_process_start() - age < 10


def test_intervals_that_overlap_are_counted_once() -> None:
    assert covered([]) == 0
    assert covered([(1.0, 2.0), (2.0, 3.0), (1.5, 0.5), (9.0, 1.0)]) == 5.0
