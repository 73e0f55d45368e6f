"""The flight recorder: inputs of the last launches in shared memory."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from aoti_debug.runs.rundir import flight_recorder
from aoti_debug.runs.rundir.flight_recorder import FlightStatus, KeptLaunch, Recording
from tests.runtime_shims.journal_decoder import Journal
from tests.runtime_shims.reference_hash import content_hash
from tests.runtime_shims.runtime_library import (
    IN,
    INOUT,
    LIST,
    OPTIONAL,
    OUT,
    OUTPUT_SLOT,
    UNKNOWN,
    Handle,
    Runtime,
    Slot,
    address_of,
    handles,
)

Load = Callable[..., Runtime]
Decode = Callable[[], Journal]
KEPT, TOO_LARGE, UNREADABLE, NOT_COPIED, BUSY, FULL, REFERRED = FlightStatus
PAGE = 4096


@pytest.fixture
def start(load: Load, device_library: Path) -> Load:
    def start_(**variables: object) -> Runtime:
        return load(device_library, PRINT="none", **variables)

    return start_


def on_device(runtime: Runtime, tensor: torch.Tensor) -> Handle:
    handle = Handle(tensor)
    runtime.lib.f_mark(handle.pointer)
    return handle


def set_(runtime: Runtime, what: str, value: int) -> None:
    runtime.lib.f_set(what.encode(), value)


def recording(run: Path) -> Recording:
    found = flight_recorder.read(run / "flight.bin")
    assert found is not None
    return found


def contents(found: Recording, launch: KeptLaunch, dtype: str = "f4") -> list[list[float]]:
    return [np.frombuffer(found.bytes_of(t), dtype).tolist() for t in launch.tensors if t.status is KEPT]


def kept(run: Path) -> dict[str, list[list[float]]]:
    """Launch -> what each of its tensors held."""
    found = recording(run)
    return {str(launch.key): contents(found, launch) for launch in found.launches}


def launch_with(runtime: Runtime, site: int, *handles: Handle) -> None:
    with runtime.launch(site, *(handle.value for handle in handles)):
        pass


@pytest.mark.parametrize("level", [1, 2, 3])
def test_inputs_are_kept_as_they_were_before_the_launch(load: Load, run: Path, level: int) -> None:
    runtime = load(LEVEL=level, FLIGHT=4, FILTER="!*")
    slots = [Slot("a", role=IN), Slot("b", role=INOUT, value=1), Slot("c", role=UNKNOWN, value=2)]
    slots += [Slot("d", role=OUT, value=3), Slot("a", role=IN, value=0)]
    site = runtime.site(0, "k", *slots)
    a, b, c, d = (torch.full((3,), float(value)) for value in range(4))
    given = [Handle(tensor) for tensor in (a, b, c, d)]
    with runtime.call():
        for _ in range(2):
            with runtime.launch(site, *(handle.value for handle in given)):
                b += 10
    found = recording(run)
    assert (found.keep, [str(launch.key) for launch in found.launches]) == (4, ["0.0", "0.1"])
    assert [tensor.slot for tensor in found.launches[0].tensors] == [0, 1, 2]
    assert [tensor.address for tensor in found.launches[0].tensors] == [t.data_ptr() for t in (a, b, c)]
    assert kept(run) == {"0.0": [[0] * 3, [1] * 3, [2] * 3], "0.1": [[0] * 3, [11] * 3, [2] * 3]}
    assert os.readlink(run / "flight.bin").startswith("/dev/shm/")


def test_the_memory_of_a_strided_tensor_is_kept_with_its_gaps(load: Load, run: Path) -> None:
    runtime = load(FLIGHT=1)
    site = runtime.site(0, "k", Slot("x"), Slot("y", value=1), Slot("z", value=2))
    base = torch.arange(12.0)
    x, y, z = base.reshape(3, 4)[1:, 1:3].t(), torch.ones(1).expand(1000), torch.ones(3, 0)
    with runtime.call():
        launch_with(runtime, site, Handle(x), Handle(y), Handle(z))
    assert kept(run) == {"0.0": [[5, 6, 7, 8, 9, 10], [1], []]}


def test_old_launches_go_wholly(load: Load, run: Path) -> None:
    runtime = load(FLIGHT=2, FLIGHT_BYTES=3 * PAGE)
    site = runtime.site(0, "k", Slot("x"), Slot("y", value=1))
    x, y = torch.zeros(512), torch.zeros(16)
    given = Handle(x), Handle(y)
    for number in range(20):
        x.fill_(number)
        y.fill_(-number)
        with runtime.call():
            launch_with(runtime, site, *given)
        found = kept(run)
        assert list(found)[-1] == f"{number}.0"
        assert len(found) >= min(number + 1, 3)
        for launch, tensors in found.items():
            value = int(launch.partition(".")[0])
            assert tensors == [[value] * 512, [-value] * 16]
    assert [str(launch.key) for launch in recording(run).launches_until(None)] == ["18.0", "19.0"]
    assert [str(launch.key) for launch in recording(run).launches_until(recording(run).launches[-2].key)][-1] == "18.0"


def test_the_memory_grows_to_what_the_launches_need(load: Load, run: Path) -> None:
    runtime = load(FLIGHT=2)
    site = runtime.site(0, "k", Slot("x"))
    small, large = Handle(torch.ones(16)), Handle(torch.ones(1 << 23))
    with runtime.call():
        launch_with(runtime, site, small)
        path = Path(os.readlink(run / "flight.bin"))
        assert path.stat().st_blocks * 512 < 20 << 20
        launch_with(runtime, site, large)
        launch_with(runtime, site, small)
    assert (32 << 20) <= path.stat().st_blocks * 512 < 70 << 20
    assert [len(tensors[0]) for tensors in kept(run).values()] == [16, 1 << 23, 16]


@pytest.fixture
def weight(tmp_path: Path) -> tuple[torch.Tensor, Path]:
    """A weight, and the table that says where a file has it."""
    tensor = torch.arange(512 * 1024, dtype=torch.float32).reshape(512, 1024)
    file, table = tmp_path / "model.pt2", tmp_path / "table"
    file.write_bytes(bytes(192) + tensor.numpy().tobytes())
    table.write_text(f"{file}\t{file.stat().st_size}\tabc\n{tensor.data_ptr()}\t{tensor.nbytes}\t192\n")
    return tensor, table


@pytest.mark.parametrize("level", [1, 3])
def test_weights_that_their_file_has_are_not_copied(
    load: Load, run: Path, weight: tuple[torch.Tensor, Path], level: int
) -> None:
    tensor, table = weight
    runtime = load(LEVEL=level, FLIGHT=4, FILTER="!*", WEIGHTS=table)
    site = runtime.site(0, "k", Slot("w"), Slot("rows", value=1), Slot("small", value=2), Slot("other", value=3))
    given = [Handle(t) for t in (tensor, tensor[100:400], tensor[:8], tensor.clone())]
    with runtime.call():
        launch_with(runtime, site, *given)
        tensor[511, 1023] = -1
        launch_with(runtime, site, *given)
    found = recording(run)
    assert found.weights is not None
    assert (Path(found.weights.path), found.weights.sha256) == (table.parent / "model.pt2", "abc")
    before, after = found.launches
    assert [(t.status, t.place) for t in before.tensors] == [
        (REFERRED, 192),
        (REFERRED, 192 + 100 * 4096),
        (KEPT, 0),
        (KEPT, 0),
    ]
    rows = tensor[100:400].numpy().tobytes()
    assert before.tensors[1].hash == (content_hash(rows), content_hash(rows, 0xD1B54A32D192ED03))
    assert [(t.status, t.place) for t in after.tensors[:2]] == [(KEPT, 192), (REFERRED, 192 + 100 * 4096)]
    assert bytes(found.bytes_of(after.tensors[0])) == tensor.numpy().tobytes()


def test_weights_on_a_device_are_copied_with_their_place(
    start: Load, run: Path, weight: tuple[torch.Tensor, Path]
) -> None:
    tensor, table = weight
    runtime = start(LEVEL=3, FLIGHT=2, FILTER="!*", WEIGHTS=table)
    site = runtime.site(0, "k", Slot("w"))
    with runtime.call():
        launch_with(runtime, site, on_device(runtime, tensor))
    (kept_tensor,) = recording(run).launches[0].tensors
    assert (kept_tensor.status, kept_tensor.place) == (KEPT, 192)


def test_small_tensors_come_before_large_ones(load: Load, run: Path) -> None:
    runtime = load(FLIGHT=2, FLIGHT_BYTES=PAGE)
    site = runtime.site(0, "k", Slot("weight"), Slot("index", value=1), Slot("sparse", value=2))
    given = Handle(torch.ones(1 << 20)), Handle(torch.full((4,), 3.0)), Handle(torch.eye(3).to_sparse())
    with runtime.call():
        launch_with(runtime, site, *given)
    (launch,) = recording(run).launches
    assert [tensor.status for tensor in launch.tensors] == [TOO_LARGE, KEPT, UNREADABLE]
    assert np.frombuffer(recording(run).bytes_of(launch.tensors[1]), "f4").tolist() == [3] * 4


def test_lists_optionals_and_output_slots(load: Load, run: Path) -> None:
    runtime = load(FLIGHT=1)
    one, two, three = (Handle(torch.full((2,), float(n))) for n in (1, 2, 3))
    listed, optional, result = handles(one, None, two), handles(three), handles(None)
    slots = [*(Slot(f"xs{i}", LIST, IN, 0, i) for i in range(3)), Slot("o", OPTIONAL, IN, 1)]
    site = runtime.site(0, "k", *slots, Slot("r", OUTPUT_SLOT, OUT, 2))
    with runtime.call(), runtime.launch(site, *(address_of(a) for a in (listed, optional, result))):
        result[0] = one.address
    assert kept(run) == {"0.0": [[1, 1], [2, 2], [3, 3]]}
    assert [tensor.slot for tensor in recording(run).launches[0].tensors] == [0, 2, 3]


def test_threads_do_not_tear_each_others_launches(load: Load, run: Path) -> None:
    runtime = load(FLIGHT=4, FLIGHT_BYTES=8 * PAGE, PRINT="none")
    sites = [runtime.site(n, f"k{n}", Slot("x")) for n in range(3)]
    checked = 0

    def work(thread: int) -> None:
        tensor = torch.zeros(512)
        handle = Handle(tensor)
        with runtime.call(model=thread + 1):
            for number in range(150):
                tensor.fill_(thread * 1000 + number)
                launch_with(runtime, sites[thread], handle)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = recording(run)
    for launch in found.launches:
        for tensor in launch.tensors:
            if tensor.status is KEPT:
                values = np.frombuffer(found.bytes_of(tensor), "f4")
                assert len(set(values.tolist())) == 1
                assert values[0] % 1000 == launch.key.launch
                checked += 1
    assert checked >= 4


def test_no_recorder_unless_asked_for(load: Load, run: Path) -> None:
    for variables in ({}, {"FLIGHT": 0}, {"FLIGHT": 3, "LEVEL": 0}):
        runtime = load(RUN=None, DIR=run / "runs", **variables)
        site = runtime.site(0, "k", Slot("x"))
        with runtime.call():
            launch_with(runtime, site, Handle(torch.ones(1)))
        runtime.unload()
    assert not list(run.rglob("flight.bin"))


def test_a_recorder_that_cannot_be_set_up(load: Load, run: Path, journal: Decode) -> None:
    before = shared_files()
    runtime = load(FLIGHT=3, FLIGHT_BYTES="9999T")
    site = runtime.site(0, "k", Slot("x"))
    for _ in range(2):
        with runtime.call():
            launch_with(runtime, site, Handle(torch.ones(1)))
    runtime.unload()
    ((code, text),) = [(r.code, r.text) for r in journal().of("note")]
    assert (code, text.startswith("no flight recorder: cannot set up")) == (5, True)
    assert len(journal().of("launch_end")) == 2
    assert not (run / "flight.bin").is_symlink()
    assert shared_files() == before


def test_a_recorder_without_bytes_is_said_to_be_off(load: Load, journal: Decode) -> None:
    runtime = load(FLIGHT=3, FLIGHT_BYTES="0")
    with runtime.call():
        launch_with(runtime, runtime.site(0, "k", Slot("x")), Handle(torch.ones(1)))
    runtime.unload()
    assert [r.text for r in journal().of("note")] == ["no flight recorder: AOTI_DEBUG_FLIGHT_BYTES is 0"]


def shared_files() -> set[str]:
    """The names of this process's shared memory."""
    return {path.name for path in Path("/dev/shm").glob(f"aoti_debug-{os.getpid()}-*")}


