"""What the runtime asks of a device: breadcrumbs, statistics and copies in order, graph capture, faults."""

from __future__ import annotations

import math
import os
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from aoti_debug.base.abi import NoteCode
from tests.runtime_shims.journal_decoder import Journal
from tests.runtime_shims.runtime_library import IN, INOUT, OUT, Handle, Runtime, Slot

BEFORE, AFTER = range(2)
Load = Callable[..., Runtime]
Decode = Callable[[], Journal]
Start = Callable[..., Runtime]


@pytest.fixture
def start(load: Load, device_library: Path) -> Start:
    def start_(**variables: object) -> Runtime:
        return load(device_library, **variables)

    return start_


def on_device(runtime: Runtime, tensor: torch.Tensor) -> Handle:
    handle = Handle(tensor)
    runtime.lib.f_mark(handle.pointer)
    return handle


def set_(runtime: Runtime, what: str, value: int) -> None:
    runtime.lib.f_set(what.encode(), value)


@dataclass(frozen=True)
class CrumbSlot:
    completed: int
    used: int
    stream: int
    replays: int = 0


def crumbs(path: Path) -> tuple[int, list[CrumbSlot]]:
    """How many launches a crumb, and the slots that are used."""
    data = path.read_bytes()
    magic, version, n_slots, every = struct.unpack_from("<8sIIQ", data)
    assert (magic, version) == (b"AOTIDBC1", 1)
    assert len(data) >= 64 + 64 * n_slots
    slots = [CrumbSlot(*struct.unpack_from("<IIQI", data, 64 + 64 * i)) for i in range(n_slots)]
    used = [slot for slot in slots if slot.used]
    assert used == slots[: len(used)]
    return every, used


def test_the_wall_clock_is_recorded_as_a_call_begins_and_ends(start: Start, journal: Decode) -> None:
    before = time.time_ns()
    runtime = start(PRINT="none")
    with runtime.call(), runtime.launch(runtime.site(0, "k")):
        pass
    runtime.unload()
    found = journal()
    begun, ended = found.of("clock")
    assert before <= begun.unix_ns < ended.unix_ns <= time.time_ns()
    (first,), (last,) = found.of("call_begin"), found.of("call_end")
    assert begun.time_ns <= first.time_ns < last.time_ns <= ended.time_ns


def test_a_crumb_a_launch(start: Start, run: Path, journal: Decode) -> None:
    runtime = start(PRINT="none")
    site = runtime.site(0, "k")
    seen = []
    for stream, model in ((0x10, 1), (0x20, 1), (0, 1), (0, 2), (0x10, 1)):
        with runtime.call(stream=stream, model=model):
            for _ in range(3):
                with runtime.launch(site):
                    pass
                seen.append(crumbs(run / "crumbs.bin")[1])
    assert os.readlink(run / "crumbs.bin").startswith("/dev/shm/")
    assert seen[0] == [CrumbSlot(1, 1, 0x10)]
    assert seen[5] == [CrumbSlot(3, 1, 0x10), CrumbSlot(6, 1, 0x20)]
    assert seen[-1] == [CrumbSlot(15, 1, 0x10), CrumbSlot(6, 1, 0x20), CrumbSlot(9, 1, 0), CrumbSlot(12, 1, 0)]
    runtime.unload()
    found = journal()
    assert [r.stream_slot for r in found.of("call_begin")] == [0, 1, 2, 3, 0]
    assert [r.stream_slot for r in found.of("launch_begin")][::3] == [0, 1, 2, 3, 0]
    assert found.header["every"] == 16


def test_a_crumb_every_n_launches(start: Start, run: Path, journal: Decode) -> None:
    runtime = start(PRINT="none", CRUMB_EVERY=4)
    site = runtime.site(0, "k")
    completed = []
    with runtime.call():
        for _ in range(10):
            with runtime.launch(site):
                pass
            completed.append(crumbs(run / "crumbs.bin")[1][0].completed)
    assert completed == [0, 0, 0, 4, 4, 4, 4, 8, 8, 8]
    assert crumbs(run / "crumbs.bin") == (4, [CrumbSlot(10, 1, 0)])  # the end of a call leaves one
    runtime.unload()
    assert journal().header["every"] == 4


