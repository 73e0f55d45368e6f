"""`aoti-debug top`: what the instrumented packages of a running process do, line by line as time goes on."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import click

from aoti_debug.app.cli import options
from aoti_debug.app.cli.lines import print_lines, width
from aoti_debug.base import terminal_cells, wording
from aoti_debug.base.abi import Phase
from aoti_debug.base.frozen import dataclass
from aoti_debug.package import manifest, recording_settings
from aoti_debug.package.manifest import Manifest, Site
from aoti_debug.runs.diagnosis import suggested_commands
from aoti_debug.runs.run import running_process
from aoti_debug.runs.run.running_process import PackageState
from aoti_debug.runs.rundir import run_directory
from aoti_debug.runs.rundir.launch import Launch
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.runs.show import text

FORMAT = 1
_BLOCK = 512  # bytes, the unit of st_blocks
_MOST_JOURNAL = 16 << 20  # bytes of a journal that is read for NaN while the process runs


@click.command("top")
@click.argument("pid", type=click.IntRange(min=1))
@options.seconds("--interval", "How long a line is the mean of.", default=1.0)
@click.option("--count", metavar="N", type=click.IntRange(min=1), help="How many times.  [default: until it ends]")
@options.json_output("top", " One for each package and interval, on a line of its own.")
def command(*, pid: int, interval: float, count: int | None, as_json: bool) -> None:
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
                print_lines([f"process {pid} has ended"], err=as_json)
                return
            for package, old, new in zip(watched, before, after, strict=True):
                seen = package.observe(Interval(old, new, now - at, memory))
                if as_json:
                    click.echo(json.dumps(document(pid, seen), allow_nan=False))
                else:
                    print_lines(observation_lines(seen, width()))
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


@dataclass(frozen=True)
class FirstNan:
    """The first launch of a run that left NaN in a tensor.

    Attributes:
        elements: the number of those that are NaN.
        command: shows the launch.
    """

    launch: Launch
    argument: str
    elements: int
    command: str


@dataclass(frozen=True)
class Observation:
    """A package at the end of an interval.

    Attributes:
        newest: the site of the launch that began last; None if no launch of the run is known.
        nan: None if the records show none.
        news: sentences that were not true before, each only once.
    """

    interval: Interval
    newest: Site | None
    nan: FirstNan | None
    news: tuple[str, ...]


class WatchedPackage:
    """A package, watched from one interval to the next."""

    def __init__(self) -> None:
        self._run: Path | None = None  # what follows is of it
        self._manifest: Manifest | None = None
        self._nan: FirstNan | None = None
        self._is_read = True  # whether its journal is looked at

    def observe(self, interval: Interval) -> Observation:
        """Looks at the package at the end of an interval.

        Raises:
            RunDirError: its run cannot be read.
        """
        state = interval.after
        if state.run_directory != self._run:
            self._run, self._manifest, self._nan, self._is_read = state.run_directory, None, None, True
            if self._run is not None:
                self._manifest = manifest.from_json((self._run / run_directory.MANIFEST).read_bytes())
        news = tuple(self._look_for_nan())
        newest = None if self._manifest is None or not state.launches else self._manifest.sites[state.last_site]
        return Observation(interval, newest, self._nan, news)

    def _look_for_nan(self) -> Iterator[str]:
        if self._run is None or self._nan is not None or not self._is_read:
            return
        if (self._run / run_directory.JOURNAL).stat().st_blocks * _BLOCK > _MOST_JOURNAL:
            self._is_read = False
            yield f"NaN is no longer looked for: the journal has more than {wording.byte_size(_MOST_JOURNAL)}"
            return
        self._nan = first_nan(run_directory.open_run(self._run))
        if self._nan is not None:
            where = (
                f"{self._nan.launch.id} {self._nan.launch.kernel} {text.model_line(self._nan.launch.site.provenance)}"
            )
            count = wording.pluralize(self._nan.elements, "element")
            yield f"first NaN: {count} of {self._nan.argument} after {where}: {self._nan.command}"


def first_nan(run: RunDir) -> FirstNan | None:
    """The first launch that left NaN in a tensor; None if the records of the run show none."""
    for launch in run.launches.notable():
        for recorded in launch.stats:
            if recorded.phase is Phase.AFTER and recorded.statistics is not None and recorded.statistics.n_nan:
                name = launch.site.args[recorded.slot].name
                return FirstNan(launch, name, recorded.statistics.n_nan, suggested_commands.show(run, launch.id))
    return None


def observation_lines(seen: Observation, columns: int) -> list[str]:
    """The lines to print at the end of an interval."""
    interval = seen.interval
    state = interval.after
    facts = [
        time.strftime("%H:%M:%S"),
        state.model,
        f"level {recording_settings.written_level(state.level)}",
        f"{interval.calls:,.1f} calls/s",
        "launches not counted" if interval.launches is None else f"{interval.launches:,.0f} launches/s",
        wording.byte_size(interval.memory),
    ]
    if seen.newest is not None:
        facts.append(f"newest {seen.newest.kernel} {text.model_line(seen.newest.provenance)}")
    lines = terminal_cells.wrap_words(facts, columns, hang="  ")
    return lines + [line for sentence in seen.news for line in terminal_cells.fitted(f"  {sentence}", columns)]


def document(pid: int, seen: Observation) -> dict[str, object]:
    """The JSON object of a package at the end of an interval: docs/top.schema.json."""
    interval = seen.interval
    state = interval.after
    nan = seen.nan
    return {
        "format": FORMAT,
        "time": datetime.now().astimezone().isoformat(timespec="milliseconds"),
        "pid": pid,
        "model": state.model,
        "level": recording_settings.written_level(state.level),
        "run": None if state.run_directory is None else str(state.run_directory),
        "calls": state.calls,
        "calls_per_second": interval.calls,
        "launches_per_second": interval.launches,
        "resident_bytes": interval.memory,
        "newest": None if seen.newest is None else _site(seen.newest),
        "first_nan": None
        if nan is None
        else {
            "launch": nan.launch.id,
            **_site(nan.launch.site),
            "argument": nan.argument,
            "elements": nan.elements,
            "command": nan.command,
        },
    }


def _site(site: Site) -> dict[str, object]:
    return {"kernel": site.kernel, "model_line": site.provenance.source[0].place if site.provenance.source else None}