@pytest.mark.parametrize("fails", [False, True])
def test_without_a_parent_the_memory_of_a_clean_run_goes(load: Load, tmp_path: Path, fails: bool) -> None:
    runtime = load(RUN=None, DIR=tmp_path / "runs", FLIGHT=2)
    site = runtime.site(0, "k", Slot("x"))
    handle = Handle(torch.ones(1))
    with runtime.call():
        launch = runtime.open_launch(site, handle.value)
        launch.end(1 if fails else 0)
    path = tmp_path / "runs" / "latest" / "flight.bin"
    shared = Path(os.readlink(path))
    assert shared.exists()
    runtime.unload()
    assert (path.is_symlink(), shared.exists()) == (fails, fails)
    assert is_mapped(shared) == fails


def is_mapped(shared: Path) -> bool:
    return str(shared) in Path("/proc/self/maps").read_text()


# ---- a device, whose work is done when the test says so


def filled(runtime: Runtime, value: float, elements: int = 4096) -> Handle:
    """A tensor that lives until the device has come to it."""
    handle = on_device(runtime, torch.full((elements,), float(value)))
    runtime.keep(handle)
    return handle


def pointer(stream: int) -> ctypes.c_void_p:
    return ctypes.c_void_p(stream)


@pytest.mark.parametrize("waits", [False, True])
def test_memory_that_the_device_may_still_write_to_stays(start: Load, tmp_path: Path, waits: bool) -> None:
    runtime = start(RUN=None, DIR=tmp_path / "runs", FLIGHT=2, FLIGHT_BYTES=16 * PAGE)
    set_(runtime, "flight waits", int(waits))
    with runtime.call():
        launch_with(runtime, runtime.site(0, "k", Slot("x")), filled(runtime, 1))
    shared = Path(os.readlink(tmp_path / "runs" / "latest" / "flight.bin"))
    runtime.unload()
    assert not shared.exists()
    assert is_mapped(shared) == waits


