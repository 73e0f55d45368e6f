"""Guards in device memory: filled, compared and mended by kernels, here on the fake device."""

from __future__ import annotations

import ctypes
from ctypes import c_int64, c_uint8, c_uint32, c_uint64

import numpy as np
import pytest

from tests.runtime_shims_cuda import emulated
from tests.runtime_shims_cuda.device_library import DeviceLibrary

SIZES = (1, 4, 7, 8, 63, 4096, 4100, 70001)


class Memory(ctypes.Structure):
    _fields_ = (("data", c_uint64), ("bytes", c_uint64), ("allocation", c_uint32), ("reserved", c_uint32))


class GuardedLaunch(ctypes.Structure):
    _fields_ = (("call", c_uint32), ("launch", c_uint32), ("kind", c_uint32))


class Damage(ctypes.Structure):
    _fields_ = (
        ("call", c_uint32),
        ("launch", c_uint32),
        ("allocation", c_uint32),
        ("kind", c_uint8),
        ("reserved", c_uint8 * 3),
        ("data", c_uint64),
        ("bytes", c_uint64),
        ("first", c_int64),
        ("last", c_int64),
        ("damaged", c_uint64),
        ("found", c_uint8 * 16),
    )


class Guards:
    """Guarded buffers in memory of their own."""

    def __init__(self, device: DeviceLibrary) -> None:
        self.device = device
        self.library = device.library
        for name in ("harness_guard_bytes", "harness_guarded_bytes", "harness_guard_word"):
            getattr(self.library, name).restype = c_uint64

    def buffer(self, size: int, allocation: int = 0) -> tuple[np.ndarray, Memory]:
        """The whole allocation, and the description of the buffer in it."""
        whole = np.full(self.library.harness_guarded_bytes(c_uint64(size)), 0x11, np.uint8)
        guard = self.library.harness_guard_bytes(c_uint64(size))
        return whole, Memory(whole.ctypes.data + guard, size, allocation, 0)

    def fill(self, memory: Memory, poison: int = 0xFF, stream: int = 16) -> int:
        return int(self.library.harness_fill_guarded(stream, ctypes.byref(memory), c_uint8(poison)))

    def check(self, *memories: Memory, launch: int = 3, stream: int = 16) -> int:
        which, table = GuardedLaunch(2, launch, 0), (Memory * len(memories))(*memories)
        return int(self.library.harness_check_guards(stream, ctypes.byref(which), table, len(memories)))

    def take(self, capacity: int = 512, wait: bool = True, stream: int = 16) -> list[Damage]:
        table = (Damage * capacity)()
        count = self.library.harness_take_damage(stream, table, capacity, int(wait))
        if count < 0:
            raise RuntimeError("a device error")
        return list(table[:count])

    def pattern(self, size: int) -> bytes:
        words = [self.library.harness_guard_word(c_uint64(i)) for i in range(size // 8)]
        return np.array(words, np.uint64).tobytes()


@pytest.fixture
def guards(device: DeviceLibrary) -> Guards:
    return Guards(device)


@pytest.mark.parametrize("size", SIZES)
def test_zones_and_buffer_are_filled(guards: Guards, size: int) -> None:
    whole, memory = guards.buffer(size)
    assert guards.fill(memory, 0xAB)
    guards.take()
    guard = memory.data - whole.ctypes.data
    pattern = np.frombuffer(guards.pattern(whole.size), np.uint8)
    assert (whole[:guard] == pattern[:guard]).all()
    assert (whole[guard : guard + size] == 0xAB).all()
    assert (whole[guard + size :] == pattern[guard + size :]).all()
    assert 4096 <= guard <= 65536
    assert guard >= min(size, 65536)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("first", "count"), [(0, 1), (0, 4), (3, 9), (4000, 96)])
def test_damage_behind_is_found_and_mended(guards: Guards, size: int, first: int, count: int) -> None:
    whole, memory = guards.buffer(size, allocation=7)
    guards.fill(memory, 0)
    guards.take()
    kept = whole.copy()
    guard = memory.data - whole.ctypes.data
    at = guard + size + first
    whole[at : at + count] ^= 0xFF
    assert guards.check(memory, launch=5)
    (damage,) = guards.take()
    assert (damage.call, damage.launch, damage.allocation, damage.kind) == (2, 5, 7, 0)
    assert (damage.data, damage.bytes) == (memory.data, size)
    assert (damage.first, damage.last, damage.damaged) == (size + first, size + first + count - 1, count)
    shown = min(count, 16)
    assert bytes(damage.found)[:shown] == (kept[at : at + shown] ^ 0xFF).tobytes()
    assert (whole == kept).all()
    assert guards.check(memory)
    assert guards.take() == []


def test_damage_in_front_has_offsets_below_zero(guards: Guards) -> None:
    whole, memory = guards.buffer(64)
    guards.fill(memory)
    guards.take()
    guard = memory.data - whole.ctypes.data
    whole[guard - 8 : guard - 4] ^= 1
    guards.check(memory)
    (damage,) = guards.take()
    assert (damage.first, damage.last, damage.damaged) == (-8, -5, 4)


def test_the_buffer_itself_is_free_to_change(guards: Guards) -> None:
    whole, memory = guards.buffer(63)
    guards.fill(memory)
    guards.take()
    guard = memory.data - whole.ctypes.data
    whole[guard : guard + 63] = 0
    guards.check(memory)
    assert guards.take() == []
    assert (whole[guard : guard + 63] == 0).all()


def test_many_buffers_take_several_kernels(guards: Guards) -> None:
    made = [guards.buffer(16, allocation=i) for i in range(200)]
    for _, memory in made:
        guards.fill(memory)
    guards.take()
    for index in (3, 161, 199):
        whole, memory = made[index]
        whole[memory.data - whole.ctypes.data + 16] ^= 0xFF
    assert guards.check(*(memory for _, memory in made))
    assert [damage.allocation for damage in guards.take()] == [3, 161, 199]


def test_nothing_waits_until_somebody_asks(guards: Guards) -> None:
    whole, memory = guards.buffer(16)
    guards.fill(memory)
    guards.check(memory)
    assert emulated.queued(guards.device, 16) >= 2
    assert guards.take(wait=False) == []
    assert whole[0] == 0x11
    assert guards.take() == []


def test_reports_from_before_a_fault_can_be_read(guards: Guards) -> None:
    whole, memory = guards.buffer(16)
    guards.fill(memory)
    guards.take()
    whole[memory.data - whole.ctypes.data + 16] ^= 0xFF
    guards.check(memory)
    emulated.fail_after_queued(guards.device, 16, 700)
    with pytest.raises(RuntimeError):
        guards.take()
    assert len(guards.take(wait=False)) == 1
    assert not guards.check(memory)


def test_a_stream_takes_256_reports(fresh_device: DeviceLibrary) -> None:
    guards = Guards(fresh_device)
    whole, memory = guards.buffer(16)
    guards.fill(memory)
    guards.take()
    for launch in range(300):
        whole[memory.data - whole.ctypes.data + 16] ^= 0xFF
        guards.check(memory, launch=launch)
        guards.library.emulator_finish()
    assert [damage.launch for damage in guards.take(capacity=200)] == list(range(200))
    assert [damage.launch for damage in guards.take()] == list(range(200, 256))
    assert guards.take() == []


def test_without_memory_nothing_is_compared(fresh_device: DeviceLibrary) -> None:
    guards = Guards(fresh_device)
    _, memory = guards.buffer(16)
    emulated.limit_memory(fresh_device, 0)
    assert not guards.check(memory)
