"""Calls from several threads on a GPU, each with a stream of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from aoti_debug.compare.bisect.threaded_calls import ThreadsOptions, call_from_threads, recorded_by_default
from aoti_debug.compare.bisect.threads_text import threads_lines
from aoti_debug.instrument.builder import build as builder
from aoti_debug.runs.run.options import RunOptions
from aoti_debug.runs.rundir.threads_json import WeightUpdates
from tests.built_model import Built
from tests.models import Counter

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.mark.parametrize("updates", WeightUpdates)
def test_a_clean_model(build: Callable[[str], Built], tmp_path: Path, updates: WeightUpdates) -> None:
    """Each call overwrites a state, which all share: that alone may be a race."""
    run = recorded_by_default(RunOptions(build("mixed").package, calls=8, out=tmp_path))
    found = call_from_threads(ThreadsOptions(run=run, threads=4, updates=updates))
    assert found.result.verdict is None
    assert threads_lines(found)[0].startswith("EQUAL 8 calls on 4 threads: bit-equal to the same calls alone")
    streams = {call.thread: call.stream for call in found.result.run.timeline.calls}
    assert len(streams) == 4
    assert len(set(streams.values())) == 4
    assert {race.memory for race in found.races} <= {"cache"}


def test_calls_on_different_streams_race_for_a_state(tmp_path: Path) -> None:
    x = torch.rand(2048, 64, device="cuda")
    torch.export.save(torch.export.export(Counter().cuda().eval(), (x,)), tmp_path / "counter.pt2")
    package = builder.build(tmp_path / "counter.pt2", output=tmp_path / "counter.instrumented.pt2")
    run = recorded_by_default(RunOptions(package, calls=24, out=tmp_path / "runs"))
    (race,) = call_from_threads(ThreadsOptions(run=run, threads=3)).races
    assert (race.memory, race.bytes, race.doubt) == ("count", (0, 256), "")
    assert race.first.launch.stream_slot != race.second.launch.stream_slot