def test_what_the_device_has_not_reached_overwrites_nothing(start: Load, run: Path) -> None:
    """The host is far ahead: what counts is what the device had come to."""
    runtime = start(FLIGHT=2, FLIGHT_BYTES=16 * PAGE)  # 15 pages for the device: three launches of four pages
    set_(runtime, "flight waits", 1)
    site = runtime.site(0, "k", Slot("x"))
    with runtime.call():
        for value in range(10):
            launch_with(runtime, site, filled(runtime, value))
        assert kept(run) == {}
        runtime.lib.f_work(None, 2 * 4)  # of each launch a copy and the word behind it
        assert {launch: tensors[0][0] for launch, tensors in kept(run).items()} == {"0.2": 2, "0.3": 3}
        runtime.lib.f_work(None, 1)
        assert list(kept(run)) == ["0.2", "0.3"]  # the copy of 0.4 was made where 0.1 had been
        runtime.lib.f_work(None, 100)
    assert {launch: set(tensors[0]) for launch, tensors in kept(run).items()} == {
        "0.7": {7},
        "0.8": {8},
        "0.9": {9},
    }


def test_a_stream_does_not_take_what_another_may_still_write_to(start: Load, run: Path) -> None:
    runtime = start(FLIGHT=2, FLIGHT_BYTES=16 * PAGE)
    set_(runtime, "flight waits", 1)
    site = runtime.site(0, "k", Slot("x"))
    first, second = 0x10, 0x20
    with runtime.call(stream=first):
        for value in range(3):
            launch_with(runtime, site, filled(runtime, value))
    with runtime.call(stream=second):
        launch_with(runtime, site, filled(runtime, 100))
    runtime.lib.f_work(pointer(second), 100)
    assert [launch.tensors[0].status for launch in recording(run).launches] == [BUSY]
    runtime.lib.f_work(pointer(first), 2)
    with runtime.call(stream=second):
        launch_with(runtime, site, filled(runtime, 101))
    runtime.lib.f_work(pointer(first), 100)
    runtime.lib.f_work(pointer(second), 100)
    assert {launch: {v for of in tensors for v in of} for launch, tensors in kept(run).items()} == {
        "0.1": {1},
        "0.2": {2},
        "1.0": set(),
        "2.0": {101},
    }


