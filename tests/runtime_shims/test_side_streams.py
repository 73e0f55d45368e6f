"""Launches on other streams than their call's: what is recorded of one goes to the stream that it runs on."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from aoti_debug.runs.rundir import breadcrumbs
from tests.runtime_shims.journal_decoder import Journal
from tests.runtime_shims.runtime_library import INOUT, Handle, Runtime, Slot
from tests.runtime_shims.test_guards import CUDA, allocate

Start = Callable[..., Runtime]
MAIN, SIDE, OTHER = 16, 32, 48  # streams
BREADCRUMB = 2  # LAUNCH_CRUMB


@pytest.fixture
def start(load: Callable[..., Runtime], device_library: Path) -> Start:
    """A runtime whose site 0 runs on its call's stream, and site 1 on another one."""

    def start_(**variables: object) -> Runtime:
        runtime = load(device_library, PRINT="none", **variables)
        for site in (0, 1):
            runtime.site(site, f"kernel_{site}", Slot("y", role=INOUT))
        runtime.lib.h_sites()[1].side_stream = 1
        runtime.lib.f_set(b"keeps order", 1)
        return runtime

    return start_


def order(runtime: Runtime) -> list[str]:
    """What was asked of the device since the last time: "32:crumb"."""
    text = ctypes.create_string_buffer(1 << 16)
    runtime.lib.f_order(text, ctypes.c_size_t(len(text)))
    return text.value.decode().split()


def launch(runtime: Runtime, handle: Handle, stream: int = MAIN) -> None:
    """A launch, as generated code begins it."""
    if stream != MAIN:
        runtime.lib.h_stream(ctypes.c_void_p(stream))
    with runtime.launch(int(stream != MAIN), handle.value):
        pass


def marked(runtime: Runtime, value: float = 1.0) -> Handle:
    handle = Handle(torch.full((4,), value))
    runtime.keep(handle)
    runtime.lib.f_mark(handle.pointer)
    return handle


def test_each_stream_has_breadcrumbs_of_its_own(start: Start, journal: Callable[[], Journal], run: Path) -> None:
    runtime = start(LEVEL=3, CRUMB_EVERY=1)
    handle = marked(runtime)
    with runtime.call(stream=MAIN):
        launch(runtime, handle)
        launch(runtime, handle, SIDE)
        launch(runtime, handle)
        launch(runtime, handle, OTHER)
        launch(runtime, handle, SIDE)
    assert order(runtime) == [f"{stream}:crumb" for stream in (MAIN, SIDE, MAIN, OTHER, SIDE)]
    runtime.unload()
    assert [begin.stream_slot for begin in journal().of("launch_begin")] == [0, 1, 0, 2, 1]
    found = breadcrumbs.read(run)
    assert found is not None
    assert [(crumb.stream, crumb.completed) for crumb in found.crumbs] == [(MAIN, 3), (SIDE, 5), (OTHER, 4)]


@pytest.mark.parametrize("level", [0, 3])
def test_launches_as_generated_code_writes_them(start: Start, level: int) -> None:
    runtime = start(LEVEL=level, CRUMB_EVERY=1)
    handle = marked(runtime)
    assert runtime.lib.h_run_streams(handle.pointer, ctypes.c_void_p(MAIN), ctypes.c_void_p(SIDE)) == 3
    crumbs = [f"{stream}:crumb" for stream in (MAIN, SIDE, MAIN)]
    assert order(runtime) == (crumbs if level else [])


def test_the_last_launch_of_each_stream_has_a_breadcrumb(start: Start, run: Path) -> None:
    runtime = start(LEVEL=3, CRUMB_EVERY=100)
    handle = marked(runtime)
    with runtime.call(stream=MAIN):
        for stream in (SIDE, MAIN, MAIN, SIDE, MAIN):
            launch(runtime, handle, stream)
    runtime.unload()
    found = breadcrumbs.read(run)
    assert found is not None
    assert {crumb.stream: crumb.completed for crumb in found.crumbs} == {MAIN: 5, SIDE: 4}


def test_a_call_that_meets_another_on_its_streams_has_a_breadcrumb_after_every_launch(start: Start) -> None:
    """The pace of a stream decides for one call at a time, and for the next one again."""
    runtime = start(LEVEL=3, CRUMB_EVERY=100)
    handle = marked(runtime)
    for _ in range(2):
        with runtime.call(stream=MAIN):
            launch(runtime, handle, SIDE)
            assert order(runtime) == []
            with runtime.call(stream=MAIN):
                for stream in (MAIN, SIDE, MAIN):
                    launch(runtime, handle, stream)
                assert order(runtime) == [f"{stream}:crumb" for stream in (MAIN, SIDE, MAIN)]
            order(runtime)
            launch(runtime, handle)
            assert order(runtime) == []
        assert order(runtime) == [f"{stream}:crumb" for stream in (MAIN, SIDE)]


