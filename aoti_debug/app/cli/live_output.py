"""The lines of a long command: its steps, the output of a running model, and at the end the time that it took."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from aoti_debug.app.cli.lines import is_live, print_lines, width
from aoti_debug.base import terminal_cells, wording
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine import steps
from aoti_debug.base.machine.steps import LastDurations, Step, StepListener
from aoti_debug.package import manifest
from aoti_debug.package.manifest import Manifest
from aoti_debug.runs.run.supervise import Observer
from aoti_debug.runs.rundir import run_directory
from aoti_debug.runs.rundir.formats import journal_end
from aoti_debug.runs.rundir.formats.journal_end import NewestLaunch
from aoti_debug.runs.rundir.run_json import RunStage

_REFRESH = 0.25  # seconds
_BAR = 20  # columns


class LiveOutput(Observer):
    """Passes the process's output through; on a terminal, a progress line below it counts calls, launches and tensors.

    Args:
        has_progress: False for no such line.
        stdout: where what the process writes to its stdout goes.
    """

    def __init__(self, calls: int, *, has_progress: bool, stdout: TextIO) -> None:
        self._calls = calls
        self._stdout = stdout
        self._console = Console(stderr=True)
        self._has_progress = has_progress and is_live(self._console)
        self._progress: Progress | None = None
        self._saved: SavedSoFar | None = None
        self._launched: LaunchedSoFar | None = None
        self._next = 0.0

    def __enter__(self) -> LiveOutput:
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            self._progress.stop()

    def started(self, run: Path) -> None:
        """Reads how many launches a call has."""
        package = manifest.from_json((run / run_directory.MANIFEST).read_bytes())
        per_call = launches_per_call(package)
        self._saved = SavedSoFar(run / "tensors", per_call, self._calls)
        self._launched = LaunchedSoFar(run / run_directory.JOURNAL, per_call, self._calls)

    def reached(self, stage: RunStage) -> None:
        """Starts the progress line when the package is loaded."""
        if stage is RunStage.LOAD and self._has_progress:
            columns = (SpinnerColumn(), BarColumn(_BAR), TextColumn("{task.description}"), TimeElapsedColumn())
            self._progress = Progress(*columns, console=self._console, transient=True, redirect_stdout=False)
            self._progress.add_task("running", total=None)
            self._progress.start()

    def output(self, stream: str, data: bytes) -> None:
        """Writes a piece of output through."""
        if self._progress is not None:
            self._progress.stop()
        target = sys.stderr if stream == "stderr" else self._stdout
        target.buffer.write(data)
        target.buffer.flush()
        if self._progress is not None and data.endswith(b"\n"):
            self._progress.start()

    def tick(self) -> None:
        """Refreshes the progress line."""
        now = time.monotonic()
        if self._progress is None or self._saved is None or self._launched is None or now < self._next:
            return
        self._next = now + _REFRESH
        self._saved.update()
        self._launched.update()
        launches = max(self._saved.launches, self._launched.launches)
        text = self._saved.text() or self._launched.text() or "running"
        task = self._progress.task_ids[0]
        self._progress.update(task, description=text, total=self._saved.total, completed=launches)


class LaunchedSoFar:
    """The calls and launches that a run has begun so far, read from its journal.

    Args:
        per_call: launches of a call; None if that is unknown beforehand.

    Attributes:
        launches: those that have begun.
    """

    def __init__(self, journal: Path, per_call: int | None, calls: int) -> None:
        self._journal = journal
        self._per_call = per_call
        self._calls = calls
        self._newest: NewestLaunch | None = None
        self.launches = 0

    def update(self) -> None:
        """Reads the newest launch."""
        self._newest = journal_end.newest_launch(self._journal) or self._newest
        if self._newest is not None and self._per_call is not None:
            self.launches = self._newest.key.call * self._per_call + self._newest.key.launch + 1

    def text(self) -> str:
        """ "call 12 of 1000, 513 launches"; "" before the first launch."""
        if self._newest is None:
            return ""
        launches = wording.pluralize(self._newest.number, "launch")
        return f"call {self._newest.key.call + 1} of {self._calls}, {launches}"


class SavedSoFar:
    """The tensors that a run has saved so far, counted in its folders; a finished folder is counted once.

    Attributes:
        total: launches of the whole run; None if that is unknown beforehand.
        launches: launches up to the newest one that saved something.
    """

    def __init__(self, folder: Path, per_call: int | None, calls: int) -> None:
        self._folder = folder
        self._per_call = per_call
        self._done: dict[tuple[int, int], tuple[int, int]] = {}
        self.total = None if per_call is None else per_call * calls
        self.launches = 0
        self.files = 0
        self.bytes = 0

    def update(self) -> None:
        """Counts the files in the folders."""
        if not self._folder.is_dir():
            return
        calls = [path for path in self._folder.iterdir() if path.name.isdecimal()]
        launches = {
            (int(call.name), int(path.name.partition("_")[0])): path for call in calls for path in call.iterdir()
        }
        for key, path in launches.items():
            if key not in self._done or key == max(launches):
                sizes = [file.stat().st_size for file in path.glob("*.safetensors")]
                self._done[key] = (len(sizes), sum(sizes))
        self.files = sum(files for files, _ in self._done.values())
        self.bytes = sum(size for _, size in self._done.values())
        if launches and self._per_call is not None:
            call, launch = max(launches)
            self.launches = call * self._per_call + launch + 1

    def text(self) -> str:
        """ "launch 0.3: 2 tensors, 1.0 KiB"; "" before anything was saved."""
        if not self._done:
            return ""
        call, launch = max(self._done)
        return f"launch {call}.{launch}: {wording.pluralize(self.files, 'tensor')}, {wording.byte_size(self.bytes)}"


def launches_per_call(package: Manifest) -> int | None:
    """The number of launches of a call; None if it depends on branches or loops, or is not known."""
    sites = [site for site in package.sites if site.function == "run_impl"]
    if package.without_source:
        return None
    return None if any(site.subgraph or site.loops for site in sites) else len(sites)


START = "start aoti-debug"
OTHER = "other"
_SHORTEST_OTHER = 0.001  # seconds


@dataclass(frozen=True)
class TimedPhase:
    """A phase of a command.

    Attributes:
        parts: seconds of its own phases, in order.
        began: seconds from the beginning of the command, where phases may go on side by side.
    """

    name: str
    seconds: float
    parts: Mapping[str, float] = field(default_factory=dict)
    began: float | None = None


def timing_lines(phases: Sequence[TimedPhase], total: float) -> list[str]:
    """The phases with their seconds and share, the time between them, and the total.

    Args:
        total: seconds of the whole command.
    """
    rest = total - _covered(phases)
    rows = [("time", "", "")]
    for phase in [*phases, *([TimedPhase(OTHER, rest)] if rest > _SHORTEST_OTHER else [])]:
        rows.append(_row(f"  {phase.name}", phase.seconds, total))
        rows += [_row(f"    {name}", seconds, total) for name, seconds in phase.parts.items()]
    rows.append(_row("  in all", total, total))
    width = max(len(name) for name, _, _ in rows)
    return [f"{name:<{width}}  {seconds:>10}  {share:>4}".rstrip() for name, seconds, share in rows]


def _covered(phases: Sequence[TimedPhase]) -> float:
    """The seconds in which at least one phase went on; one whose beginning is not known goes on alone."""
    alone = sum(phase.seconds for phase in phases if phase.began is None)
    return alone + steps.covered((phase.began, phase.seconds) for phase in phases if phase.began is not None)


def _row(name: str, seconds: float, total: float) -> tuple[str, str, str]:
    return name, wording.duration(seconds), f"{seconds / total:.0%}" if total > 0 else ""


_NAME, _DURATION = 24, 10  # columns
_NAME_COLUMNS = (SpinnerColumn(), TextColumn("{task.description}"))


def step_lines(step: Step, columns: int) -> list[str]:
    """A step with its duration and its result, which goes on below itself."""
    line = f"{step.name:<{_NAME}} {wording.duration(step.seconds):>{_DURATION}}  {wording.first_line(step.text)}"
    return terminal_cells.wrapped(line, columns, hang=" " * (_NAME + _DURATION + 3))


class StepLines(StepListener):
    """Prints one line for each step: its duration and result; on a terminal also the running step."""

    def __init__(self, last: LastDurations) -> None:
        self._console = Console(stderr=True)
        self._last = last
        self._name = ""
        self._progress: Progress | None = None
        self._is_counting = False

    def __enter__(self) -> StepLines:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def began(self, name: str) -> None:
        """Shows the running step, and how long it took the last time."""
        self._stop()
        self._name = name + self._last.hint(name)
        if is_live(self._console):
            self._show(Progress(*_NAME_COLUMNS, TimeElapsedColumn(), console=self._console, transient=True))

    def advanced(self, done: int, total: int) -> None:
        """Shows how far the step is."""
        if self._progress is None:
            return
        if not self._is_counting:
            self._stop()
            columns = (*_NAME_COLUMNS, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
            self._show(Progress(*columns, console=self._console, transient=True))
            self._is_counting = True
        self._progress.update(self._progress.task_ids[0], completed=done, total=total)

    def finished(self, step: Step) -> None:
        """Prints the line of a step."""
        self._stop()
        self._last.remember(step.name, step.seconds)
        print_lines(step_lines(step, width(err=True)), err=True)

    def _show(self, progress: Progress) -> None:
        self._progress = progress
        progress.add_task(self._name, total=None)
        progress.start()

    def _stop(self) -> None:
        if self._progress is not None:
            self._progress.stop()
            self._progress = None
        self._is_counting = False
