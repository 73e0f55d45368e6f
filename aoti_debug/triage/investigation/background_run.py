"""A run of a package that goes on in a thread while this one does something else."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from aoti_debug.base.lazy.dataclass import dataclass
from aoti_debug.base.machine.files import stamped_directories
from aoti_debug.base.machine.progress.steps import Steps
from aoti_debug.runs.run.options import RunOptions
from aoti_debug.runs.run.runner import RunResult, run_with
from aoti_debug.runs.run.supervise import Observer
from aoti_debug.runs.rundir import run_json


@dataclass(frozen=True)
class Finished:
    """A run that has ended.

    Attributes:
        seconds: its duration.
        began: seconds from the beginning of the work.
    """

    result: RunResult
    seconds: float
    began: float


class BackgroundRun:
    """Runs a package in a process of its own, from now on.

    Args:
        steps: of the work that it is a part of; only their clock is read.
    """

    def __init__(self, options: RunOptions, steps: Steps) -> None:
        self._observer = _Cancellable()
        self._pool = ThreadPoolExecutor(1)
        self._future = self._pool.submit(_timed, options, self._observer, steps)
        self._pool.shutdown(wait=False)

    def finished(self) -> Finished:
        """Waits for its end.

        Raises:
            UsageError, ArtifactError, TargetError: the model never started.
        """
        return self._future.result()

    def cancel(self) -> None:
        """Kills its process if it still runs, waits for that, and removes what it recorded."""
        self._observer.cancelled.set()
        self._pool.shutdown()
        if self._observer.path is not None and self._observer.path.exists():
            stamped_directories.remove(self._observer.path, None)
            stamped_directories.relink_latest(self._observer.path.parent, run_json.NAME)


class _Cancellable(Observer):
    """Interrupts its run once it is cancelled."""

    def __init__(self) -> None:
        self.cancelled = threading.Event()
        self.path: Path | None = None

    def started(self, run: Path) -> None:
        self.path = run

    def tick(self) -> None:
        if self.cancelled.is_set():
            raise KeyboardInterrupt


def _timed(options: RunOptions, observer: Observer, steps: Steps) -> Finished:
    began = steps.now
    result = run_with(options, observer)
    return Finished(result, steps.now - began, began)
