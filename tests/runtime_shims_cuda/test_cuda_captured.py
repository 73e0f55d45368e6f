"""What a CUDA graph holds of a captured call, on the fake device: replays, statistics, watchpoints."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from ctypes import byref, c_double, c_int, c_size_t, c_uint32, c_uint64, c_void_p

import pytest
import torch

from aoti_debug.base.abi import WatchStatistic
from tests.runtime_shims_cuda import emulated
from tests.runtime_shims_cuda.device_library import ALL, HASH, DeviceLibrary, Result, View, describe
from tests.runtime_shims_cuda.device_library import NUMBERS as NUMBERS_ONLY

STREAM = 0x7000
ACTIVE = 1  # CU_STREAM_CAPTURE_STATUS_ACTIVE
NUMBERS = ("integer", "numel", "n_nan", "n_zero", "min_bits", "max_bits", "min_index", "max_index", "mean", "std")
CRUMB, REPLAYS = 64, 80  # offsets in the memory of breadcrumbs


class Stats(ctypes.Structure):
    """TensorStats of journal_format.h: the beginning of Result."""

    _fields_ = Result._fields_[: [name for name, _ in Result._fields_].index("values")]


class Found(ctypes.Structure):
    """aoti_debug::CapturedWatch."""

    _fields_ = (
        ("evaluated", c_uint64),
        ("hits", c_uint64),
        ("replay", c_uint32),
        ("statistic", c_uint32),
        ("stats", Stats),
        ("nan_index", c_uint64),
        ("pos_inf_index", c_uint64),
        ("neg_inf_index", c_uint64),
    )


WHOLE, TORN, NOTHING = 2, 1, 0  # device::Kept
SLOTS = 48  # offset of KeptStatistics::slots, behind PendingStatistics


class Kept:
    """What read_last and read_replay take."""

    def __init__(self, library: ctypes.CDLL, address: int | None) -> None:
        self.library = library
        self.address = address

    def read(self) -> tuple[int, int, Result]:
        """What is left, the last replay that has measured it, and the statistics."""
        result, replay = Result(), c_uint32()
        state = self.library.harness_read_last(c_void_p(self.address), byref(result), byref(replay))
        return state, replay.value, result

    def of_replay(self, replay: int) -> tuple[int, Result]:
        """What is left of one replay, and the statistics."""
        result = Result()
        return self.library.harness_read_replay(c_void_p(self.address), c_uint32(replay), byref(result)), result

    def word(self, number: int) -> c_uint64:
        """A word of the StatisticsSlot in host memory: 32 of the numbers, then the values."""
        assert self.address is not None
        slot = c_uint64.from_address(self.address + SLOTS).value
        return c_uint64.from_address(slot + 8 * number)


class Capture:
    """A call that a graph captures on STREAM."""

    def __init__(self, device: DeviceLibrary) -> None:
        self.device = device
        library = self.library = device.library
        library.harness_begin_captured.argtypes = [c_void_p, c_size_t, c_uint32, c_size_t]
        library.harness_begin_captured.restype = c_void_p
        library.harness_add_stats.argtypes = [c_void_p, c_void_p, c_void_p]
        library.harness_add_watch.argtypes = [c_void_p, c_void_p, c_uint32, c_double]
        library.harness_add_watch.restype = ctypes.POINTER(Found)
        library.harness_keep_stats.argtypes = [c_void_p, c_void_p, c_void_p, c_int, c_int, c_uint32, c_void_p]
        emulated.capture(device, STREAM, ACTIVE)
        self.call = library.harness_begin_captured(STREAM, CRUMB, 5, REPLAYS)

    def watch(self, tensor: torch.Tensor, statistic: WatchStatistic, limit: float) -> Found | None:
        described = describe(tensor)
        self.device.described.append(described)
        if not self.library.harness_add_stats(self.call, STREAM, byref(described.view)):
            return None
        found = self.library.harness_add_watch(self.call, STREAM, statistic.value, limit)
        return found.contents if found else None

    def keep(self, wanted: int, *tensors: torch.Tensor, replays: int = 1) -> list[Kept]:
        descriptions = [describe(tensor) for tensor in tensors]
        self.device.described += descriptions
        views = (View * len(tensors))(*(each.view for each in descriptions))
        kept = (c_void_p * len(tensors))()
        self.library.harness_keep_stats(self.call, c_void_p(STREAM), views, len(tensors), wanted, replays, kept)
        return [Kept(self.library, each) for each in kept]

    def replay(self, nodes: int = 1 << 32) -> None:
        emulated.replay(self.device, STREAM, nodes)

    def end(self) -> None:
        emulated.capture(self.device, STREAM, 0)


@pytest.fixture
def words(device: DeviceLibrary) -> ctypes.Array[ctypes.c_uint32]:
    return emulated.crumb_words(device)


@pytest.fixture
def capture(device: DeviceLibrary, words: ctypes.Array[ctypes.c_uint32]) -> Callable[[], Capture]:
    return lambda: Capture(device)


def test_a_replay_is_counted_before_its_first_launch(
    capture: Callable[[], Capture], words: ctypes.Array[ctypes.c_uint32]
) -> None:
    captured = capture()
    captured.end()
    assert (words[CRUMB // 4], words[REPLAYS // 4]) == (0, 0)
    for number in (1, 2, 3):
        words[CRUMB // 4] = 99
        captured.replay()
        assert (words[CRUMB // 4], words[REPLAYS // 4]) == (5, number)


def test_the_first_hit_stays_and_hits_are_counted(capture: Callable[[], Capture]) -> None:
    captured = capture()
    tensor = torch.arange(3000.0).reshape(60, 50).t()
    nans = captured.watch(tensor, WatchStatistic.NAN, 0)
    large = captured.watch(tensor, WatchStatistic.ABSMAX, 5000)
    captured.end()
    assert nans is not None
    assert large is not None
    captured.replay()
    assert (nans.evaluated, nans.hits, large.evaluated, large.hits) == (1, 0, 1, 0)
    tensor[3, 4] = math.nan
    tensor[40, 2] = -7000
    captured.replay()
    tensor[0, 0] = math.nan
    captured.replay()
    assert (nans.evaluated, nans.hits, nans.replay, nans.statistic) == (3, 2, 2, WatchStatistic.NAN.value)
    assert (nans.nan_index, nans.stats.n_nan) == (3 * 60 + 4, 1)
    assert (large.evaluated, large.hits, large.replay) == (3, 2, 2)
    assert ctypes.c_double.from_buffer_copy(large.stats.min_bits.to_bytes(8, "little")).value == -7000
    assert large.stats.min_index == 40 * 60 + 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.int8, torch.uint64])
def test_statistics_are_those_of_a_call_that_is_not_captured(
    capture: Callable[[], Capture], dtype: torch.dtype
) -> None:
    captured = capture()
    tensor = (torch.arange(7001) % 100).to(dtype)
    found = captured.watch(tensor, WatchStatistic.MAX, 10)
    captured.end()
    captured.replay()
    assert found is not None
    assert found.hits == 1
    expected = captured.device.statistics(tensor)
    for name in NUMBERS:
        assert getattr(found.stats, name) == getattr(expected, name), name


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool])
@pytest.mark.parametrize("wanted", [ALL, HASH])
def test_the_last_replay_leaves_its_statistics(capture: Callable[[], Capture], dtype: torch.dtype, wanted: int) -> None:
    captured = capture()
    tensors = [torch.zeros(shape, dtype=dtype) for shape in ((7001,), (8, 8), (3, 0), (40, 30))]
    tensors[3] = tensors[3].t()
    kept = captured.keep(wanted, *tensors)
    captured.end()
    assert [each.read()[0] for each in kept] == [NOTHING, NOTHING, WHOLE, NOTHING]
    captured.replay()
    for number, tensor in enumerate(tensors):
        tensor.copy_((torch.arange(tensor.numel()) % (50 + number)).reshape(tensor.shape).to(dtype))
    captured.replay()
    for tensor, each in zip(tensors, kept, strict=True):
        expected = captured.device.statistics(tensor, wanted=wanted)
        state, replay, found = each.read()
        assert (state, replay) == (WHOLE, 2 if tensor.numel() else 0)
        assert found.hash == expected.hash
        assert found.shown() == expected.shown()
        for name in NUMBERS:
            assert getattr(found, name) == pytest.approx(getattr(expected, name), rel=1e-12, nan_ok=True), name


@pytest.mark.parametrize("wanted", [ALL, NUMBERS_ONLY])
@pytest.mark.parametrize("size", [5, 7001])
def test_the_last_replays_leave_their_statistics(capture: Callable[[], Capture], size: int, wanted: int) -> None:
    captured = capture()
    tensor = torch.zeros(size)
    (kept,) = captured.keep(wanted, tensor, replays=4)
    (alone,) = captured.keep(wanted, tensor)
    captured.end()
    assert kept.of_replay(1)[0] == NOTHING
    for replay in range(1, 8):
        tensor.fill_(replay)
        captured.replay()
    assert [kept.of_replay(replay)[0] for replay in range(1, 9)] == [TORN] * 3 + [WHOLE] * 4 + [NOTHING]
    for replay in range(4, 8):
        found = kept.of_replay(replay)[1]
        assert (found.numel, found.mean, found.number(found.max_bits)) == (size, replay, replay)
        if wanted == ALL:
            assert found.shown() == (torch.full((size,), float(replay)).numpy().tobytes() if size == 5 else b"")
    for each in (kept, alone):
        state, replay, found = each.read()
        assert (state, replay, found.mean) == (WHOLE, 7, 7)


def test_a_replay_that_is_being_stored_is_not_there_yet(capture: Callable[[], Capture]) -> None:
    captured = capture()
    (kept,) = captured.keep(ALL, torch.ones(1000), replays=2)
    captured.end()
    for _ in range(2):
        captured.replay()
    kept.word(3).value = 4 << 32 | 5  # of the slot of replays 2 and 4
    assert kept.of_replay(4)[0] == NOTHING
    assert kept.of_replay(2)[0] == TORN
    assert kept.read()[:2] == (WHOLE, 1)


def test_tensors_of_one_launch_share_a_kernel(capture: Callable[[], Capture]) -> None:
    captured = capture()
    tensors = [torch.full((100,), float(number)) for number in range(40)]
    before = captured.library.emulator_launches()
    kept = captured.keep(ALL, *tensors)
    assert captured.library.emulator_launches() - before == 3
    captured.end()
    captured.replay()
    assert [each.read()[2].mean for each in kept] == list(range(40))


def test_what_a_replay_did_not_reach_stays(capture: Callable[[], Capture]) -> None:
    captured = capture()
    first, second = torch.ones(1000), torch.ones(1000)
    kept = captured.keep(ALL, first) + captured.keep(ALL, second)
    captured.end()
    captured.replay(2)
    assert [each.read()[:2] for each in kept] == [(WHOLE, 1), (NOTHING, 0)]
    captured.replay()
    first[0] = second[0] = 7.0
    captured.replay(2)
    found = [each.read() for each in kept]
    assert [each[:2] for each in found] == [(WHOLE, 3), (WHOLE, 2)]
    assert [each[2].number(each[2].max_bits) for each in found] == [7.0, 1.0]


def test_numbers_of_two_replays_are_not_mixed(capture: Callable[[], Capture]) -> None:
    captured = capture()
    (kept,) = captured.keep(ALL, torch.ones(1000))
    captured.end()
    captured.replay()
    kept.word(3).value = 2 << 32 | 5
    assert kept.read()[0] == TORN


def test_values_of_another_replay_are_left_out(capture: Callable[[], Capture]) -> None:
    captured = capture()
    tensor = torch.arange(5.0)
    (kept,) = captured.keep(ALL, tensor)
    captured.end()
    captured.replay()
    assert kept.read()[2].shown() == tensor.numpy().tobytes()
    kept.word(33).value += 1
    state, replay, found = kept.read()
    assert (state, replay, found.value_bytes, found.mean) == (WHOLE, 1, 0, 2.0)


def test_what_cannot_be_measured_says_why(capture: Callable[[], Capture]) -> None:
    captured = capture()
    described = describe(torch.ones(4), device_index=1)
    kept = (c_void_p * 1)()
    captured.library.harness_keep_stats(captured.call, c_void_p(STREAM), byref(described.view), 1, ALL, 1, kept)
    captured.end()
    captured.replay()
    state, replay, found = Kept(captured.library, kept[0]).read()
    assert (state, replay) == (WHOLE, 0)
    assert found.shown() == b"it is on another device than its launch"


def test_conditions_and_statistics_of_one_call(capture: Callable[[], Capture]) -> None:
    captured = capture()
    tensor = torch.arange(3000.0)
    watch = captured.watch(tensor, WatchStatistic.MAX, 2000)
    (kept,) = captured.keep(ALL, tensor)
    large = captured.watch(tensor, WatchStatistic.ABSMAX, 5000)
    captured.end()
    for _ in range(3):
        captured.replay()
    assert watch is not None
    assert large is not None
    assert (watch.hits, large.hits) == (3, 0)
    state, replay, found = kept.read()
    assert (state, replay, found.number(found.max_bits)) == (WHOLE, 3, 2999.0)


def test_what_has_no_statistics_is_not_watched(capture: Callable[[], Capture]) -> None:
    captured = capture()
    assert captured.watch(torch.empty(0), WatchStatistic.NUMEL, 0) is None
    captured.end()


def test_many_tensors_and_conditions(capture: Callable[[], Capture]) -> None:
    captured = capture()
    tensors = [torch.full((100 + number,), float(number)) for number in range(300)]
    found = [captured.watch(tensor, WatchStatistic.MEAN, 149.5) for tensor in tensors]
    captured.end()
    captured.replay()
    assert [each is not None and each.hits for each in found] == [0] * 150 + [1] * 150


def test_nothing_is_added_where_device_memory_is_short(fresh_device: DeviceLibrary) -> None:
    emulated.crumb_words(fresh_device)
    emulated.limit_memory(fresh_device, 0)
    captured = Capture(fresh_device)
    captured.end()
    assert captured.call is None
