"""Lines about the steps of a long command, on stderr."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from aoti_debug.app.cli.terminal.lines import is_live, print_lines, width
from aoti_debug.base import wording
from aoti_debug.base.machine.progress.last_durations import LastDurations
from aoti_debug.base.machine.progress.steps import Step, StepListener
from aoti_debug.runs.show.terminal_cells import shorten_middle

_NAME = 30  # columns
_NAME_COLUMNS = (SpinnerColumn(), TextColumn("{task.description}"))


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
        line = f"{step.name:<{_NAME}} {wording.duration(step.seconds):>8}  {wording.first_line(step.text)}"
        print_lines([shorten_middle(line, width(err=True))], err=True)

    def _show(self, progress: Progress) -> None:
        self._progress = progress
        progress.add_task(self._name, total=None)
        progress.start()

    def _stop(self) -> None:
        if self._progress is not None:
            self._progress.stop()
            self._progress = None
        self._is_counting = False
