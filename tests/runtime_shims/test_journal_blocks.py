"""Blocks of the journal: reuse, limits, threads, and what is left after a kill."""

from __future__ import annotations

import os
import random
import resource
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from aoti_debug.base.machine.processes import python_process
from aoti_debug.base.machine.processes.python_process import PythonCommand
from tests.paths import ROOT
from tests.runtime_shims import journal_decoder
from tests.runtime_shims.journal_decoder import Journal
from tests.runtime_shims.runtime_library import Handle, Runtime, Slot

Load = Callable[..., Runtime]
Decode = Callable[[], Journal]


def many(runtime: Runtime, site: int, count: int, handle: Handle) -> None:
    with runtime.call():
        for _ in range(count):
            with runtime.launch(site, handle.value):
                pass


def test_level_3_reuses_the_oldest_blocks(load: Load, journal: Decode) -> None:
    runtime = load(JOURNAL_BYTES="512K", PRINT="none")
    site = runtime.site(0, "k", Slot("x"))
    many(runtime, site, 10_000, Handle(torch.ones(2)))
    runtime.unload()
    found = journal()
    launches = [r.launch for r in found.of("launch_begin")]
    assert launches == list(range(launches[0], 10_000))
    assert 2000 < len(launches) < 5000
    assert found.header["reused"] > 5
    assert found.blocks == 8
    assert len(found.of("run_end")) == 1
    assert all(r.values[0][3]["shape"] == (2,) for r in found.of("launch_begin"))


@pytest.mark.parametrize("level", [1, 2])
def test_levels_1_and_2_stop_at_the_limit(
    load: Load, journal: Decode, level: int, capfd: pytest.CaptureFixture[str]
) -> None:
    runtime = load(LEVEL=level, JOURNAL_BYTES="512K", FILTER="!*", PRINT="none")
    site = runtime.site(0, "k", Slot("x"))
    many(runtime, site, 10_000, Handle(torch.ones(2)))
    runtime.unload()
    found = journal()
    launches = [r.launch for r in found.of("launch_begin")]
    assert launches == list(range(len(launches)))
    assert 2000 < len(launches) < 5000
    assert [r.text for r in found.of("note")] == [
        "recording stopped: the journal has reached AOTI_DEBUG_JOURNAL_BYTES",
    ]
    assert len(found.of("run_end")) == 1
    assert found.header["reused"] == 0
    assert len(capfd.readouterr().err.splitlines()) == 1


def test_calls_and_lost_records_are_counted_after_the_recording_has_stopped(load: Load, journal: Decode) -> None:
    runtime = load(LEVEL=2, JOURNAL_BYTES="512K", FILTER="!*", PRINT="none")
    site = runtime.site(0, "k", Slot("x"))
    handle = Handle(torch.ones(2))
    with runtime.call():
        assert (journal().header["lost"], journal().header["open_calls"]) == (0, 1)
    many(runtime, site, 10_000, handle)
    stopped = journal().header
    assert stopped["lost"] > 0
    assert stopped["open_calls"] == 0
    with runtime.call():
        with runtime.launch(site, handle.value):
            pass
        within = journal().header
    assert within["lost"] >= stopped["lost"] + 3
    assert within["open_calls"] == 1
    assert journal().header["lost"] == within["lost"] + 1
    assert journal().header["open_calls"] == 0
    runtime.unload()


def test_blocks_of_live_threads_are_not_reused(load: Load, journal: Decode) -> None:
    runtime = load(JOURNAL_BYTES="512K", PRINT="none")
    quiet, busy = runtime.site(0, "quiet"), runtime.site(1, "busy", Slot("x"))
    handle = Handle(torch.ones(2))
    recorded, finish = threading.Barrier(13), threading.Event()

    def rest(model: int) -> None:
        with runtime.call(model=model), runtime.launch(quiet):
            recorded.wait()
            finish.wait()

    threads = [threading.Thread(target=rest, args=(i + 10,)) for i in range(12)]
    for thread in threads:
        thread.start()
    recorded.wait()
    many(runtime, busy, 10_000, handle)
    finish.set()
    for thread in threads:
        thread.join()
    runtime.unload()
    found = journal()
    assert len([r for r in found.of("launch_begin") if r.site == 0]) == 12
    assert sorted(r.model for r in found.of("call_begin") if r.model != 1) == list(range(10, 22))
    assert found.header["reused"] > 5
    newest = [r.launch for r in found.of("launch_end") if r.thread == threading.get_native_id()]
    assert newest[-1] == 9_999


