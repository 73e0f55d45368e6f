"""What a triage did, one line a step."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from aoti_debug.triage.triage_directory import Step


class Listener(Protocol):
    """Is told of a step when it begins (`step` None) and when it has ended."""

    def __call__(self, name: str, step: Step | None) -> None: ...


class StepNote:
    """What a running step will have found."""

    text = ""


class Steps:
    """The steps so far."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self.done: list[Step] = []

    @contextmanager
    def step(self, name: str) -> Iterator[StepNote]:
        """A step; what it found is written to the note."""
        self._listener(name, None)
        note = StepNote()
        began = time.monotonic()
        yield note
        self.add(Step(name, time.monotonic() - began, note.text))

    def add(self, step: Step) -> None:
        """A step that was done elsewhere."""
        self.done.append(step)
        self._listener(step.name, step)
