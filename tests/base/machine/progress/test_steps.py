from __future__ import annotations

import time

import pytest

from aoti_debug.base.machine.progress.steps import Step, StepListener, Steps


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