def test_threads_do_not_mix(load: Load, journal: Decode) -> None:
    runtime = load(LEVEL=2, PRINT="none")
    sites = [runtime.site(i, f"k{i}", Slot("x")) for i in range(4)]

    def work(index: int) -> None:
        handle = Handle(torch.full((index + 1,), float(index)))
        for _ in range(20):
            with runtime.call(model=index + 100):
                for _ in range(10):
                    with runtime.launch(sites[index], handle.value):
                        pass

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    runtime.unload()
    found = journal()
    model_of = {r.call: r.model for r in found.of("call_begin")}
    assert sorted(model_of) == list(range(80))
    thread_of = {r.call: r.thread for r in found.of("call_begin")}
    begins = found.of("launch_begin")
    assert len({r.sequence for r in begins}) == len(begins) == 800
    for begin in begins:
        assert begin.site == model_of[begin.call] - 100
        assert begin.thread == thread_of[begin.call]
        assert begin.values[0][3]["shape"] == (begin.site + 1,)
    for stats in found.of("tensor_stats"):
        assert stats.numel == model_of[stats.call] - 99
        assert stats.mean == model_of[stats.call] - 100
    for call in range(80):
        assert [r.launch for r in begins if r.call == call] == list(range(10))


def test_time_goes_on_in_every_block(load: Load, run: Path) -> None:
    runtime = load(PRINT="none")
    site = runtime.site(0, "k")
    started = time.time_ns()
    many(runtime, site, 200, Handle(torch.ones(1)))
    runtime.unload()
    found = journal_decoder.decode(run / "journal.bin")
    times = [r.time_ns for r in found.records if r.type != "run_end"]
    assert times == sorted(times)
    assert abs(found.header["start"] - started) < 10**9
    assert times[-1] < time.time_ns() - started + 10**7


def test_times_are_those_of_the_wall_clock_to_a_few_microseconds(load: Load, run: Path) -> None:
    runtime = load(PRINT="none")
    site = runtime.site(0, "k")
    handle = Handle(torch.ones(1))
    limits = []
    with runtime.call():
        for _ in range(50):
            before = time.time_ns()
            with runtime.launch(site, handle.value):
                pass
            limits.append((before, time.time_ns()))
    runtime.unload()
    found = journal_decoder.decode(run / "journal.bin")
    begins, ends = ([found.header["start"] + r.time_ns for r in found.of(f"launch_{n}")] for n in ("begin", "end"))
    assert min(begin - before for begin, (before, _) in zip(begins, limits, strict=True)) > -2000
    assert min(after - end for end, (_, after) in zip(ends, limits, strict=True)) > -2000


def test_layouts_are_complete_in_every_block(load: Load, journal: Decode) -> None:
    runtime = load(PRINT="none")
    tensors = [Handle(torch.zeros(2, i + 1)) for i in range(5)]
    site = runtime.site(0, "k", *(Slot(f"x{i}", value=i) for i in range(5)))
    with runtime.call():
        for _ in range(3000):
            with runtime.launch(site, *(handle.value for handle in tensors)):
                pass
    runtime.unload()
    found = journal()
    begins = found.of("launch_begin")
    assert [r.launch for r in begins] == list(range(3000))
    assert found.blocks > 5
    for begin in begins:
        assert [value[3]["shape"] for value in begin.values.values()] == [(2, i + 1) for i in range(5)]