def test_a_burst_is_one_of_all_streams_of_a_call(start: Start, journal: Callable[[], Journal]) -> None:
    """900 launches of a side stream would each have a breadcrumb if they were counted alone."""
    runtime = start(LEVEL=3)
    handle = marked(runtime)
    for _ in range(900):
        runtime.lib.h_run_streams(handle.pointer, ctypes.c_void_p(MAIN), ctypes.c_void_p(SIDE))
    runtime.unload()
    begun = {(begin.call, begin.launch): begin.stream_slot for begin in journal().of("launch_begin")}
    ended = journal().of("launch_end")
    crumbs = [end.flags & BREADCRUMB != 0 for end in ended if begun[end.call, end.launch] == 1]
    assert len(crumbs) == 900
    assert all(crumbs[:300])
    assert sum(crumbs[500:]) < 400


@pytest.mark.parametrize(("level", "what"), [(1, "copy"), (2, "statistics")])
def test_tensors_are_read_on_the_stream_of_their_launch(start: Start, level: int, what: str) -> None:
    runtime = start(LEVEL=level, PHASE="both")
    handle = marked(runtime)
    with runtime.call(stream=MAIN):
        launch(runtime, handle)
        first = [one for one in order(runtime) if one.endswith(what)]
        handle = marked(runtime, 2.0)
        launch(runtime, handle, SIDE)
        second = [one for one in order(runtime) if one.endswith(what)]
    assert first
    assert set(first) == {f"{MAIN}:{what}"}
    assert second
    assert set(second) == {f"{SIDE}:{what}"}


def test_statistics_of_every_stream_arrive(start: Start, journal: Callable[[], Journal]) -> None:
    runtime = start(LEVEL=2, PHASE="after")
    handles = [marked(runtime) for _ in range(3)]
    with runtime.call(stream=MAIN):
        for handle, stream in zip(handles, (MAIN, SIDE, OTHER), strict=True):
            launch(runtime, handle, stream)
    runtime.unload()
    assert sorted(stats.launch for stats in journal().of("tensor_stats")) == [0, 1, 2]


def test_no_statistics_wait_behind_an_event(start: Start) -> None:
    """What is measured after a launch is asked for before the next launch, also where launches come in a burst."""
    runtime = start(LEVEL=3, WATCH="y: max > 5", CRUMB_EVERY=16)
    handle = marked(runtime)
    with runtime.call(stream=MAIN):
        for _ in range(4):
            launch(runtime, handle)
            assert f"{MAIN}:statistics" in order(runtime)


def test_one_stream_works_at_a_time_where_there_are_guards(start: Start) -> None:
    runtime = start(LEVEL=3, GUARDS=1, CRUMB_EVERY=1)
    handle = marked(runtime)
    with runtime.call(stream=MAIN):
        assert allocate(runtime, [4], device=CUDA) is not None
        launch(runtime, handle, SIDE)
        launch(runtime, handle)
    seen = [one for one in order(runtime) if not one.endswith("crumb")]
    assert seen == [
        f"{MAIN}:fill",
        f"{MAIN}:wait",
        f"{SIDE}:guards",
        f"{SIDE}:wait",
        f"{MAIN}:guards",
    ]


def test_a_launch_that_fails_on_a_side_stream(start: Start, journal: Callable[[], Journal]) -> None:
    """The call goes on on its own stream."""
    runtime = start(LEVEL=3, CRUMB_EVERY=1)
    handle = marked(runtime)
    with runtime.call(stream=MAIN):
        runtime.lib.h_stream(ctypes.c_void_p(SIDE))
        failing = runtime.open_launch(1, handle.value)
        failing.end(-1, "planted")
        launch(runtime, handle)
    assert order(runtime) == [f"{MAIN}:crumb"]
    runtime.unload()
    assert [begin.stream_slot for begin in journal().of("launch_begin")] == [1, 0]


def test_a_call_begins_on_its_own_stream(start: Start, journal: Callable[[], Journal]) -> None:
    """The stream of a launch that an exception prevented is not that of the next call's first launch."""
    runtime = start(LEVEL=3, CRUMB_EVERY=1)
    handle = marked(runtime)
    with runtime.call(stream=MAIN):
        runtime.lib.h_stream(ctypes.c_void_p(SIDE))
    with runtime.call(stream=MAIN):
        launch(runtime, handle)
    runtime.unload()
    assert [begin.stream_slot for begin in journal().of("launch_begin")] == [0]
