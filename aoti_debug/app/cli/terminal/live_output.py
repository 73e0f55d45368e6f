"""The output of a running model, and a progress line below it on a terminal."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from aoti_debug.app.cli.terminal.lines import is_live
from aoti_debug.base import wording
from aoti_debug.package import manifest
from aoti_debug.package.manifest import Manifest
from aoti_debug.runs.run.supervise import Observer
from aoti_debug.runs.rundir import run_directory
from aoti_debug.runs.rundir.run_json import RunStage

_REFRESH = 0.25  # seconds


class LiveOutput(Observer):
    """Passes the process's output through; on a terminal, a progress line below it counts the saved tensors."""

    def __init__(self, calls: int) -> None:
        self._calls = calls
        self._console = Console(stderr=True)
        self._progress: Progress | None = None
        self._saved: SavedSoFar | None = None
        self._next = 0.0

    def __enter__(self) -> LiveOutput:
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            self._progress.stop()

    def started(self, run: Path) -> None:
        """Reads how many launches a call has."""
        package = manifest.from_json((run / run_directory.MANIFEST).read_bytes())
        self._saved = SavedSoFar(run / "tensors", launches_per_call(package), self._calls)

    def reached(self, stage: RunStage) -> None:
        """Starts the progress line when the package is loaded."""
        if stage is RunStage.LOAD and is_live(self._console):
            columns = (SpinnerColumn(), BarColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
            self._progress = Progress(*columns, console=self._console, transient=True, redirect_stdout=False)
            self._progress.add_task("running", total=None)
            self._progress.start()

    def output(self, stream: str, data: bytes) -> None:
        """Writes a piece of output through."""
        if self._progress is not None:
            self._progress.stop()
        target = sys.stderr if stream == "stderr" else sys.stdout
        target.buffer.write(data)
        target.buffer.flush()
        if self._progress is not None and data.endswith(b"\n"):
            self._progress.start()

    def tick(self) -> None:
        """Refreshes the progress line."""
        now = time.monotonic()
        if self._progress is None or self._saved is None or now < self._next:
            return
        self._next = now + _REFRESH
        self._saved.update()
        task = self._progress.task_ids[0]
        self._progress.update(
            task, description=self._saved.text(), total=self._saved.total, completed=self._saved.launches
        )


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
        """ "launch 0.3: 2 tensors, 1.0 KiB"; "running" before anything was saved."""
        if not self._done:
            return "running"
        call, launch = max(self._done)
        return f"launch {call}.{launch}: {wording.pluralize(self.files, 'tensor')}, {wording.byte_size(self.bytes)}"


def launches_per_call(package: Manifest) -> int | None:
    """The number of launches of a call; None if it depends on branches or loops, or is not known."""
    sites = [site for site in package.sites if site.function == "run_impl"]
    if package.without_source:
        return None
    return None if any(site.subgraph or site.loops for site in sites) else len(sites)
