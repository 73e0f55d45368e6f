from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from aoti_debug.package.manifest import Allocation
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.views.memory.lifetimes import HandleEvent, HandleUse, call_memory, run_memory
from aoti_debug.views.memory.storage_timeline import CallMemory, Use
from tests.factories import tensor
from tests.views.memory.small_call import EVENTS, KIB, MANIFEST, recorded


def followed(run: RunDir, *events: HandleEvent) -> CallMemory:
    return call_memory(run.manifest, [launch for launch in run.launches if launch.key.call == 0], events)


def lives(call: CallMemory) -> dict[tuple[str, ...], tuple[Use, int, int]]:
    return {storage.names: (storage.use, storage.first, storage.last) for storage in call.storages}


def test_buffers_live_until_the_wrapper_drops_them(tmp_path: Path) -> None:
    call = followed(recorded(tmp_path), *EVENTS)
    assert lives(call) == {
        ("x",): (Use.INPUT, 0, 2),
        ("w",): (Use.WEIGHT, 0, 2),
        ("buf0",): (Use.BUFFER, 0, 1),
        ("buf1", "buf2"): (Use.BUFFER, 1, 2),
        ("buf3",): (Use.OUTPUT, 2, 2),
    }
    assert call.allocated == (KIB, 2 * KIB, 2 * KIB)
    assert (call.peak, call.peak_bytes) == (1, 2 * KIB)
    assert [storage.name for storage in call.live(1)] == ["buf0", "buf1"]
    assert call.total(Use.WEIGHT) == KIB


def test_a_buffer_that_is_never_dropped_lives_until_the_end(tmp_path: Path) -> None:
    call = followed(recorded(tmp_path), *EVENTS[1:])
    assert lives(call)["buf0",] == (Use.BUFFER, 0, 2)
    assert call.peak_bytes == 3 * KIB


def test_a_view_keeps_the_memory(tmp_path: Path) -> None:
    view = HandleEvent("run_impl", 15, HandleUse.VIEW, "buf9", "buf0")
    call = followed(recorded(tmp_path), view, *EVENTS)
    assert lives(call)["buf0", "buf9"] == (Use.BUFFER, 0, 2)


def test_a_pool_is_counted_once(tmp_path: Path) -> None:
    """buf0 and buf1 lie in a pool of 2 KiB."""
    manifest = replace(MANIFEST, allocations=(Allocation("pool0", 5, True), *MANIFEST.allocations))
    events = [
        HandleEvent("run_impl", line, HandleUse.VIEW, name, "pool0") for name, line in (("buf0", 9), ("buf1", 19))
    ]
    first = tensor(256, data_ptr=0x2000, storage_bytes=2 * KIB)
    second = tensor(256, data_ptr=0x2000 + KIB, storage_offset=256, storage_bytes=2 * KIB)
    call = call_memory(manifest, recorded(tmp_path, buf0=first, buf1=second).launches, [*events, *EVENTS])
    pool = next(storage for storage in call.storages if storage.is_of_call)
    assert (pool.names, pool.bytes) == (("pool0", "buf0", "buf1", "buf2"), 2 * KIB)
    assert call.allocated == (2 * KIB, 2 * KIB, 3 * KIB)


def test_a_branch_that_was_not_taken_replaces_nothing(tmp_path: Path) -> None:
    other = [
        HandleEvent("run_impl", 15, HandleUse.DROP, "buf0"),
        HandleEvent("run_impl", 15, HandleUse.MOVE, "buf0", "other"),
    ]
    assert lives(followed(recorded(tmp_path), *other, *EVENTS))["buf0",] == (Use.BUFFER, 0, 1)


def test_without_the_wrapper_first_and_last_use_count(tmp_path: Path) -> None:
    memory = run_memory(recorded(tmp_path, calls=2))
    assert [call.call for call in memory.calls] == [0, 1]
    assert lives(memory.calls[1])["buf0",] == (Use.BUFFER, 0, 1)
    assert memory.notes == (
        "when buffers are dropped is not known: the package that was run was not found; they are taken to live until "
        "their last use",
    )
