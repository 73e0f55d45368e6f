"""The steps of a long piece of work, with durations and results, reported to a listener."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field

from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.progress.timings import covered


@dataclass(frozen=True)
class Step:
    """A step that is finished.

    Attributes:
        name: "build", "run, level 3".
        seconds: its duration.
        text: its result, one line.
        timings: seconds of its phases, in order, where they are known.
        began: seconds from the beginning of the work; steps may go on side by side.
    """

    name: str
    seconds: float
    text: str
    timings: Mapping[str, float] = field(default_factory=dict)
    began: float = 0.0


class StepListener:
    """Receives the progress of a piece of work; ignores all of it. Subclasses override what they need."""

    def began(self, name: str) -> None:
        """A step began."""

    def advanced(self, done: int, total: int) -> None:
        """A part of the running step is done."""

    def finished(self, step: Step) -> None:
        """A step is finished."""


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
    """The finished steps of a piece of work.

    Attributes:
        between: seconds of the work beside the steps, by name.
    """

    def __init__(self, listener: StepListener | None = None) -> None:
        self._listener = listener or StepListener()
        self._start = time.monotonic()
        self.done: list[Step] = []
        self.between: dict[str, float] = {}

    @property
    def now(self) -> float:
        """Seconds since the beginning of the work."""
        return time.monotonic() - self._start

    @contextmanager
    def step(self, name: str) -> Iterator[StepNote]:
        """Times a step; its result is written to the note. An exception is not reported as an end."""
        self._listener.began(name)
        note = StepNote()
        began = self.now
        yield note
        self.add(Step(name, self.now - began, note.text, note.timings, began))

    @contextmanager
    def work(self, name: str) -> Iterator[None]:
        """Times work that has no result of its own; the steps within it are not counted."""
        self._listener.began(name)
        began, before = self.now, len(self.done)
        yield
        inner = covered((step.began, step.seconds) for step in self.done[before:])
        self.between[name] = self.between.get(name, 0.0) + max(self.now - began - inner, 0.0)

    def advance(self, done: int, total: int) -> None:
        """Reports how far the running step is."""
        self._listener.advanced(done, total)

    def add(self, step: Step) -> None:
        """Adds a step that was done elsewhere."""
        self.done.append(step)
        self._listener.finished(step)
