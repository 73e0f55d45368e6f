"""Random delays before launches."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest
import torch

from tests.runtime_shims.runtime_library import Handle, Runtime, Slot

Load = Callable[..., Runtime]
CALLS, LAUNCHES = 48, 3
LONG = 0.004  # seconds: no launch is delayed for so long


def waits(load: Load, jitter: str) -> list[float]:
    """The seconds that the beginnings of each launch took, over all calls."""
    runtime = load(JITTER=jitter, PRINT="none")
    site, handle = runtime.site(0, "k", Slot("x")), Handle(torch.ones(1))
    took = [0.0] * LAUNCHES
    for _ in range(CALLS):
        with runtime.call():
            for number in range(LAUNCHES):
                launch = runtime.launch_of(site, handle.value)
                began = time.monotonic()
                launch.begin()
                took[number] += time.monotonic() - began
                launch.end()
    return took


def test_every_launch_is_delayed_sometimes(load: Load) -> None:
    assert all(0.005 < seconds < CALLS * 5 * LONG for seconds in waits(load, "7"))


def test_the_chosen_launches_alone_are_delayed(load: Load) -> None:
    first, second, third = waits(load, "7:0,2")
    assert min(first, third) > 0.005
    assert second < min(first, third) / 2


@pytest.mark.parametrize("seed", [0, 1])
def test_two_threads_come_to_a_launch_together(load: Load, seed: int) -> None:
    """Of the pairs of launches that wait for each other, most begin at the same time."""
    runtime = load(JITTER=f"{seed}:0", PRINT="none")
    site, handle = runtime.site(0, "k", Slot("x")), Handle(torch.ones(1))
    begun: tuple[list[float], list[float]] = ([], [])
    barrier = threading.Barrier(2)

    def call(times: list[float], pause: float) -> None:
        for _ in range(CALLS):
            barrier.wait()
            time.sleep(pause)
            with runtime.call():
                launch = runtime.launch_of(site, handle.value)
                launch.begin()
                times.append(time.monotonic())
                launch.end()

    threads = [threading.Thread(target=call, args=(begun[number], number / 1000)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    apart = sorted(abs(one - other) for one, other in zip(*begun, strict=True))
    assert apart[CALLS // 6] < 0.0009
