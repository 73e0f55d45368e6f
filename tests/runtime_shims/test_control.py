"""The control page of a runtime: what it says, and the settings that it brings."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from aoti_debug.base.errors import TargetError
from aoti_debug.runs.run import running_process
from aoti_debug.runs.run.running_process import ControlDelay, ControlPage
from tests.runtime_shims import journal_decoder
from tests.runtime_shims.child import in_child
from tests.runtime_shims.runtime_library import Handle, Runtime, Slot

Load = Callable[..., Runtime]


def call(runtime: Runtime) -> None:
    """A call of the model with two launches, as generated code makes it."""
    if runtime.lib.h_level_of_call(0) == 0:
        return
    handle = Handle(torch.tensor([1.0, float("nan")]))
    with runtime.call():
        for site in (0, 1):
            with runtime.launch(site, handle.value):
                pass


@contextmanager
def page_of(runtime: Runtime) -> Iterator[ControlPage]:
    with running_process.control_pages(os.getpid()) as pages:
        own = [page for page in pages if page.read().library == Path(runtime.lib._name)]
        assert len(own) == 1
        yield own[0]


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return tmp_path / "runs"


@pytest.fixture
def runtime(load: Load, base: Path) -> Runtime:
    """At level 0 it has a page as soon as a model is made."""
    made = load(LEVEL=0, RUN=None, DIR=base, PRINT="none")
    made.site(0, "first", Slot("x"))
    made.site(1, "second", Slot("y"))
    made.lib.h_containers(1)
    return made


def test_a_level_from_0_on_and_back(runtime: Runtime, base: Path) -> None:
    call(runtime)
    assert not base.exists()
    with page_of(runtime) as page:
        state = page.read()
        assert (state.level, state.calls, state.launches, state.runs, state.run_directory) == (0, 1, 0, 0, None)
        page.request({"AOTI_DEBUG_LEVEL": "2"})
        assert page.read().accepted == 0
        call(runtime)
        state = page.read()
        assert (state.accepted, state.level, state.calls, state.launches, state.last_site) == (1, 2, 2, 2, 1)
        assert state.run_directory is not None
        assert state.run_directory.parent == base
        call(runtime)
        assert len(journal_decoder.decode(state.run_directory / "journal.bin").of("launch_begin")) == 4
        page.request({"AOTI_DEBUG_LEVEL": "0"})
        call(runtime)
        assert (page.read().level, page.read().run_directory, page.read().calls) == (0, None, 4)
        ended = json.loads((state.run_directory / "run.json").read_text())
        assert ended["exit"]["kind"] == "clean"
        assert len(journal_decoder.decode(state.run_directory / "journal.bin").of("launch_begin")) == 4


def test_settings_go_before_the_environment_and_end_with_the_next_request(
    runtime: Runtime, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AOTI_DEBUG_FILTER", "first")
    filters = []
    with page_of(runtime) as page:
        for settings in ({"AOTI_DEBUG_FILTER": "second"}, {}, {"AOTI_DEBUG_FILTER": ""}):
            page.request({"AOTI_DEBUG_LEVEL": "3", **settings})
            call(runtime)
            run = page.read().run_directory
            assert run is not None
            filters.append(json.loads((run / "run.json").read_text())["filters"])
    assert filters == [["second"], ["first"], []]


def test_a_call_that_is_running_ends_in_the_run_before(runtime: Runtime, base: Path) -> None:
    handle = Handle(torch.ones(3))
    with page_of(runtime) as page:
        page.request({"AOTI_DEBUG_LEVEL": "3"})
        assert runtime.lib.h_level_of_call(0) == 3
        with runtime.call():
            before = page.read().run_directory
            assert before is not None
            page.request({"AOTI_DEBUG_LEVEL": "2"})
            other = threading.Thread(target=call, args=(runtime,))
            other.start()
            other.join()
            state = page.read()
            assert (state.accepted, state.level, state.launches) == (2, 2, 2)
            with runtime.launch(0, handle.value):
                pass
            assert page.read().launches == 2  # of the new run
            assert json.loads((before / "run.json").read_text())["exit"]["kind"] == "running"
        call(runtime)
        assert json.loads((before / "run.json").read_text())["exit"]["kind"] == "clean"
        after = page.read().run_directory
    assert after is not None
    assert [len(journal_decoder.decode(run / "journal.bin").of("launch_begin")) for run in (before, after)] == [1, 4]


def test_a_recording_that_ends_within_a_call_says_so(runtime: Runtime) -> None:
    with page_of(runtime) as page:
        page.request({"AOTI_DEBUG_LEVEL": "3"})
        assert runtime.lib.h_level_of_call(0) == 3
        with runtime.call():
            run = page.read().run_directory
            assert run is not None
            page.request({"AOTI_DEBUG_LEVEL": "0"})
            other = threading.Thread(target=call, args=(runtime,))
            other.start()
            other.join()
    notes = [note.text for note in journal_decoder.decode(run / "journal.bin").of("note")]
    assert notes == ["the recording was ended while calls were running, which then went on"]


def test_on_a_device_settings_wait_until_no_call_is_running(load: Load, device_library: Path, base: Path) -> None:
    runtime = load(device_library, LEVEL=3, RUN=None, DIR=base, PRINT="none")
    runtime.site(0, "first", Slot("x"))
    runtime.site(1, "second", Slot("y"))
    call(runtime)
    with page_of(runtime) as page:
        with runtime.call():
            page.request({"AOTI_DEBUG_LEVEL": "2"})
            other = threading.Thread(target=call, args=(runtime,))
            other.start()
            other.join()
            assert (page.read().accepted, page.read().delay) == (0, ControlDelay.CALLS)
        call(runtime)
        assert (page.read().accepted, page.read().delay, page.read().level) == (1, ControlDelay.NONE, 2)


@pytest.mark.parametrize("has_device", [False, True])
def test_a_failure_while_settings_come_into_force_ends_the_recording_and_no_call_waits(
    load: Load, library: Path, device_library: Path, base: Path, has_device: bool
) -> None:
    def work() -> None:
        failed = 0
        for first in range(12):
            runtime = load(device_library if has_device else library, LEVEL=3, RUN=None, DIR=base, PRINT="none")
            runtime.site(0, "first", Slot("x"))
            runtime.site(1, "second", Slot("y"))
            call(runtime)
            with page_of(runtime) as page:
                page.request(
                    {"AOTI_DEBUG_LEVEL": "2", "AOTI_DEBUG_FILTER": "a pattern that is too long to lie in place"}
                )
                with runtime.failing(first):
                    call(runtime)
                failed += runtime.lib.h_level() == 0
                with runtime.call():  # as one begins that has looked at the level before
                    pass
            runtime.unload()
        assert failed

    assert in_child(work) == 0


def test_the_end_of_a_run_waits_for_calls_of_the_run_before(runtime: Runtime) -> None:
    with page_of(runtime) as page:
        page.request({"AOTI_DEBUG_LEVEL": "3"})
        assert runtime.lib.h_level_of_call(0) == 3
        with runtime.call():
            page.request({"AOTI_DEBUG_LEVEL": "2"})
            other = threading.Thread(target=call, args=(runtime,))
            other.start()
            other.join()
            assert runtime.lib.aoti_debug_end_run() == 0
        assert runtime.lib.aoti_debug_end_run() == 1


def test_of_calls_in_a_graph_nothing_changes(load: Load, device_library: Path, base: Path) -> None:
    runtime = load(device_library, LEVEL=3, RUN=None, DIR=base, PRINT="none")
    runtime.site(0, "first", Slot("x"))
    runtime.site(1, "second", Slot("y"))
    runtime.lib.f_set(b"capturing", 1)
    call(runtime)
    runtime.lib.f_set(b"capturing", 0)
    with page_of(runtime) as page:
        page.request({"AOTI_DEBUG_LEVEL": "0"})
        call(runtime)
        assert (page.read().accepted, page.read().delay) == (0, ControlDelay.CAPTURED)


def test_a_page_goes_with_the_last_model_and_is_not_the_childs(runtime: Runtime) -> None:
    def child() -> None:
        open_files = [os.readlink(entry) for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink()]
        assert not any("aoti-debug-control" in file for file in open_files)

    call(runtime)
    assert in_child(child) == 0
    runtime.lib.h_containers(-1)
    with pytest.raises((AssertionError, TargetError)), page_of(runtime):
        pass
    runtime.lib.h_containers(1)
    call(runtime)
    with page_of(runtime) as page:
        assert page.read().calls == 1


def test_without_memory_for_a_page_the_level_is_that_of_the_environment(load: Load, base: Path) -> None:
    def child() -> None:
        import resource

        most = len(os.listdir("/proc/self/fd"))
        runtime = load(LEVEL=3, RUN=None, DIR=base, PRINT="none")
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, most))
        assert runtime.lib.h_level_of_call(0) == 3

    assert in_child(child) == 0
