"""Guards around buffers: what the runtime allocates, what it finds damaged, what it gives back."""

from __future__ import annotations

import ctypes
import gc
import os
from collections.abc import Callable, Sequence
from ctypes import c_int32, c_int64, c_uint64
from pathlib import Path

import pytest
import torch

from tests.runtime_shims.journal_decoder import Journal
from tests.runtime_shims.runtime_library import Runtime, _shim

Load = Callable[..., Runtime]
FLOAT32, UINT8, BOOL = 6, 0, 11
CPU, CUDA = 0, 1


class Buffer:
    """A tensor that the runtime allocated, as the wrapper holds it."""

    def __init__(self, address: int) -> None:
        self.handle = ctypes.c_void_p(address)

    def free(self) -> None:
        _shim.aoti_torch_delete_tensor_object(self.handle)

    @property
    def data(self) -> int:
        found = ctypes.c_void_p()
        _shim.aoti_torch_get_data_ptr(self.handle, ctypes.byref(found))
        return found.value or 0

    def number(self, what: str) -> int:
        found = c_int64()
        getattr(_shim, f"aoti_torch_get_{what}")(self.handle, ctypes.byref(found))
        return found.value

    def write(self, first: int, data: bytes) -> None:
        ctypes.memmove(self.data + first, data, len(data))

    def bytes(self, first: int, count: int) -> bytes:
        return ctypes.string_at(self.data + first, count)


def allocate(
    runtime: Runtime,
    shape: Sequence[int],
    *,
    strides: Sequence[int] | None = None,
    dtype: int = FLOAT32,
    allocation: int = 0,
    device: int = CPU,
) -> Buffer | None:
    handle = ctypes.c_void_p()
    contiguous = torch.empty(tuple(shape), device="meta").stride()
    sizes, steps = (c_int64 * len(shape))(*shape), (c_int64 * len(shape))(*(strides or contiguous))
    name = f"buf{allocation}".encode()
    made = runtime.lib.h_allocate(
        allocation, name, c_int64(len(shape)), sizes, steps, c_int32(dtype), c_int32(device), ctypes.byref(handle)
    )
    return Buffer(handle.value or 0) if made else None


def guarded(runtime: Runtime, shape: Sequence[int], **fields: object) -> Buffer:
    buffer = allocate(runtime, shape, **fields)  # type: ignore[arg-type]
    assert buffer is not None, "the runtime left it to the wrapper"
    return buffer


def guard_bytes(runtime: Runtime, size: int) -> int:
    runtime.lib.h_guard_bytes.restype = c_uint64
    return int(runtime.lib.h_guard_bytes(c_uint64(size)))


@pytest.fixture
def runtime(load: Load) -> Runtime:
    made = load(LEVEL=3, PRINT="none", GUARDS=1)
    made.site(0, "kernel_a")
    made.site(1, "kernel_b")
    return made


def test_a_guarded_buffer_is_the_tensor_that_was_asked_for(runtime: Runtime) -> None:
    with runtime.call():
        buffer = guarded(runtime, (3, 5), strides=(8, 1))
        assert buffer.bytes(0, 4 * (2 * 8 + 5)) == b"\xff" * 84
        assert (buffer.number("storage_offset"), buffer.number("storage_size")) == (0, 84)
        assert (buffer.number("dim"), buffer.number("numel")) == (2, 15)
        assert buffer.data % 64 == 0
        buffer.free()


@pytest.mark.parametrize("size", [1, 100, 4096, 4097, 50000, 10**6])
def test_zones_are_as_long_as_the_buffer_within_limits(runtime: Runtime, size: int) -> None:
    zone = guard_bytes(runtime, size)
    assert zone % 4096 == 0
    assert min(max(size, 4096), 65536) <= zone <= 65536


@pytest.mark.parametrize(("size", "first", "count"), [(64, 64, 4), (63, 63, 1), (64, 64 + 4080, 16), (64, -4, 4)])
def test_the_launch_that_writes_outside_is_recorded(
    runtime: Runtime, journal: Callable[[], Journal], size: int, first: int, count: int
) -> None:
    with runtime.call():
        other = guarded(runtime, (4,), allocation=6)
        buffer = guarded(runtime, (size,), dtype=UINT8, allocation=7)
        with runtime.launch(0):
            buffer.write(0, b"x" * size)
        with runtime.launch(1):
            buffer.write(first, bytes(range(count)))
        with runtime.launch(0):
            pass
        buffer.free()
        other.free()
    (damage,) = journal().of("guard")
    assert (damage.call, damage.launch, damage.kind, damage.allocation) == (0, 1, 0, 7)
    assert (damage.bytes, damage.first, damage.last) == (size, first, first + count - 1)
    assert damage.damaged == count
    assert damage.found[:count] == bytes(range(count))


