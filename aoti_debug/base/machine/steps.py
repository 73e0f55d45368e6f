"""The steps of a long piece of work: durations and results, told to a listener, and in which time last; a limit."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import field, replace
from pathlib import Path

from aoti_debug.base import wording
from aoti_debug.base.errors import ToolchainError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine import cache
from aoti_debug.base.machine.files import atomic_write, json_data

_KEPT = 200  # pieces of work


@dataclass(frozen=True)
class _Content:
    seconds: Mapping[str, float] = field(default_factory=dict)


class LastDurations:
    """The durations of the steps of one piece of work. They help a person to wait; without a cache there are none."""

    def __init__(self, *work: str) -> None:
        """Reads them.

        Args:
            work: what identifies the work: the command, and the file that it works on.
        """
        self._path: Path | None = None
        self._seconds: dict[str, float] = {}
        with contextlib.suppress(OSError, json_data.DamagedJsonError, ToolchainError):  # ToolchainError: no cache
            name = cache.key(*(os.fsencode(word).hex() for word in work))  # a path may be any bytes
            self._path = cache.directory() / "durations" / f"{name}.json"
            self._seconds = dict(json_data.parse(_Content, self._path.read_bytes()).seconds)

    def hint(self, step: str) -> str:
        """ " (last time 4.4 s)"; "" for a step that was never done here."""
        seconds = self._seconds.get(step)
        return "" if seconds is None else f" (last time {wording.duration(seconds)})"

    def remember(self, step: str, seconds: float) -> None:
        """Writes the duration of a finished step."""
        self._seconds[step] = seconds
        if self._path is None:
            return
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            atomic_write.write(self._path, json_data.to_text(_Content(self._seconds)))
            for old in sorted(self._path.parent.glob("*.json"), key=lambda path: path.stat().st_mtime)[:-_KEPT]:
                old.unlink(missing_ok=True)


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


class OutOfTime(KeyboardInterrupt):
    """Ends a piece of work that takes longer than it may, in the way of an interrupt: its processes are ended, too."""


_AGAIN = 30.0  # seconds after which work that has not ended by then is interrupted once more
_LONGEST = 1e8  # seconds; a timer takes no infinity


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Limits the time of the work in it, in the main thread of a process; math.inf for no limit.

    There is no limit in another thread, and where the timer of the process, or its signal in C, is in use already.

    Raises:
        OutOfTime: the time is over.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getitimer(signal.ITIMER_REAL)[0] or signal.getsignal(signal.SIGALRM) is None:
        yield
        return

    def interrupt(*_: object) -> None:
        raise OutOfTime

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, min(seconds, _LONGEST), _AGAIN)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


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

    def later(self, seconds: float) -> Step:
        """The step as one of longer work, which began so many seconds before."""
        return replace(self, began=self.began + seconds)


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
        running: what began last: a step, or work beside the steps.
    """

    def __init__(self, listener: StepListener | None = None) -> None:
        self._listener = listener or StepListener()
        self._start = time.monotonic()
        self.done: list[Step] = []
        self.between: dict[str, float] = {}
        self.running = ""

    @property
    def now(self) -> float:
        """Seconds since the beginning of the work."""
        return time.monotonic() - self._start

    @contextmanager
    def step(self, name: str) -> Iterator[StepNote]:
        """Times a step; its result is written to the note. An exception is not reported as an end."""
        self._begin(name)
        note = StepNote()
        began = self.now
        yield note
        self.add(Step(name, self.now - began, note.text, note.timings, began))

    @contextmanager
    def work(self, name: str) -> Iterator[None]:
        """Times work that has no result of its own; the steps within it are not counted."""
        self._begin(name)
        began, before = self.now, len(self.done)
        yield
        inner = covered((step.began, step.seconds) for step in self.done[before:])
        self.between[name] = self.between.get(name, 0.0) + max(self.now - began - inner, 0.0)

    def _begin(self, name: str) -> None:
        self.running = name
        self._listener.began(name)

    def advance(self, done: int, total: int) -> None:
        """Reports how far the running step is."""
        self._listener.advanced(done, total)

    def add(self, step: Step) -> None:
        """Adds a step that was done elsewhere."""
        self.done.append(step)
        self._listener.finished(step)
