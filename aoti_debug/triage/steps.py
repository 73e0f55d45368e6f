"""The steps of a triage, with durations and results."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

from aoti_debug.triage.triage_directory import Step


class Listener(Protocol):
    """A function that is called when a step begins (`step` None) and when it has ended."""

    def __call__(self, name: str, step: Step | None) -> None: ...


class StepNote:
    """The result of a running step.

    Attributes:
        text: one line.
        timings: seconds of its phases.
    """

    def __init__(self) -> None:
        self.text = ""
        self.timings: Mapping[str, float] = {}


class Steps:
    """The finished steps of a triage, reported to a listener."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._start = time.monotonic()
        self.done: list[Step] = []

    @property
    def now(self) -> float:
        """Seconds since the beginning of the triage."""
        return time.monotonic() - self._start

    @contextmanager
    def step(self, name: str) -> Iterator[StepNote]:
        """Times a step; its result is written to the note."""
        self._listener(name, None)
        note = StepNote()
        began = self.now
        yield note
        self.add(Step(name, self.now - began, note.text, note.timings, began))

    def add(self, step: Step) -> None:
        """Adds a step that was done elsewhere."""
        self.done.append(step)
        self._listener(step.name, step)