KILLED = """
import sys, os, ctypes
sys.path[:0] = [{tests!r}]
import torch
from pathlib import Path
from tests.runtime_shims.runtime_library import *
runtime = Runtime(Path({library!r}), Path({copy!r}))
site = runtime.site(0, "k", Slot("x"), Slot("y", value=1))
x, y = Handle(torch.ones(2, 3)), [Handle(torch.ones(i + 1)) for i in range(50)]
calls = 0
while True:
    with runtime.call():
        for i in range(1000):
            with runtime.launch(site, x.value, y[i % 50].value):
                pass
            if calls == 0 and i == 50:
                print("go", flush=True)
    calls += 1
"""


@pytest.mark.parametrize("level", [1, 2, 3])
def test_journal_after_sigkill(library: Path, tmp_path: Path, level: int) -> None:
    tests = str(ROOT)
    chance = random.Random(level)
    for attempt in range(3):
        run = tmp_path / f"run{attempt}"
        run.mkdir()
        script = tmp_path / f"killed{attempt}.py"
        script.write_text(KILLED.format(tests=tests, library=str(library), copy=str(tmp_path / f"copy{attempt}.so")))
        environment = os.environ | {
            "AOTI_DEBUG_RUN": str(run),
            "AOTI_DEBUG_LEVEL": str(level),
            "AOTI_DEBUG_PRINT": "none",
            "AOTI_DEBUG_JOURNAL_BYTES": "1M" if level == 3 else "256M",
        }
        command = PythonCommand(script=str(script))
        with python_process.start(command, environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == b"go\n"
            time.sleep(chance.uniform(0.05, 0.3))
            child.kill()
            assert child.wait() == -signal.SIGKILL
        found = journal_decoder.decode(run / "journal.bin")
        begins = [(r.call, r.launch) for r in found.of("launch_begin")]
        assert len(begins) > 20
        first, last = begins[0], begins[-1]
        expected = (last[0] - first[0]) * 1000 + last[1] - first[1] + 1
        assert len(begins) == expected
        unfinished = len(begins) - len(found.of("launch_end"))
        assert unfinished in ((-1, 0, 1) if level == 3 else (0, 1))  # the begin of the oldest end may be overwritten
        assert found.of("run_end") == []
        for record in found.of("tensor_file"):
            assert (run / record.path).stat().st_size > 0


def test_disk_without_room_for_the_journal(load: Load, capfd: pytest.CaptureFixture[str]) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    runtime = load(LEVEL=1)
    site = runtime.site(0, "k", Slot("x"))
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        many(runtime, site, 3, Handle(torch.ones(1)))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert runtime.lib.h_level() == 0
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("aoti-debug: nothing is recorded: ")
    assert line.endswith("journal.bin: File too large")
    runtime.unload()


def test_journal_that_cannot_grow_at_level_3(load: Load, journal: Decode) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    runtime = load(PRINT="none")
    site = runtime.site(0, "k", Slot("x"))
    resource.setrlimit(resource.RLIMIT_FSIZE, (2 << 20, before[1]))
    try:
        many(runtime, site, 30_000, Handle(torch.ones(1)))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    runtime.unload()
    (note,) = journal().of("note")
    assert note.text == "the journal cannot grow: File too large; it reuses its blocks"
    launches = [r.launch for r in journal().of("launch_begin")]
    assert launches == list(range(launches[0], 30_000))
    assert len(launches) > 3000


def test_journal_that_cannot_grow(load: Load, journal: Decode, capfd: pytest.CaptureFixture[str]) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    runtime = load(LEVEL=2, FILTER="!*", PRINT="none")
    site = runtime.site(0, "k", Slot("x"))
    resource.setrlimit(resource.RLIMIT_FSIZE, (2 << 20, before[1]))
    try:
        many(runtime, site, 30_000, Handle(torch.ones(1)))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    runtime.unload()
    (note,) = journal().of("note")
    assert note.text == "recording stopped: the journal cannot grow: File too large"
    assert len(journal().of("launch_begin")) > 3000
    assert len(capfd.readouterr().err.splitlines()) == 1