def test_crumbs_without_a_parent_are_kept_as_a_copy(start: Start, tmp_path: Path) -> None:
    runtime = start(RUN=None, DIR=tmp_path / "runs", PRINT="none")
    site = runtime.site(0, "k")
    with runtime.call(), runtime.launch(site):
        pass
    path = tmp_path / "runs" / "latest" / "crumbs.bin"
    shared = os.readlink(path)
    runtime.unload()
    assert not path.is_symlink()
    assert crumbs(path) == (16, [CrumbSlot(1, 1, 0)])
    assert not Path(shared).exists()


def test_crumbs_of_a_parent_stay_where_they_are(start: Start, run: Path) -> None:
    runtime = start(PRINT="none")
    site = runtime.site(0, "k")
    with runtime.call(), runtime.launch(site):
        pass
    runtime.unload()
    shared = Path(os.readlink(run / "crumbs.bin"))
    assert crumbs(shared)[1] == [CrumbSlot(1, 1, 0)]
    shared.unlink()


@pytest.mark.parametrize(("value", "codes"), [("1", [NoteCode.GPU_CORE]), ("0", [])])
def test_core_dumps_of_the_gpu_are_noted(
    start: Start, journal: Decode, monkeypatch: pytest.MonkeyPatch, value: str, codes: list[NoteCode]
) -> None:
    monkeypatch.setenv("CUDA_ENABLE_COREDUMP_ON_EXCEPTION", value)
    runtime = start(PRINT="none")
    with runtime.call(), runtime.launch(runtime.site(0, "k")):
        pass
    runtime.unload()
    assert [note.code for note in journal().of("note")] == codes


def own_shared_memory() -> set[str]:
    return {name for name in os.listdir("/dev/shm") if str(os.getpid()) in name}


def test_crumbs_that_cannot_be_set_up(
    start: Start, run: Path, journal: Decode, capfd: pytest.CaptureFixture[str]
) -> None:
    before = own_shared_memory()
    runtime = start(PRINT="none")
    set_(runtime, "crumbs fail", 1)
    site = runtime.site(0, "k")
    for _ in range(2):
        with runtime.call(), runtime.launch(site):
            pass
    runtime.unload()
    text = "no breadcrumbs: the device cannot write to shared memory"
    assert [(r.code, r.text) for r in journal().of("note")] == [(4, text)]
    assert capfd.readouterr().err == f"aoti-debug: {text}\n"
    assert journal().header["every"] == 0
    assert not (run / "crumbs.bin").is_symlink()
    assert own_shared_memory() == before


@pytest.mark.parametrize("level", [1, 2, 3])
def test_graph_capture(start: Start, journal: Decode, run: Path, capfd: pytest.CaptureFixture[str], level: int) -> None:
    runtime = start(LEVEL=level)
    site = runtime.site(0, "k", Slot("x", role=INOUT))
    x = on_device(runtime, torch.ones(3))
    set_(runtime, "capturing", 1)
    for _ in range(2):
        with runtime.call(), runtime.launch(site, x.value):
            pass
    assert not (run / "crumbs.bin").is_symlink()
    set_(runtime, "capturing", 0)
    with runtime.call(), runtime.launch(site, x.value):
        pass
    runtime.unload()
    found = journal()
    assert [(r.flags, r.level) for r in found.of("call_begin")] == [(1, 3), (1, 3), (0, level)]
    assert {r.call for r in found.of("tensor_stats")} == ({2} if level == 2 else set())
    assert {r.call for r in found.of("tensor_file")} == ({2} if level == 1 else set())
    assert [r.code for r in found.of("note")] == ([4] if level == 3 else [4, 2])
    assert [r.stream_slot for r in found.of("launch_begin")] == [0xFFFF, 0xFFFF, 0]
    assert len(found.of("launch_end")) == 3
    assert crumbs(run / "crumbs.bin")[1] == [CrumbSlot(3, 1, 0)]
    said = capfd.readouterr().err
    assert ("being captured" in said) == (level != 3)
    assert said.count("no breadcrumbs in a CUDA graph: the model was not called once") == 1


