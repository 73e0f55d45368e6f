from __future__ import annotations

import gc
import tracemalloc
from pathlib import Path

import pytest

from aoti_debug.base.abi import CallKind, Phase
from aoti_debug.base.errors import RunDirError
from aoti_debug.package.argument_values import Number
from aoti_debug.package.manifest import CType, Role
from aoti_debug.runs.rundir import timeline
from aoti_debug.runs.rundir.formats import journal as journal_module
from aoti_debug.runs.rundir.formats.journal_records import LaunchKey
from aoti_debug.runs.rundir.launch import Launch, LaunchStatus
from aoti_debug.runs.rundir.run_directory import RunDir, open_run
from tests.factories import JournalWriter, arg, make_manifest, run_directory, site, statistics, tensor

X, Y, Z = tensor(8, 32), tensor(8, 64, data_ptr=0x9000), tensor(4, data_ptr=0xF000)
PACKAGE = make_manifest(
    site("first", arg("x"), arg("buf0", Role.OUT)), site("second", arg("buf0"), arg("n"), arg("buf1", Role.OUT))
)
BLOCK = 4096
CALLS = 200


def write(base: Path, *, calls: int = CALLS, block_bytes: int = BLOCK) -> Path:
    """Two threads whose calls overlap; the statistics of a call follow its end, and the last launch is open."""
    journal = JournalWriter(level=2, block_bytes=block_bytes)
    for call in range(0, calls, 2):
        both = (call, call + 1)
        for thread in both:
            journal.thread = thread % 2 + 1
            journal.call_begin(call=thread)
        for number in range(3):
            for thread in both:
                journal.thread = thread % 2 + 1
                journal.launch_begin(
                    number, number % 2, *((X, Y), (Y, Number(thread, CType.I64), Z))[number % 2], call=thread
                )
            for thread in both:
                journal.thread = thread % 2 + 1
                if number < 2 or thread < calls - 1:
                    journal.launch_end(number, call=thread, outputs={1: Z} if thread % 3 else None)
        for thread in both:
            journal.thread = thread % 2 + 1
            journal.call_end(call=thread, launches=3)
            journal.tensor_stats(0, 1, Phase.AFTER, statistics(max=float(thread)), layout=Y.layout, call=thread)
    return run_directory(base, PACKAGE, journal)


def described(launch: Launch) -> tuple[object, ...]:
    ends = (launch.begin_ns, launch.end_ns, launch.status, launch.thread, launch.sequence)
    return (launch.key, launch.site.id, *ends, launch.args, launch.stats, launch.tensors(), launch.is_measured)


def test_a_journal_that_is_read_again_shows_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path)
    kept = open_run(path)
    whole = [described(launch) for launch in kept.launches]
    calls = list(kept.timeline.calls)
    monkeypatch.setattr(journal_module, "_KEPT_BLOCKS", 2)
    monkeypatch.setattr(timeline, "_KEPT", 3)
    again = open_run(path)
    assert [described(launch) for launch in again.launches] == whole
    assert [described(again.launches[at]) for at in reversed(range(len(whole)))] == whole[::-1]
    assert list(again.timeline.calls) == calls
    assert list(again.launches) == list(again.launches) != list(kept.launches)
    assert len(whole) == 3 * CALLS
    assert [item[0] for item in whole[:4]] == [LaunchKey(CallKind.MODEL, call, n) for n in (0, 1) for call in (0, 1)]
    assert [launch.key for launch in again.launches.of_status(LaunchStatus.OPEN)] == [(CallKind.MODEL, CALLS - 1, 2)]


def test_what_is_found_without_looking_at_every_launch(tmp_path: Path) -> None:
    run = open_run(write(tmp_path))
    launches, whole = run.launches, list(run.launches)
    for position, launch in enumerate(whole):
        assert launches.position(launch.key) == position
        assert launches.find(launch.key) is launch
    assert launches.find(LaunchKey(CallKind.MODEL, CALLS, 0)) is None
    assert launches.find(LaunchKey(CallKind.CONSTANT, 0, 0)) is None
    assert (launches[-1], launches[1:4:2]) == (whole[-1], (whole[1], whole[3]))
    with pytest.raises(IndexError):
        _ = launches[len(whole)]
    for launch in whole[:: CALLS // 3]:
        position = whole.index(launch)
        of_call = [other for other in whole if other.key.call == launch.key.call]
        assert list(launches.of_call(launch)) == of_call
        assert list(launches.later_in_call(launch)) == [other for other in of_call if whole.index(other) > position]
        earlier = [at for at in range(position) if whole[at] in of_call]
        assert list(launches.earlier(position, ())) == earlier[::-1]
        of_site = [at for at in range(position) if whole[at].site.id == 1 or at in earlier]
        assert list(launches.earlier(position, {1})) == of_site[::-1]
    assert [launch for call in launches.by_call() for launch in call] == sorted(whole, key=lambda launch: launch.key)
    assert {launch.site.id for call in launches.by_call({1}) for launch in call} == {1}
    assert run.kernels() == ("first", "second")
    assert run.launches_of("sec*") == tuple(launch for launch in whole if launch.site.id == 1)


def test_layouts_of_all_blocks_are_the_same_objects(tmp_path: Path) -> None:
    run = open_run(write(tmp_path))
    layouts = {id(found.layout): found.layout for launch in run.launches for found in launch.tensors() if found}
    assert sorted(layout.shape for layout in layouts.values()) == [(4,), (8, 32), (8, 64)]


def test_a_journal_that_was_overwritten_since_it_was_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "_KEPT_BLOCKS", 2)
    path = write(tmp_path)
    run = open_run(path)
    first = run.launches[0]
    (path / "journal.bin").write_bytes((path / "journal.bin").read_bytes()[: 64 + BLOCK])
    with pytest.raises(RunDirError, match="was overwritten while it was read"):
        list(map(described, run.launches))
    assert first.key == LaunchKey(CallKind.MODEL, 0, 0)


def test_a_journal_that_was_removed_since_it_was_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "_KEPT_BLOCKS", 2)
    path = write(tmp_path)
    run = open_run(path)
    assert len(run.launches) == 3 * CALLS
    (path / "journal.bin").unlink()
    assert sum(len(launch.args) for launch in run.launches) == (2 + 3 + 2) * CALLS


LARGE = 1 << 16  # bytes of a block, as the runtime's
BYTES_A_LAUNCH = 100


def kept_and_peak(path: Path) -> tuple[int, int, RunDir]:
    """The bytes that an opened timeline keeps, and the most at once while every launch is looked at."""
    gc.collect()
    tracemalloc.start()
    try:
        run = open_run(path)
        assert run.launches
        kept, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        assert sum(len(launch.tensors()) for launch in run.launches)
        assert sum(call.begin_ns for call in run.timeline.calls)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return kept, peak, run


def test_a_launch_more_takes_few_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "_KEPT_BLOCKS", 8)
    monkeypatch.setattr(timeline, "_KEPT", 100)
    sizes = (2000, 8000)  # calls
    measured = [kept_and_peak(write(tmp_path / str(calls), calls=calls, block_bytes=LARGE)) for calls in sizes]
    counts = [len(run.launches) for _, _, run in measured]
    assert counts == [3 * calls for calls in sizes]
    (kept, peak, _), (more_kept, more_peak, run) = measured
    assert (more_kept - kept) / (counts[1] - counts[0]) < BYTES_A_LAUNCH
    assert (more_peak - peak) / (counts[1] - counts[0]) < BYTES_A_LAUNCH
    assert sum(isinstance(found, Launch) for found in gc.get_objects()) < 1000
    assert len(list(run.launches)) == counts[1]
