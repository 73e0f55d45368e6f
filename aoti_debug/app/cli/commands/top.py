"""`aoti-debug top`: what the instrumented packages of a running process do, line by line as time goes on."""

from __future__ import annotations

import itertools
import time
from pathlib import Path

import click

from aoti_debug.app.cli import options
from aoti_debug.app.cli.lines import print_lines, width
from aoti_debug.base import terminal_cells, wording
from aoti_debug.base.abi import Phase
from aoti_debug.base.frozen import dataclass
from aoti_debug.package import manifest
from aoti_debug.package.manifest import Manifest
from aoti_debug.package.recording import levels
from aoti_debug.runs.diagnosis import suggested_commands
from aoti_debug.runs.run import running_process
from aoti_debug.runs.run.running_process import PackageState
from aoti_debug.runs.rundir import run_directory
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.runs.show import text

_MOST_JOURNAL = 16 << 20  # bytes of a journal that is read for NaN while the process runs


@click.command("top")
@click.argument("pid", type=click.IntRange(min=1))
@click.option(
    "--interval",
    metavar="SECONDS",
    type=options.Seconds(),
    default=1.0,
    show_default=True,
    help="How long a line is the mean of.",
)
@click.option("--count", metavar="N", type=click.IntRange(min=1), help="How many times.  [default: until it ends]")
def command(*, pid: int, interval: float, count: int | None) -> None:
    """Show what the instrumented packages of the running process PID do.

    A line has the calls and launches a second, the memory of the process in RAM, and the launch that began last. The
    first launch that wrote NaN is named once.

    Launches are counted above level 0, and NaN is seen at level 2. `aoti-debug attach` changes the level.
    """
    with running_process.control_pages(pid) as pages:
        watched = [WatchedPackage() for _ in pages]
        before, at = [page.read() for page in pages], time.monotonic()
        for _ in range(count) if count is not None else itertools.count():
            time.sleep(interval)
            after, now = [page.read() for page in pages], time.monotonic()
            memory = running_process.resident_bytes(pid)
            if memory is None or not running_process.is_alive(pid):
                print_lines([f"process {pid} has ended"])
                return
            for package, old, new in zip(watched, before, after, strict=True):
                print_lines(package.lines(Interval(old, new, now - at, memory), width()))
            before, at = after, now


@dataclass(frozen=True)
class Interval:
    """A package at both ends of an interval.

    Attributes:
        seconds: its length.
        memory: bytes of the process in RAM at its end.
    """

    before: PackageState
    after: PackageState
    seconds: float
    memory: int

    @property
    def calls(self) -> float:
        """Calls of the model a second."""
        return (self.after.calls - self.before.calls) / self.seconds

    @property
    def launches(self) -> float | None:
        """Launches a second; None at level 0, and if another run began."""
        if not self.after.level or self.after.runs != self.before.runs:
            return None
        return (self.after.launches - self.before.launches) / self.seconds


class WatchedPackage:
    """A package, watched from one interval to the next."""

    def __init__(self) -> None:
        self._run: Path | None = None  # what follows is of it
        self._manifest: Manifest | None = None
        self._said_nan = False

    def lines(self, interval: Interval, columns: int) -> list[str]:
        """The lines to print at the end of an interval."""
        state = interval.after
        if state.run_directory != self._run:
            self._run, self._said_nan = state.run_directory, False
            self._manifest = None
            if self._run is not None:
                self._manifest = manifest.from_json((self._run / run_directory.MANIFEST).read_bytes())
        facts = [
            time.strftime("%H:%M:%S"),
            state.model,
            f"level {levels.written(state.level)}",
            f"{interval.calls:,.1f} calls/s",
            "launches not counted" if interval.launches is None else f"{interval.launches:,.0f} launches/s",
            wording.byte_size(interval.memory),
        ]
        newest = self._newest(state)
        lines = terminal_cells.wrap_words([*facts, newest] if newest else facts, columns, hang="  ")
        return lines + self._nan_lines(columns)

    def _newest(self, state: PackageState) -> str:
        """The launch that began last, as kernel and model line."""
        if self._manifest is None or not state.launches:
            return ""
        site = self._manifest.sites[state.last_site]
        line = text.model_line(site.provenance)
        return f"newest {site.kernel} {line}".rstrip()

    def _nan_lines(self, columns: int) -> list[str]:
        """The first launch of the run that wrote NaN, once."""
        if self._run is None or self._said_nan:
            return []
        if (self._run / run_directory.JOURNAL).stat().st_blocks * 512 > _MOST_JOURNAL:
            self._said_nan = True
            return [f"  NaN is no longer looked for: the journal has more than {wording.byte_size(_MOST_JOURNAL)}"]
        run = run_directory.open_run(self._run)
        found = first_nan(run)
        if not found:
            return []
        self._said_nan = True
        return terminal_cells.fitted(f"  first NaN: {found}", columns)


def first_nan(run: RunDir) -> str:
    """The first launch that left NaN in a tensor, the tensor, and the command that shows it; "" without any."""
    for launch in run.launches.notable():
        for recorded in launch.stats:
            if recorded.phase is Phase.AFTER and recorded.statistics is not None and recorded.statistics.n_nan:
                line = text.model_line(launch.site.provenance)
                count = wording.pluralize(recorded.statistics.n_nan, "element")
                name = launch.site.args[recorded.slot].name
                shows = suggested_commands.show(run, launch.id)
                return f"{count} of {name} after {launch.id} {launch.kernel} {line}: {shows}"
    return ""
