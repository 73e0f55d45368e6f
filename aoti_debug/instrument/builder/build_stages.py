"""The stages of a build, timed and reported to the caller."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class BuildProgress(Protocol):
    """A callback for every stage: at its beginning (`seconds` is None), and at its end with its duration."""

    def __call__(self, stage: str, seconds: float | None) -> None: ...


class Stages:
    """Times the stages of a build and reports them.

    Attributes:
        seconds: duration of each completed stage, in order.
    """

    def __init__(self, progress: BuildProgress | None) -> None:
        self._progress = progress
        self.seconds: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Times the body and reports its beginning and its end; an exception is not reported as an end."""
        if self._progress:
            self._progress(name, None)
        start = time.monotonic()
        yield
        self.seconds[name] = time.monotonic() - start
        if self._progress:
            self._progress(name, self.seconds[name])
