"""Watchpoints in calls that a CUDA graph captures: replays look at them, and the first hit of each is recorded."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.runtime_shims.journal_decoder import Journal
from tests.runtime_shims.runtime_library import IN, OUT, Handle, Runtime, Slot

Load = Callable[..., Runtime]
Decode = Callable[[], Journal]


def replay(runtime: Runtime, nodes: int) -> None:
    runtime.lib.f_set(b"replay", nodes)


def captured(runtime: Runtime, *launches: tuple[Any, Handle, Handle]) -> None:
    """A call with these launches, and the same once more while it is captured."""
    for capturing in (0, 1):
        runtime.lib.f_set(b"capturing", capturing)
        with runtime.call():
            for site, x, y in launches:
                with runtime.launch(site, x.value, y.value):
                    pass
    runtime.lib.f_set(b"capturing", 0)


def wait_for(text: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Returns once the runtime has written a text to standard error."""
    deadline = time.monotonic() + 60
    said = ""
    while text not in said:
        assert time.monotonic() < deadline
        time.sleep(0.02)
        said += capfd.readouterr().err


class Model:
    """Two launches that each read and write a tensor in the memory of the device."""

    NODES = 5  # of its graph: the begin, the statistics and the condition of both outputs

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        slots = (Slot("x", role=IN), Slot("y", role=OUT, value=1))
        self.sites = [runtime.site(i, name, *slots) for i, name in enumerate(("first", "second"))]
        self.outputs = [torch.ones(2, 50), torch.ones(300)]
        handles = [Handle(output) for output in self.outputs]
        x = Handle(torch.ones(3))
        for handle in (x, *handles):
            runtime.lib.f_mark(handle.pointer)
        captured(runtime, *((site, x, y) for site, y in zip(self.sites, handles, strict=True)))

    def replay(self) -> None:
        # Breadcrumbs come after the last launch alone: a node of their own, at the end.
        replay(self.runtime, self.NODES)


def test_the_first_hit_of_each_is_recorded_and_all_are_counted(
    load: Load, device_library: Path, journal: Decode, capfd: pytest.CaptureFixture[str]
) -> None:
    runtime = load(device_library, LEVEL=3, WATCH="y: nan", PRINT="all")
    model = Model(runtime)
    for _ in range(730):
        model.replay()
    model.outputs[1][7] = math.nan
    for _ in range(3):
        model.replay()
    model.outputs[0][1, 4] = math.nan
    model.replay()
    runtime.unload()
    found = journal()
    hits = [(r.call, r.launch, r.replay, r.element, r.number) for r in found.of("watch_hit")]
    assert hits == [(1, 1, 731, 7, hits[0][4]), (1, 0, 734, 54, hits[1][4])]
    (count,) = {record.watch: (record.hits, record.evaluated) for record in found.of("watch_count")}.values()
    assert count == (5, 2 + 2 * 734)
    text = "second y, element 7 is nan, in replay 731 of the CUDA graph that captured call 1"
    assert text in capfd.readouterr().err


def test_a_hit_is_told_while_replays_go_on(
    load: Load, device_library: Path, journal: Decode, capfd: pytest.CaptureFixture[str]
) -> None:
    runtime = load(device_library, LEVEL=3, WATCH="y: absmax > 10 and mean < 5")
    model = Model(runtime)
    model.outputs[0][0, 3] = -20.0
    model.replay()
    wait_for("element 3 is -20, in replay 1 ", capfd)
    runtime.unload()
    assert [(r.launch, r.value) for r in journal().of("watch_hit")] == [(0, -20.0)]


def test_stop_ends_the_next_call_that_is_no_replay(
    load: Load, device_library: Path, journal: Decode, capfd: pytest.CaptureFixture[str]
) -> None:
    runtime = load(device_library, LEVEL=3, WATCH="x: max > 5", ON_HIT="stop")
    runtime.site(0, "first", Slot("x"))
    runtime.site(1, "second", Slot("x"))
    tensor = torch.ones(2)
    x = Handle(tensor)
    runtime.lib.f_mark(x.pointer)
    for capturing in (0, 1, 0):
        runtime.lib.f_set(b"capturing", capturing)
        assert runtime.lib.h_run_model(x.pointer, 0) == 0
    tensor[1] = 6.0
    replay(runtime, Model.NODES)
    wait_for("element 1 is 6, in replay 1 ", capfd)
    assert runtime.lib.h_run_model(x.pointer, 0) == -1
    runtime.unload()
    first = journal().of("watch_hit")[0]
    assert (first.call, first.launch, first.replay) == (1, 0, 1)


def test_what_a_hit_cannot_do_is_said_once(
    load: Load, device_library: Path, journal: Decode, capfd: pytest.CaptureFixture[str]
) -> None:
    runtime = load(device_library, LEVEL=3, WATCH="y: zeros", ON_HIT="save,stop,stack")
    model = Model(runtime)
    model.outputs[1][0] = 0.0
    model.replay()
    runtime.unload()
    found = journal()
    assert [(r.launch, r.replay) for r in found.of("watch_hit")] == [(1, 1)]
    assert found.of("tensor_file") == []
    assert capfd.readouterr().err.count("a hit in a CUDA graph saves no tensors and writes no stack") == 1


def test_a_tensor_without_elements_is_not_measured(
    load: Load, device_library: Path, journal: Decode, capfd: pytest.CaptureFixture[str]
) -> None:
    runtime = load(device_library, LEVEL=3, WATCH="x: numel == 0")
    site = runtime.site(0, "k", Slot("x", role=IN), Slot("y", role=OUT, value=1))
    x, y = Handle(torch.empty(0)), Handle(torch.ones(2))
    for handle in (x, y):
        runtime.lib.f_mark(handle.pointer)
    captured(runtime, (site, x, y))
    runtime.unload()
    assert [(r.call, r.replay) for r in journal().of("watch_hit")] == [(0, 0)]
    assert "not watched" not in capfd.readouterr().err


def test_nothing_is_recorded_of_replays_without_a_hit(load: Load, device_library: Path, journal: Decode) -> None:
    runtime = load(device_library, LEVEL=3, WATCH="y: nan", ON_HIT="count")
    model = Model(runtime)
    model.replay()
    runtime.unload()
    found = journal()
    assert found.of("watch_hit") == []
    (count,) = {record.watch: (record.hits, record.evaluated) for record in found.of("watch_count")}.values()
    assert count == (0, 4)