def test_damage_is_mended_and_seen_again(runtime: Runtime, journal: Callable[[], Journal]) -> None:
    with runtime.call():
        buffer = guarded(runtime, (16,))
        for _ in range(3):
            with runtime.launch(0):
                buffer.write(64, b"\x00\x00\x80\x3f")
        buffer.free()
    assert [damage.launch for damage in journal().of("guard")] == [0, 1, 2]


def test_a_launch_that_throws_is_compared_too(runtime: Runtime, journal: Callable[[], Journal]) -> None:
    with runtime.call():
        buffer = guarded(runtime, (16,))
        launch = runtime.open_launch(0)
        buffer.write(64, b"\x01")
        launch.end(-1, "planted")
        buffer.free()
    assert [damage.launch for damage in journal().of("guard")] == [0]


def test_poison(load: Load) -> None:
    runtime = load(LEVEL=2, PRINT="none", GUARDS=1, POISON="3b")
    with runtime.call():
        buffer = guarded(runtime, (4,))
        assert buffer.bytes(0, 16) == b"\x3b" * 16
        buffer.free()


@pytest.mark.parametrize("variables", [{"GUARDS": "0"}, {"GUARDS": None}])
def test_without_guards_the_wrapper_allocates(load: Load, variables: dict[str, object]) -> None:
    runtime = load(**({"LEVEL": 3, "PRINT": "none"} | variables))
    with runtime.call():
        assert allocate(runtime, (4,)) is None


def test_outside_of_a_call_the_wrapper_allocates(runtime: Runtime) -> None:
    assert allocate(runtime, (4,)) is None


def test_what_gets_no_guards_is_noted_once(runtime: Runtime, journal: Callable[[], Journal]) -> None:
    for _ in range(2):
        with runtime.call():
            assert allocate(runtime, (4,), dtype=99, allocation=3) is None
            assert allocate(runtime, (4, 0), allocation=4) is None
            assert allocate(runtime, (4,), device=5, allocation=5) is None
    texts = [note.text for note in journal().of("note")]
    assert texts[0] == "no guards around buf3: dtype 99 is unknown"
    assert texts[1].startswith("no guards around buf5: it is on ")
    assert len(texts) == 2


def test_a_buffer_that_was_freed_is_no_longer_compared(runtime: Runtime, journal: Callable[[], Journal]) -> None:
    """A loop allocates in every iteration: the memory comes back."""
    before = resident_bytes()
    with runtime.call():
        for _ in range(200):
            buffer = guarded(runtime, (1 << 20,), dtype=UINT8)
            with runtime.launch(0):
                pass
            buffer.free()
    assert resident_bytes() - before < 50 << 20
    assert journal().of("guard") == []


def test_buffers_outlive_their_call_and_the_package(load: Load, tmp_path: Path) -> None:
    runtime = load(LEVEL=3, PRINT="none", GUARDS=1)
    runtime.site(0, "kernel_a")
    with runtime.call():
        buffer = guarded(runtime, (1 << 20,))
    with runtime.call(), runtime.launch(0):
        buffer.write(4 << 20, b"x")  # nobody compares it any more
    library = Path(runtime.lib._name)
    runtime.unload()
    del runtime
    gc.collect()
    assert str(library) in Path("/proc/self/maps").read_text()
    assert buffer.bytes(0, 1) == b"\xff"
    buffer.free()
    assert "guard" not in {record.type for record in _journal(tmp_path).records}


def test_views_share_the_buffer_with_their_offset(runtime: Runtime) -> None:
    with runtime.call():
        buffer = guarded(runtime, (4, 4))
        view = ctypes.c_void_p()
        two = (c_int64 * 1)(4)
        one = (c_int64 * 1)(1)
        _shim.aoti_torch__reinterpret_tensor(buffer.handle, c_int64(1), two, one, c_int64(8), ctypes.byref(view))
        row = Buffer(view.value or 0)
        assert row.data == buffer.data + 32
        buffer.free()
        row.write(0, b"abcd")  # the view keeps the memory
        assert row.bytes(0, 4) == b"abcd"
        row.free()


