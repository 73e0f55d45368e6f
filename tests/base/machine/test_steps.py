from __future__ import annotations

import math
import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

from aoti_debug.base.machine import steps
from aoti_debug.base.machine.steps import (
    LastDurations,
    OutOfTime,
    Step,
    StepListener,
    Steps,
    Stopwatch,
    covered,
    since_process_start,
    time_limit,
)


class Heard(StepListener):
    def __init__(self) -> None:
        self.words: list[str] = []

    def began(self, name: str) -> None:
        self.words.append(f"began {name}")

    def advanced(self, done: int, total: int) -> None:
        self.words.append(f"{done} of {total}")

    def finished(self, step: Step) -> None:
        self.words.append(f"finished {step.name}: {step.text}")


def test_a_listener_is_told_of_every_step() -> None:
    heard = Heard()
    steps = Steps(heard)
    with steps.step("build") as note:
        steps.advance(1, 2)
        note.text = "done"
        note.timings = {"lower": 1.0}
    assert heard.words == ["began build", "1 of 2", "finished build: done"]
    (step,) = steps.done
    assert step.timings == {"lower": 1.0}
    assert 0 <= step.began <= step.began + step.seconds <= steps.now


def test_a_step_that_fails_is_not_finished() -> None:
    heard = Heard()
    steps = Steps(heard)
    with pytest.raises(ValueError, match="no"), steps.step("run"):
        raise ValueError("no")
    assert heard.words == ["began run"]
    assert steps.done == []


def test_a_step_that_was_done_elsewhere() -> None:
    steps = Steps()
    steps.add(Step("repro", 1.5, "it reproduces the recorded values"))
    assert [step.name for step in steps.done] == ["repro"]


def test_work_between_steps_is_timed_without_the_steps_in_it() -> None:
    heard = Heard()
    steps = Steps(heard)
    for _ in range(2):
        with steps.work("check"):
            time.sleep(0.01)
            with steps.step("run"):
                time.sleep(0.2)
    assert heard.words == ["began check", "began run", "finished run: "] * 2
    assert 0.02 <= steps.between["check"] < 0.2


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


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "aoti_debug" / "durations"


def test_the_last_duration_of_each_step(cache: Path) -> None:
    first = LastDurations("build", "model.pt2")
    assert LastDurations("build", "\udcff.pt2").hint("lower") == ""  # a path that is not UTF-8
    assert first.hint("lower") == ""
    first.remember("lower", 3.25)
    first.remember("link", 0.5)
    first.remember("lower", 4.4)
    again = LastDurations("build", "model.pt2")
    assert (again.hint("lower"), again.hint("link")) == (" (last time 4.4 s)", " (last time 500 ms)")
    assert LastDurations("build", "other.pt2").hint("lower") == ""
    assert LastDurations("triage", "model.pt2").hint("lower") == ""


def test_only_the_newest_are_kept(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "_KEPT", 2)
    for number in range(4):
        LastDurations(str(number)).remember("step", 1.0)
        for path in cache.iterdir():
            os.utime(path, (path.stat().st_atime, path.stat().st_mtime - 10))
    assert len(list(cache.iterdir())) == 2
    assert [LastDurations(str(number)).hint("step") != "" for number in range(4)] == [False, False, True, True]


def test_a_damaged_file_and_a_cache_that_cannot_be_written(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    LastDurations("work").remember("step", 1.0)
    (file,) = cache.iterdir()
    file.write_text('{"seconds": {"step": "long"}}')
    assert LastDurations("work").hint("step") == ""

    def deny() -> Path:
        raise PermissionError("no")

    monkeypatch.setattr("aoti_debug.base.machine.cache.directory", deny)
    without = LastDurations("work")
    without.remember("step", 2.0)
    assert without.hint("step") == " (last time 2.0 s)"


def test_work_that_takes_too_long_is_interrupted() -> None:
    before = signal.getsignal(signal.SIGALRM)
    with pytest.raises(OutOfTime), time_limit(0.05):
        subprocess.run(["sleep", "600"], check=True)
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_work_that_is_done_in_time_is_left_alone() -> None:
    with time_limit(600):
        pass
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


@pytest.mark.parametrize("seconds", [math.inf, 1e18])
def test_a_limit_may_be_as_long_as_one_likes(seconds: float) -> None:
    with time_limit(seconds):
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 9e7
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_a_timer_that_is_in_use_is_left_alone() -> None:
    signal.setitimer(signal.ITIMER_REAL, 600)
    try:
        with time_limit(0.001):
            time.sleep(0.02)
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 500
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def test_another_thread_has_no_limit() -> None:
    done: list[tuple[float, float]] = []

    def work() -> None:
        with time_limit(0.001):
            done.append(signal.getitimer(signal.ITIMER_REAL))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == [(0.0, 0.0)]


def test_the_step_that_runs_is_known() -> None:
    steps = Steps()
    with steps.work("check: race"):
        assert steps.running == "check: race"
        with steps.step("run, level 2"):
            assert steps.running == "run, level 2"
