from __future__ import annotations

import pytest

from aoti_debug.base.machine.steps import Steps
from aoti_debug.instrument.builder.build import _Reports


def test_stages_are_told_and_timed_in_order() -> None:
    told: list[tuple[str, float | None]] = []
    stages = Steps(_Reports(lambda stage, seconds: told.append((stage, seconds))))
    for name in ("lower", "compile"):
        with stages.step(name):
            assert told[-1] == (name, None)
    assert told[1::2] == [(step.name, step.seconds) for step in stages.done]
    assert [step.name for step in stages.done] == ["lower", "compile"]


def test_a_stage_that_fails_has_no_end() -> None:
    told: list[float | None] = []
    stages = Steps(_Reports(lambda _, seconds: told.append(seconds)))
    with pytest.raises(KeyError), stages.step("lower"):
        raise KeyError
    assert (stages.done, told) == ([], [None])