def test_a_replay_writes_breadcrumbs(start: Start, journal: Decode, run: Path) -> None:
    runtime = start(LEVEL=3, CRUMB_EVERY=1)
    site = runtime.site(0, "k", Slot("x", role=INOUT))
    x = on_device(runtime, torch.ones(3))

    def call() -> None:
        with runtime.call():
            for _ in range(3):
                with runtime.launch(site, x.value):
                    pass

    def completed() -> list[int]:
        return [slot.completed for slot in crumbs(run / "crumbs.bin")[1]]

    call()
    set_(runtime, "capturing", 1)
    call()
    call()
    set_(runtime, "capturing", 0)
    assert completed() == [3, 6, 9]  # nothing of a captured call is pending before its first replay
    set_(runtime, "replay", 3)  # the begin of the first captured call, and two of its launches
    call()
    assert completed() == [12, 5, 9]
    set_(runtime, "replay", 5)
    assert completed() == [12, 6, 6]
    assert [slot.replays for slot in crumbs(run / "crumbs.bin")[1]] == [0, 2, 1]
    runtime.unload()
    begins = journal().of("launch_begin")
    assert [r.stream_slot for r in begins] == [0] * 3 + [1] * 3 + [2] * 3 + [0] * 3


@pytest.mark.parametrize(
    ("every", "launches", "expected"), [({"CRUMB_EVERY": 2}, 3, [3, 5, 6]), ({}, 26, [26, 50, 52])]
)
def test_a_captured_call_has_a_breadcrumb_every_so_many_launches(
    start: Start, run: Path, every: dict[str, int], launches: int, expected: list[int]
) -> None:
    runtime = start(LEVEL=3, PRINT="none", **every)
    site = runtime.site(0, "k", Slot("x", role=INOUT))
    x = on_device(runtime, torch.ones(3))
    for capturing in (0, 1, 0):
        set_(runtime, "capturing", capturing)
        with runtime.call():
            for _ in range(launches):
                with runtime.launch(site, x.value):
                    pass
    reached = []
    for words in (1, 2, 3):  # the begin, the one in the middle, the last launch
        set_(runtime, "replay", words)
        reached.append(crumbs(run / "crumbs.bin")[1][1].completed)
    assert reached == expected


def test_what_a_launch_reads_is_saved_though_it_never_ends(start: Start, journal: Decode, run: Path) -> None:
    runtime = start(LEVEL=1)
    makes = runtime.site(0, "makes", Slot("y", role=OUT, value=0))
    waits = runtime.site(1, "waits", Slot("y", value=0), Slot("out", role=OUT, value=1))
    y, out = (on_device(runtime, torch.full((1000,), value)) for value in (1.0, 2.0))

    def call() -> None:
        with runtime.call():
            with runtime.launch(makes, y.value):
                pass
            with runtime.launch(waits, y.value, out.value):
                set_(runtime, "hangs", 1)

    thread = threading.Thread(target=call)
    thread.start()
    try:
        records: set[tuple[int, int, int]] = set()
        deadline = time.monotonic() + 20
        while not {(0, 0, AFTER), (1, 0, BEFORE)} <= records and time.monotonic() < deadline:
            time.sleep(0.02)
            records = {(r.launch, r.slot, r.phase) for r in journal().of("tensor_file")}
        assert {(0, 0, AFTER), (1, 0, BEFORE)} <= records
        assert not {(1, 0, AFTER), (1, 1, AFTER)} & records
        (saved,) = load_file(run / "tensors/0/0001_waits/before_launch_waits_y_cuda:0.safetensors").values()
        assert torch.equal(saved, torch.ones(1000))
        assert thread.is_alive()
    finally:
        set_(runtime, "hangs", 0)
        thread.join()
        runtime.unload()


