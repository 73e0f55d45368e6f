"""Statistics that wait for others: when they may, and that they are of the moment that they were asked for."""

from __future__ import annotations

import ctypes
import gc
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from aoti_debug.base.abi import StatsFlag
from aoti_debug.runs.rundir.summaries import HEADER, ROW
from tests.runtime_shims.heap import held_bytes
from tests.runtime_shims.journal_decoder import Journal
from tests.runtime_shims.reference_hash import content_hash
from tests.runtime_shims.runtime_library import (
    ADDRESS,
    IN,
    INOUT,
    OPAQUE,
    OUT,
    POINTER,
    UNKNOWN,
    CValue,
    Handle,
    Runtime,
    Slot,
)

Load = Callable[..., Runtime]
Start = Callable[..., Runtime]
BURST = 16  # a breadcrumb follows every 16th launch


@pytest.fixture
def start(load: Load, device_library: Path) -> Start:
    def start_(**variables: object) -> Runtime:
        variables = {"PRINT": "none", "WATCH": "y: max > 5", "CRUMB_EVERY": BURST, **variables}
        runtime = load(device_library, **variables)
        runtime.site(0, "triton_poi_fused_0", Slot("y", role=OUT), grid=True)
        return runtime

    return start_


@pytest.fixture
def collector_off() -> Iterator[None]:
    """Nothing of Python's is freed but by its last reference."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def on_device(runtime: Runtime, tensor: torch.Tensor) -> Handle:
    handle = Handle(tensor)
    runtime.lib.f_mark(handle.pointer)
    return handle


def writes(runtime: Runtime, handle: Handle) -> None:
    """A launch of a generated kernel that writes `y`."""
    with runtime.launch(0, handle.value):
        pass


def hits(runtime: Runtime, journal: Callable[[], Journal]) -> list[tuple[int, float]]:
    runtime.unload()
    return [(hit.launch, hit.value) for hit in journal().of("watch_hit")]


def test_one_kernel_for_many_launches(start: Start, journal: Callable[[], Journal]) -> None:
    runtime = start()
    tensors = [torch.full((10,), float(n)) for n in range(8)]
    handles = [on_device(runtime, tensor) for tensor in tensors]
    with runtime.call():
        for handle in handles:
            writes(runtime, handle)
        assert runtime.lib.f_kernels() == 0
    assert runtime.lib.f_kernels() == 1
    assert hits(runtime, journal) == [(6, 6.0), (7, 7.0)]


def test_a_breadcrumb_ends_the_waiting(start: Start) -> None:
    runtime = start(CRUMB_EVERY=3)
    handles = [on_device(runtime, torch.ones(10)) for _ in range(7)]
    kernels = []
    with runtime.call():
        for handle in handles:
            writes(runtime, handle)
            kernels.append(runtime.lib.f_kernels())
    assert kernels == [0, 0, 1, 1, 1, 2, 2]


def test_by_default_short_runs_wait_for_nothing(start: Start) -> None:
    runtime = start(CRUMB_EVERY=None, WATCH="*: nan")
    x, y = on_device(runtime, torch.ones(10)), on_device(runtime, torch.ones(10))
    runtime.site(0, "triton_poi_fused_0", Slot("x", role=OUT), Slot("y", role=OUT, value=1), grid=True)
    kernels = []
    with runtime.call():
        for _ in range(3):
            with runtime.launch(0, x.value, y.value):
                pass
            kernels.append(runtime.lib.f_kernels())
    assert kernels == [1, 2, 3], "one for all tensors of a launch"


@pytest.mark.parametrize("role", [OUT, INOUT, UNKNOWN])
@pytest.mark.parametrize("place", ["whole", "view"])
def test_a_launch_that_writes_there_comes_after(
    start: Start, journal: Callable[[], Journal], role: int, place: str
) -> None:
    runtime = start()
    y = torch.full((10,), 7.0)
    handle = on_device(runtime, y)
    other = on_device(runtime, y if place == "whole" else y[9:])
    runtime.site(1, "triton_poi_fused_1", Slot("z", role=role), grid=True)
    with runtime.call():
        writes(runtime, handle)
        with runtime.launch(1, other.value):
            y.fill_(1)
    assert hits(runtime, journal) == [(0, 7.0)]


@pytest.mark.parametrize(
    ("kernel", "grid", "slot", "waits"),
    [
        ("triton_poi_fused_1", True, Slot("z", role=IN), True),
        ("triton_poi_fused_1", True, Slot("z", role=OUT), True),
        ("aoti_torch_cuda_mm_out", False, Slot("z", role=OUT), True),
        ("aoti_torch_cuda_convolution", False, Slot("z", role=IN), False),
        ("mylib::op.default", False, Slot("z", role=IN), False),
        ("triton_poi_fused_1", True, Slot("z", form=OPAQUE, role=0), False),
        ("triton_poi_fused_1", True, Slot("z", form=POINTER, role=OUT), False),
    ],
)
def test_what_others_may_write(start: Start, kernel: str, grid: bool, slot: Slot, waits: bool) -> None:
    runtime = start()
    y, z = on_device(runtime, torch.ones(10)), on_device(runtime, torch.ones(10))
    runtime.site(1, kernel, slot, grid=grid)
    with runtime.call():
        writes(runtime, y)
        launch = runtime.open_launch(1, CValue(z.address, ADDRESS) if slot.form == POINTER else z.value)
        assert runtime.lib.f_kernels() == (0 if waits else 1)
        launch.end()


def test_memory_is_kept_until_it_has_been_read(start: Start, journal: Callable[[], Journal]) -> None:
    runtime = start()
    with runtime.call():
        handle = on_device(runtime, torch.full((1000,), 7.0))
        writes(runtime, handle)
        runtime.lib.f_unmark(handle.pointer)
        del handle
        gc.collect()
        others = [torch.zeros(1000) for _ in range(20)]
    assert len(others) == 20
    assert hits(runtime, journal) == [(0, 7.0)]


def test_a_launch_within_a_launch_has_its_own_tensors(start: Start, journal: Callable[[], Journal]) -> None:
    runtime = start()
    outer, inner = on_device(runtime, torch.full((10,), 7.0)), on_device(runtime, torch.full((10,), 8.0))
    with runtime.call(), runtime.launch(0, outer.value):
        writes(runtime, inner)
    assert hits(runtime, journal) == [(1, 8.0), (0, 7.0)]


def test_what_an_operator_has_made_of_its_tensor_is_watched(start: Start, journal: Callable[[], Journal]) -> None:
    runtime = start(WATCH="z: numel == 3")
    z = torch.ones(10)
    runtime.site(1, "aoti_torch_cuda_mm_out", Slot("z", role=OUT))
    handle = on_device(runtime, z)
    with runtime.call(), runtime.launch(1, handle.value):
        z.resize_(3)
    assert hits(runtime, journal) == [(0, 3.0)]


def test_many_launches_take_no_more_memory(start: Start, collector_off: None) -> None:
    runtime = start()
    handles = [on_device(runtime, torch.ones(10)) for _ in range(2)]
    held, launches = [], 125 * BURST
    with runtime.call():
        for _ in range(10):
            for number in range(launches):
                writes(runtime, handles[number % 2])
            held.append(held_bytes())
    assert max(held) < held[0] + launches  # less than a byte a launch: other threads have memory, too


def test_a_large_tensor_is_not_kept(start: Start) -> None:
    runtime = start()
    handle = on_device(runtime, torch.ones(1 << 20))
    with runtime.call():
        writes(runtime, handle)
        assert runtime.lib.f_kernels() == 1


@pytest.mark.parametrize("action", ["save", "stack"])
@pytest.mark.parametrize(("level", "kernels"), [(3, 1), ("hash", 2)])
def test_actions_that_need_the_moment(start: Start, action: str, level: int | str, kernels: int) -> None:
    runtime = start(ON_HIT=action, LEVEL=level)
    handle = on_device(runtime, torch.ones(10))
    with runtime.call():
        writes(runtime, handle)
        assert runtime.lib.f_kernels() == kernels


def test_what_is_read_is_measured_before_the_launch_changes_it(start: Start, journal: Callable[[], Journal]) -> None:
    runtime = start(PHASE="before")
    y = torch.full((10,), 7.0)
    handle = on_device(runtime, y)
    runtime.site(0, "triton_poi_fused_0", Slot("y", role=INOUT), grid=True)
    with runtime.call():
        for _ in range(3):
            with runtime.launch(0, handle.value):
                y += 1
    assert hits(runtime, journal) == [(0, 7.0), (1, 8.0), (2, 9.0)]


def test_more_than_a_kernel_takes_and_the_device_has_room_for(start: Start, journal: Callable[[], Journal]) -> None:
    runtime = start(CRUMB_EVERY=100)
    tensors = [torch.full((10,), float(n)) for n in range(40)]
    handles = [on_device(runtime, tensor) for tensor in tensors]
    with runtime.call():
        for handle in handles:
            writes(runtime, handle)
    assert hits(runtime, journal) == [(n, float(n)) for n in range(6, 40)]


def test_summaries_wait_as_well(start: Start, run: Path) -> None:
    runtime = start(WATCH=None, SUMMARIES=1)
    tensors = [torch.full((2, 5), float(n)).t() for n in range(6)]
    handles = [on_device(runtime, tensor) for tensor in tensors]
    with runtime.call():
        for handle in handles:
            writes(runtime, handle)
        assert runtime.lib.f_kernels() == 0
    runtime.unload()
    data = (run / "summaries.bin").read_bytes()
    names = [name for name, _ in ROW.fields if not name.startswith("reserved")]
    rows: list[dict[str, Any]] = [
        dict(zip(names, row, strict=True)) for row in ROW.codec.iter_unpack(data[HEADER.size :])
    ]
    assert [(row["launch"], row["numel"], row["max"]) for row in rows] == [(n, 10, float(n)) for n in range(6)]


def hashes(runtime: Runtime, journal: Callable[[], Journal]) -> list[tuple[int, int, int]]:
    runtime.unload()
    return [(record.launch, record.phase, record.hash) for record in journal().of("tensor_stats")]


def hash_of(tensor: torch.Tensor) -> int:
    return content_hash(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())


def test_hashes_after_a_launch_wait_for_those_before_the_next(start: Start, journal: Callable[[], Journal]) -> None:
    runtime = start(LEVEL="hash", WATCH=None, CRUMB_EVERY=None)
    runtime.site(1, "triton_poi_fused_1", Slot("x", role=IN), Slot("y", role=INOUT, value=1), grid=True)
    x, y = torch.arange(10.0), torch.ones(10)
    handles = [on_device(runtime, x), on_device(runtime, y)]
    expected, kernels = [], []
    with runtime.call():
        for launch in range(3):
            expected += [(launch, 0, hash_of(x)), (launch, 0, hash_of(y))]
            with runtime.launch(1, *(handle.value for handle in handles)):
                kernels.append(runtime.lib.f_kernels())
                y += 1
            expected.append((launch, 1, hash_of(y)))
    assert kernels == [1, 2, 3], "the results of one launch and what the next one reads are one kernel"
    assert runtime.lib.f_kernels() == 4
    assert hashes(runtime, journal) == expected


def test_a_result_that_the_next_launch_reads_is_read_once(start: Start, journal: Callable[[], Journal]) -> None:
    runtime = start(LEVEL="hash", WATCH=None)
    runtime.site(1, "triton_poi_fused_1", Slot("x", role=IN), Slot("z", role=IN, value=1), Slot("t", role=IN, value=2))
    y = torch.arange(12.0).view(3, 4)
    turned = y.t()
    handles = [on_device(runtime, tensor) for tensor in (y, y, turned)]
    with runtime.call():
        writes(runtime, handles[0])
        with runtime.launch(1, *(handle.value for handle in handles)):
            assert runtime.lib.f_measured() == 2
    whole, across = hash_of(y), hash_of(turned)
    assert hashes(runtime, journal) == [(0, 1, whole), (1, 0, whole), (1, 0, whole), (1, 0, across)]


def test_a_watched_result_that_the_next_launch_reads_is_measured_once(
    start: Start, journal: Callable[[], Journal]
) -> None:
    runtime = start(WATCH="*: max > 5")
    runtime.site(1, "triton_poi_fused_1", Slot("x", role=IN), Slot("bits", role=IN, value=1))
    y = torch.arange(12.0)
    handles = [on_device(runtime, tensor) for tensor in (y, y, y.view(torch.int32))]
    with runtime.call():
        writes(runtime, handles[0])
        with runtime.launch(1, handles[1].value, handles[2].value):
            pass
    assert runtime.lib.f_measured() == 2
    assert hits(runtime, journal) == [(0, 11.0), (1, 11.0), (1, float(y.view(torch.int32).max()))]


def test_hashed_memory_is_kept_until_the_next_launch(start: Start, journal: Callable[[], Journal]) -> None:
    runtime = start(LEVEL="hash", WATCH=None, CRUMB_EVERY=1)
    expected = []
    with runtime.call():
        y = torch.full((1 << 20,), 7.0)
        expected.append((0, 1, hash_of(y)))
        handle = on_device(runtime, y)
        writes(runtime, handle)
        runtime.lib.f_unmark(handle.pointer)
        del handle, y
        gc.collect()
        others = [torch.zeros(1 << 20) for _ in range(4)]
    assert len(others) == 4
    assert hashes(runtime, journal) == expected


def test_what_waits_when_another_thread_fails_has_no_hash(start: Start, journal: Callable[[], Journal]) -> None:
    """Then no later launch of the call is seen: who knows what has changed the tensor since."""
    runtime = start(LEVEL="hash", WATCH=None)
    tensor = torch.ones(10)
    y = on_device(runtime, tensor)

    def fail() -> None:
        with runtime.failing(0, 1 << 30):
            runtime.lib.h_call_begin((ctypes.c_uint64 * 8)(), 0, ctypes.c_void_p(1), None)

    with runtime.call():
        writes(runtime, y)
        other = threading.Thread(target=fail)
        other.start()
        other.join()
        tensor.fill_(2)
    runtime.unload()
    (unread,) = journal().of("tensor_stats")
    assert (unread.flags, unread.hash) == (StatsFlag.SKIPPED, 0)
