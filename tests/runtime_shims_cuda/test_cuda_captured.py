"""What a CUDA graph holds of a captured call, on the make-believe device: the count of replays and watchpoints."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from ctypes import byref, c_double, c_size_t, c_uint32, c_uint64, c_void_p

import pytest
import torch
from runtime_shims_cuda import emulated
from runtime_shims_cuda.device_library import DeviceLibrary, Result, describe

from aoti_debug.abi import WatchStatistic

STREAM = 0x7000
ACTIVE = 1  # CU_STREAM_CAPTURE_STATUS_ACTIVE
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
        emulated.capture(device, STREAM, ACTIVE)
        self.call = library.harness_begin_captured(STREAM, CRUMB, 5, REPLAYS)

    def watch(self, tensor: torch.Tensor, statistic: WatchStatistic, limit: float) -> Found | None:
        described = describe(tensor)
        self.device.described.append(described)
        if not self.library.harness_add_stats(self.call, STREAM, byref(described.view)):
            return None
        found = self.library.harness_add_watch(self.call, STREAM, statistic.value, limit)
        return found.contents if found else None

    def replay(self) -> None:
        emulated.replay(self.device, STREAM)

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
    for name in (
        "integer",
        "numel",
        "n_nan",
        "n_zero",
        "min_bits",
        "max_bits",
        "min_index",
        "max_index",
        "mean",
        "std",
    ):
        assert getattr(found.stats, name) == getattr(expected, name), name


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
