"""After which launches a breadcrumb is written: every one while they take long, every 16th in a burst."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest

from tests.runtime_shims.runtime_library import Runtime

MAX_DISTANCE = 16
EXACT = 1024  # launches of a stream that have one each in any case
BURST_NS = 3_000  # between two launches of a burst


@dataclass(frozen=True)
class Due:
    """1 for each launch that a breadcrumb, or the statistics that wait, follow."""

    crumbs: list[int]
    statistics: list[int]


def due(
    runtime: Runtime, now_ns: Sequence[int], completed: Sequence[int], sequences: Sequence[int] = (), fixed: int = 0
) -> list[int]:
    """1 for each launch that a breadcrumb follows; see `after`."""
    return after(runtime, now_ns, completed, sequences, fixed).crumbs


def after(
    runtime: Runtime, now_ns: Sequence[int], completed: Sequence[int], sequences: Sequence[int] = (), fixed: int = 0
) -> Due:
    """What follows launches that end at these times, when the device has completed these."""
    count = len(now_ns)
    sequences = sequences or range(1, count + 1)
    wrapped = [(ctypes.c_uint32 * count)(*(n & 0xFFFFFFFF for n in numbers)) for numbers in (sequences, completed)]
    crumbs, statistics = (ctypes.c_uint8 * count)(), (ctypes.c_uint8 * count)()
    times = (ctypes.c_uint64 * count)(*now_ns)
    runtime.lib.h_crumb_pace(ctypes.c_uint64(fixed), count, times, *wrapped, crumbs, statistics)
    return Due(list(crumbs), list(statistics))


def evenly(count: int, step_ns: int, start_ns: int = 1000) -> list[int]:
    return [start_ns + n * step_ns for n in range(count)]


def longest_stretch(found: Sequence[int]) -> int:
    """The most launches between two breadcrumbs, the one with the second included."""
    stretch = longest = 0
    for one in found:
        stretch += 1
        longest = max(longest, stretch)
        stretch = 0 if one else stretch
    return longest


def test_a_burst_has_a_breadcrumb_every_16_launches(load: Callable[..., Runtime]) -> None:
    found = due(load(), evenly(3024, BURST_NS), range(3024))
    assert all(found[: EXACT - 1])
    assert sum(found[EXACT:]) == 2000 // MAX_DISTANCE
    assert longest_stretch(found) == MAX_DISTANCE


def test_launches_that_take_long_have_one_each(load: Callable[..., Runtime]) -> None:
    assert all(due(load(), evenly(3000, 25_000), range(3000)))


def test_launches_that_take_long_are_no_burst_where_few_are_on_the_stream_of_the_call(
    load: Callable[..., Runtime],
) -> None:
    """One of 50 is: what the device is seen to complete stands still, and then makes up for it in one window."""
    assert all(due(load(), evenly(3000, 45_000), [n // 50 * 50 for n in range(3000)]))


def test_a_host_far_ahead_of_a_slow_device_has_one_each(load: Callable[..., Runtime]) -> None:
    """The host enqueues a launch every 3 µs; the device takes 280 µs for one."""
    times = evenly(3000, BURST_NS)
    assert all(due(load(), times, [t // 280_000 for t in times]))


def test_a_host_ahead_of_a_device_with_short_kernels_is_a_burst(load: Callable[..., Runtime]) -> None:
    times = evenly(3100, BURST_NS)
    found = due(load(), times, [t // 6_000 for t in times])
    assert sum(found[1100:]) <= 2000 // MAX_DISTANCE + 1
    assert longest_stretch(found) == MAX_DISTANCE


def test_the_time_between_two_calls_ends_no_burst(load: Callable[..., Runtime]) -> None:
    """600 launches a call; 10 ms pass between calls, and the device completes what is left."""
    times = [
        start for call in range(10) for start in evenly(600, BURST_NS, 1000 + call * (600 * BURST_NS + 10_000_000))
    ]
    found = due(load(), times, range(6000))
    assert sum(found[EXACT + MAX_DISTANCE :]) <= 5000 // MAX_DISTANCE + 1


def test_after_a_burst_slow_launches_have_one_each_again(load: Callable[..., Runtime]) -> None:
    burst = evenly(2000, BURST_NS)
    slow = evenly(400, 100_000, burst[-1] + 100_000)
    found = due(load(), burst + slow, range(2400))
    assert not all(found[:2000])
    assert all(found[-200:])
    assert longest_stretch(found) == MAX_DISTANCE


def test_short_calls_in_a_row_are_a_burst(load: Callable[..., Runtime]) -> None:
    """Five launches a call, and 30 µs between calls."""
    times = [1000 + call * 45_000 + n * BURST_NS for call in range(400) for n in range(5)]
    found = due(load(), times, range(2000))
    assert sum(found[EXACT + MAX_DISTANCE :]) <= 960 // MAX_DISTANCE + 1


def test_launches_of_other_streams_do_not_count(load: Callable[..., Runtime]) -> None:
    """Eight streams share the sequence numbers; this one launches every 80 µs."""
    times = evenly(3000, 80_000)
    sequences = [8 * n for n in range(1, 3001)]
    assert all(due(load(), times, [max(0, n - 8) for n in sequences], sequences))


def test_sequence_numbers_wrap_around(load: Callable[..., Runtime]) -> None:
    sequences = [2**32 - 2000 + n for n in range(4000)]
    found = due(load(), evenly(4000, BURST_NS), [n - 1 for n in sequences], sequences)
    assert sum(found[EXACT + MAX_DISTANCE :]) <= (4000 - EXACT - MAX_DISTANCE) // MAX_DISTANCE + 1


def test_a_fixed_distance_is_kept_in_a_burst(load: Callable[..., Runtime]) -> None:
    assert all(due(load(), evenly(500, BURST_NS), range(500), fixed=1))
    assert sum(due(load(), evenly(500, BURST_NS), range(500), fixed=4)) == 125


def test_statistics_wait_where_launches_still_have_a_breadcrumb_each(load: Callable[..., Runtime]) -> None:
    found = after(load(), evenly(3024, 60_000), range(3024))
    assert all(found.crumbs)
    assert all(found.statistics[: EXACT - 1])
    assert sum(found.statistics[EXACT:]) == 2000 // MAX_DISTANCE
    assert longest_stretch(found.statistics) == MAX_DISTANCE


@pytest.mark.parametrize(("step_ns", "fixed"), [(120_000, 0), (60_000, 1), (BURST_NS, 1)])
def test_statistics_of_long_launches_never_wait(load: Callable[..., Runtime], step_ns: int, fixed: int) -> None:
    assert all(after(load(), evenly(3000, step_ns), range(3000), fixed=fixed).statistics)


def test_statistics_come_with_the_breadcrumbs_of_a_burst(load: Callable[..., Runtime]) -> None:
    found = after(load(), evenly(3000, BURST_NS), range(3000))
    assert found.statistics[EXACT + MAX_DISTANCE :] == found.crumbs[EXACT + MAX_DISTANCE :]
    assert 0 < sum(found.crumbs[EXACT + MAX_DISTANCE :]) < 200