def test_nested_calls_have_guards_of_their_own(runtime: Runtime, journal: Callable[[], Journal]) -> None:
    with runtime.call():
        outer = guarded(runtime, (4,), allocation=1)
        with runtime.call():
            inner = guarded(runtime, (4,), allocation=2)
            with runtime.launch(0):
                inner.write(16, b"x")
                outer.write(16, b"x")
            inner.free()
        with runtime.launch(1):
            pass
        outer.free()
    assert [(damage.call, damage.allocation) for damage in journal().of("guard")] == [(1, 2), (0, 1)]


def test_records_are_limited(runtime: Runtime, journal: Callable[[], Journal]) -> None:
    with runtime.call():
        buffer = guarded(runtime, (16,))
        for _ in range(1100):
            with runtime.launch(0):
                buffer.write(64, b"\x01")
        buffer.free()
    assert len(journal().of("guard")) == 1024
    assert [note.text for note in journal().of("note")] == ["further damage to guards is not recorded"]


@pytest.mark.parametrize(
    ("variables", "complaint"),
    [
        ({"GUARDS": "yes"}, "AOTI_DEBUG_GUARDS=yes is not 0 or 1; using 0"),
        ({"GUARDS": 1, "POISON": "256"}, "AOTI_DEBUG_POISON=256 is not two hexadecimal digits; using ff"),
        ({"GUARDS": 1, "POISON": "f "}, "AOTI_DEBUG_POISON=f  is not two hexadecimal digits; using ff"),
        ({"POISON": "00"}, "AOTI_DEBUG_POISON does nothing without AOTI_DEBUG_GUARDS=1"),
    ],
)
def test_values_that_are_not_understood(
    load: Load, journal: Callable[[], Journal], variables: dict[str, object], complaint: str
) -> None:
    runtime = load(LEVEL=3, PRINT="none", **variables)
    with runtime.call():
        pass
    assert complaint in [note.text for note in journal().of("note")]


# ---- on a device


@pytest.fixture
def on_device(load: Load, device_library: Path) -> Runtime:
    made = load(device_library, LEVEL=3, PRINT="none", GUARDS=1)
    made.site(0, "kernel_a")
    return made


def test_damage_in_device_memory_is_recorded_by_the_end_of_the_call(
    on_device: Runtime, journal: Callable[[], Journal]
) -> None:
    with on_device.call(stream=16):
        buffer = guarded(on_device, (16,), device=CUDA, allocation=3)
        assert buffer.bytes(0, 64) == b"\xff" * 64
        with on_device.launch(0):
            pass
        with on_device.launch(0):
            buffer.write(64, b"x")
        assert journal().of("guard") == []
        buffer.free()
    (damage,) = journal().of("guard")
    assert (damage.launch, damage.allocation, damage.first) == (1, 3, 64)


def test_what_arrived_before_a_fault_is_recorded(on_device: Runtime, journal: Callable[[], Journal]) -> None:
    with on_device.call(stream=16):
        buffer = guarded(on_device, (16,), device=CUDA)
        with on_device.launch(0):
            buffer.write(64, b"x")
        on_device.lib.f_set(b"error", 700)
        buffer.free()
    assert len(journal().of("guard")) == 1


@pytest.mark.parametrize(
    ("what", "note"),
    [
        (1, "no guards around buf0: the device did not fill its guards"),
        (2, "guards in device memory were not compared after every launch"),
    ],
)
def test_a_device_that_refuses(on_device: Runtime, journal: Callable[[], Journal], what: int, note: str) -> None:
    on_device.lib.f_set(b"guards fail", what)
    with on_device.call(stream=16):
        buffer = allocate(on_device, (16,), device=CUDA)
        for _ in range(2):
            with on_device.launch(0):
                pass
        if buffer is not None:
            buffer.free()
    assert [record.text for record in journal().of("note")] == [note]


def test_a_captured_graph_has_no_guards(on_device: Runtime) -> None:
    on_device.lib.f_set(b"capturing", 1)
    with on_device.call(stream=16):
        assert allocate(on_device, (16,), device=CUDA) is None


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def _journal(folder: Path) -> Journal:
    from tests.runtime_shims import journal_decoder

    return journal_decoder.decode(folder / "run" / "journal.bin")