def test_tensors_in_host_memory_beside_a_devices(start: Load, run: Path) -> None:
    runtime = start(FLIGHT=2, FLIGHT_BYTES=64 * PAGE)
    set_(runtime, "flight waits", 1)
    site = runtime.site(0, "k", Slot("x"), Slot("n", value=1))
    number = torch.zeros(4)
    n = Handle(number)
    with runtime.call():
        for value in range(3):
            number.fill_(-value)
            launch_with(runtime, site, filled(runtime, value, 8), n)
        runtime.lib.f_work(None, 100)
    assert kept(run) == {f"0.{v}": [[v] * 8, [-v] * 4] for v in range(3)}


def test_a_copy_that_the_device_refuses(start: Load, run: Path) -> None:
    runtime = start(FLIGHT=2, FLIGHT_BYTES="1M")
    set_(runtime, "copies fail", 1)
    site = runtime.site(0, "k", Slot("x"), Slot("n", value=1))
    with runtime.call():
        launch_with(runtime, site, filled(runtime, 1), Handle(torch.ones(2)))
    (launch,) = recording(run).launches
    assert [tensor.status for tensor in launch.tensors] == [NOT_COPIED, KEPT]


def test_it_stands_aside_under_graph_capture(start: Load, run: Path) -> None:
    runtime = start(FLIGHT=2, FLIGHT_BYTES="1M")
    site = runtime.site(0, "k", Slot("x"))
    for capturing in (1, 0):
        set_(runtime, "capturing", capturing)
        with runtime.call():
            launch_with(runtime, site, filled(runtime, 1))
    assert [str(launch.key) for launch in recording(run).launches] == ["1.0"]


def test_a_device_that_cannot_write_to_shared_memory(start: Load, run: Path, journal: Decode) -> None:
    runtime = start(FLIGHT=2, FLIGHT_BYTES="1M")
    set_(runtime, "flight fails", 1)
    site = runtime.site(0, "k", Slot("x"))
    with runtime.call():
        launch_with(runtime, site, filled(runtime, 1))
    runtime.unload()
    assert [r.text for r in journal().of("note")] == ["no flight recorder: the device cannot write to shared memory"]
    assert not (run / "flight.bin").is_symlink()
