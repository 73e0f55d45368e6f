"""The stages of a build: told to the caller while it goes on, and timed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class BuildProgress(Protocol):
    """Is told of every stage: when it begins (`seconds` None), and how long it took."""

    def __call__(self, stage: str, seconds: float | None) -> None: ...


class Stages:
    """The stages of a build.

    Attributes:
        seconds: of each stage that has ended, in order.
    """

    def __init__(self, progress: BuildProgress | None) -> None:
        self._progress = progress
        self.seconds: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Times what is done in it, and tells of its beginning and its end; not of an end by an exception."""
        if self._progress:
            self._progress(name, None)
        began = time.monotonic()
        yield
        self.seconds[name] = time.monotonic() - began
        if self._progress:
            self._progress(name, self.seconds[name])
