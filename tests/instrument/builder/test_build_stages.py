from __future__ import annotations

import pytest

from aoti_debug.instrument.builder.build import Stages


def test_stages_are_told_and_timed_in_order() -> None:
    told: list[tuple[str, float | None]] = []
    stages = Stages(lambda stage, seconds: told.append((stage, seconds)))
    for name in ("lower", "compile"):
        with stages.stage(name):
            assert told[-1] == (name, None)
    assert list(stages.seconds) == ["lower", "compile"]
    assert told[1::2] == list(stages.seconds.items())


def test_a_stage_that_fails_has_no_end() -> None:
    told: list[float | None] = []
    stages = Stages(lambda _, seconds: told.append(seconds))
    with pytest.raises(KeyError), stages.stage("lower"):
        raise KeyError
    assert (stages.seconds, told) == ({}, [None])
