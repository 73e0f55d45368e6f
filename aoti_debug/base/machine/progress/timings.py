"""Durations of the consecutive phases of a piece of work."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path


class Stopwatch:
    """Measures consecutive phases; the end of one is the beginning of the next."""

    def __init__(self, phase: str) -> None:
        """Begins the first phase."""
        self._seconds: dict[str, float] = {}
        self._phase = phase
        self._began = time.monotonic()

    def next(self, phase: str) -> None:
        """Ends the current phase and begins another; a phase that is begun again goes on."""
        now = time.monotonic()
        self._seconds[self._phase] = self._seconds.get(self._phase, 0.0) + now - self._began
        self._phase, self._began = phase, now

    @property
    def seconds(self) -> Mapping[str, float]:
        """Seconds of each phase until now, in the order of their beginnings."""
        running = self._seconds.get(self._phase, 0.0) + time.monotonic() - self._began
        return {**self._seconds, self._phase: running}


def covered(intervals: Iterable[tuple[float, float]]) -> float:
    """The time in which at least one of some intervals goes on; each is its beginning and its length."""
    total, end = 0.0, -math.inf
    for began, seconds in sorted(intervals):
        total += max(began + seconds - max(began, end), 0.0)
        end = max(end, began + seconds)
    return total


def since_process_start() -> float:
    """Seconds since this process was started; 0 where the system does not tell."""
    with suppress(OSError, ValueError, IndexError):
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        started = int(fields[19]) / os.sysconf("SC_CLK_TCK")
        return max(time.clock_gettime(time.CLOCK_BOOTTIME) - started, 0.0)
    return 0.0