def test_a_device_that_cannot_count_replays_writes_breadcrumbs_nevertheless(
    start: Start, run: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    runtime = start(LEVEL=3, CRUMB_EVERY=1, WATCH="x: nan")
    set_(runtime, "no graph nodes", 1)
    site = runtime.site(0, "k", Slot("x", role=INOUT))
    x = on_device(runtime, torch.ones(3))
    for capturing in (0, 1, 0):
        set_(runtime, "capturing", capturing)
        with runtime.call(), runtime.launch(site, x.value):
            pass
    set_(runtime, "replay", 1)
    assert crumbs(run / "crumbs.bin")[1][1] == CrumbSlot(1, 1, 0)
    set_(runtime, "replay", 2)
    assert crumbs(run / "crumbs.bin")[1][1] == CrumbSlot(2, 1, 0)
    runtime.unload()
    assert capfd.readouterr().err.count("no watchpoints in a CUDA graph: the device could not add to it") == 1


def test_captured_calls_leave_slots_to_streams(
    start: Start, journal: Decode, capfd: pytest.CaptureFixture[str]
) -> None:
    runtime = start(LEVEL=3)
    site = runtime.site(0, "k", Slot("x", role=INOUT))
    x = on_device(runtime, torch.ones(3))

    def call(stream: int) -> None:
        with runtime.call(stream=stream), runtime.launch(site, x.value):
            pass

    call(0)
    set_(runtime, "capturing", 1)
    for _ in range(514):
        call(0)
    set_(runtime, "capturing", 0)
    call(1)
    runtime.unload()
    slots = [r.stream_slot for r in journal().of("launch_begin")]
    assert slots[-4:] == [512, 0xFFFF, 0xFFFF, 513]
    assert capfd.readouterr().err.count("too many calls of this run were captured") == 1


def test_lines_of_launches_within_a_launch(start: Start, capfd: pytest.CaptureFixture[str]) -> None:
    runtime = start(LEVEL=3)
    for site, kernel in enumerate(("outer", "inner")):
        runtime.site(site, kernel)
    with runtime.call():
        with runtime.launch(0):
            for _ in range(2):
                with runtime.launch(1):
                    pass
        runtime.open_launch(0)
    runtime.unload()
    lines = [line for line in capfd.readouterr().err.splitlines() if line.startswith("0.")]
    inner = [f"0.{number} {phase} inner" for number in (1, 2) for phase in ("before", "after ")]
    assert lines == ["0.0 before outer", *inner, "0.0 after  outer", "0.3 before outer"]


def test_lines_are_written_while_the_run_goes_on(start: Start, capfd: pytest.CaptureFixture[str]) -> None:
    """The second ones come when the thread that writes them has gone to sleep."""
    runtime = start(LEVEL=3)
    runtime.site(0, "kernel")
    for call in range(2):
        with runtime.call(), runtime.launch(0):
            pass
        wanted, found, deadline = f"{call}.0 after  kernel", "", time.monotonic() + 60
        while wanted not in found and time.monotonic() < deadline:
            time.sleep(0.3)
            found += capfd.readouterr().err
        assert wanted in found
    runtime.unload()


def test_launches_go_on_where_the_clock_is_set_back(start: Start, capfd: pytest.CaptureFixture[str]) -> None:
    """The thread that writes their lines may wait by the wall clock: older C libraries have no other."""
    runtime = start(LEVEL=3)
    runtime.site(0, "kernel")

    def run() -> None:
        for _ in range(200):
            with runtime.call(), runtime.launch(0):
                pass

    runtime.lib.h_set_clock_back(1)
    model = threading.Thread(target=run, daemon=True)
    model.start()
    model.join(60)
    runtime.lib.h_set_clock_back(0)
    assert not model.is_alive()
    runtime.unload()
    assert "199.0 after  kernel" in capfd.readouterr().err


def test_statistics_come_in_order(start: Start, journal: Decode, capfd: pytest.CaptureFixture[str]) -> None:
    runtime = start(LEVEL=2)
    slots = (Slot("a", role=IN), Slot("b", role=OUT, value=1), Slot("c", role=INOUT, value=2))
    sites = [runtime.site(i, f"k{i}", *slots) for i in range(20)]
    tensors = [torch.full((i + 1, 2), float(i)) for i in range(60)]
    handles = [
        Handle(x) if i % 3 == 2 else on_device(runtime, x.t() if i % 3 == 0 else x) for i, x in enumerate(tensors)
    ]
    with runtime.call():
        for i, site in enumerate(sites):
            _, b, c = tensors[3 * i : 3 * i + 3]
            given = handles[3 * i : 3 * i + 3]
            with runtime.launch(site, *(handle.value for handle in given)):
                b += 100
                c += 1000
    runtime.unload()
    stats = journal().of("tensor_stats")
    expected = []
    for i in range(20):
        expected += [(i, 0, 0, 3.0 * i), (i, 2, 0, 3 * i + 2)]
        expected += [(i, 1, 1, 3 * i + 101), (i, 2, 1, 3 * i + 1002)]
    assert [(r.launch, r.slot, r.phase, r.mean) for r in stats] == expected
    for record in stats:
        shape = record.layout["shape"]
        assert sorted(shape) == sorted((3 * record.launch + record.slot + 1, 2))
        assert record.layout["device_type"] == (0 if record.slot == 2 else 1)
        few = record.numel <= 64
        assert len(record.tail) == (4 * record.numel if few else 0)
    lines = capfd.readouterr().err.splitlines()
    headlines = [line for line in lines if " before " in line or " after " in line]
    assert headlines == [f"0.{i} {phase} k{i}" for i in range(20) for phase in ("before", "after ")]
    at = [lines.index(line) for line in headlines]
    assert at == sorted(at)
    assert lines[at[0] + 1].startswith("0.0   in a  float32[2,1]  cuda:0  #")


def test_level_1_copies_what_is_new(start: Start, journal: Decode, run: Path) -> None:
    runtime = start(LEVEL=1)
    site = runtime.site(0, "k", Slot("w", role=IN), Slot("big", role=INOUT, value=1), Slot("view", role=IN, value=2))
    w, big, base = torch.randn(1000), torch.randn(10_000_000), torch.randn(300, 200)  # big: 40 MB, three pieces
    given = on_device(runtime, w), on_device(runtime, big), on_device(runtime, base.t())
    before = big.clone()
    with runtime.call():
        for _ in range(2):
            with runtime.launch(site, *(handle.value for handle in given)):
                big += 1
    copied = runtime.lib.f_copied()
    runtime.unload()
    records = {(r.launch, r.slot, r.phase): r for r in journal().of("tensor_file")}
    assert len(records) == 12
    linked = {key for key, record in records.items() if record.status == 1}
    assert linked == {(0, 0, 1), (0, 2, 1), (1, 0, 0), (1, 0, 1), (1, 1, 0), (1, 2, 0), (1, 2, 1)}
    assert copied == 3 * big.nbytes + w.nbytes + base.nbytes
    for (launch, slot, phase), record in records.items():
        name = ("w", "big", "view")[slot]
        assert Path(record.path).name == f"{('before', 'after')[phase]}_launch_k_{name}_cuda:0.safetensors"
        (loaded,) = load_file(run / record.path).values()
        expected = (w, before + launch + phase, base.t())[slot]
        assert torch.equal(loaded, expected)


def test_staging_memory_is_bounded(start: Start, journal: Decode, run: Path) -> None:
    runtime = start(LEVEL=1, PHASE="before")
    site = runtime.site(0, "k", *(Slot(f"x{i}", value=i) for i in range(12)))
    tensors = [torch.full((7_000_000 + i,), float(i)) for i in range(12)]
    given = [on_device(runtime, tensor) for tensor in tensors]
    with runtime.call(), runtime.launch(site, *(handle.value for handle in given)):
        pass
    assert 0 < runtime.lib.f_most_staging() <= 256 << 20
    runtime.unload()
    records = journal().of("tensor_file")
    assert [r.status for r in records] == [0] * 12
    for record in records:
        assert (run / record.path).stat().st_size > record.bytes
        assert torch.equal(load_file(run / record.path)[f"x{record.slot}"], tensors[record.slot])


@pytest.mark.parametrize("what", ["copies fail", "no staging"])
@pytest.mark.parametrize("numel", [10, 10_000_000])
def test_copies_that_fail(start: Start, journal: Decode, run: Path, what: str, numel: int) -> None:
    runtime = start(LEVEL=1, PHASE="before")
    set_(runtime, what, 1)
    site = runtime.site(0, "k", Slot("x"))
    x = on_device(runtime, torch.ones(numel))
    with runtime.call(), runtime.launch(site, x.value):
        pass
    runtime.unload()
    (record,) = journal().of("tensor_file")
    assert (record.status, record.reason) == (2, "its bytes could not be copied from the device")
    assert [path for path in run.glob("tensors/**/*") if path.is_file()] == []


@pytest.mark.parametrize("level", [1, 2, 3])
def test_fault_of_the_device(start: Start, journal: Decode, run: Path, level: int) -> None:
    runtime = start(LEVEL=level, PRINT="none")
    site = runtime.site(0, "k", Slot("x"))
    x = on_device(runtime, torch.ones(100))

    def model() -> None:
        with runtime.call():
            with runtime.launch(site, x.value):
                pass
            set_(runtime, "error", 700)
            with runtime.launch(site, x.value):
                raise RuntimeError("CUDA driver error: an illegal memory access was encountered")

    with pytest.raises(RuntimeError, match="illegal memory access"):
        model()
    runtime.unload()
    found = journal()
    assert [(r.launch, r.in_launch, r.domain, r.code) for r in found.of("fault")] == [(1, 1, 1, -1), (1, 1, 3, 700)]
    assert found.of("fault")[1].text == "CUDA_ERROR_ILLEGAL_ADDRESS"
    assert found.of("call_end")[0].failed == 1
    assert crumbs(run / "crumbs.bin")[1][0].completed == 1


def test_fault_that_the_end_of_a_call_finds(start: Start, journal: Decode) -> None:
    runtime = start(PRINT="none")
    site = runtime.site(0, "k")
    with runtime.call():
        with runtime.launch(site):
            pass
        set_(runtime, "error", 700)
    runtime.unload()
    (fault,) = journal().of("fault")
    assert (fault.in_launch, fault.domain, fault.code) == (0, 3, 700)
    assert journal().of("call_end")[0].failed == 0


def test_threads_on_one_stream(start: Start, journal: Decode) -> None:
    runtime = start(LEVEL=2, PRINT="none")
    sites = [runtime.site(i, f"k{i}", Slot("x")) for i in range(3)]

    def work(index: int) -> None:
        x = on_device(runtime, torch.full((100 + index,), float(index)))
        for _ in range(30):
            with runtime.call(model=index):
                for _ in range(5):
                    with runtime.launch(sites[index], x.value):
                        pass

    threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    runtime.unload()
    found = journal()
    model_of = {r.call: r.model for r in found.of("call_begin")}
    stats = found.of("tensor_stats")
    assert len(stats) == 450
    assert {(r.call, r.launch) for r in stats} == {(call, launch) for call in range(90) for launch in range(5)}
    for record in stats:
        assert record.mean == model_of[record.call]
        assert record.layout["shape"] == (100 + model_of[record.call],)


def test_a_watchpoint_names_a_special_element_of_a_large_tensor(start: Start, journal: Decode) -> None:
    y = torch.zeros(1000)
    y[990], y[700], y[701], y[999] = math.nan, -math.inf, math.inf, math.nan
    watch = ("nan", "posinf", "neginf", "nonfinite", "max > 1", "absmax > 1")
    runtime = start(PRINT="none", LEVEL=3, WATCH="; ".join(f"y: {condition}" for condition in watch))
    site = runtime.site(0, "k", Slot("y", role=OUT))
    handle = on_device(runtime, y)
    with runtime.call(stream=0x10):
        with runtime.launch(site, handle.value):
            pass
    runtime.unload()
    hits = {watch[hit.watch]: (hit.element, hit.value) for hit in journal().of("watch_hit")}
    assert hits.pop("nan") == (990, pytest.approx(math.nan, nan_ok=True))
    assert hits == {
        "posinf": (701, math.inf),
        "neginf": (700, -math.inf),
        "nonfinite": (700, -math.inf),
        "max > 1": (701, math.inf),
        "absmax > 1": (700, -math.inf),
    }
