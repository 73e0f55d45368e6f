"""The options of what is recorded of launches and printed: of `run` and `exec` as one object, some of `attach`, too."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

import click

from aoti_debug.app.cli import options
from aoti_debug.base.errors import UsageError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.files.results_home import ResultKind
from aoti_debug.package import recording_settings
from aoti_debug.runs.run.options import RunOptions, Shown

_Command = TypeVar("_Command", bound=Callable[..., Any])


def recorded_values(command: _Command) -> _Command:
    """--filter, --module, --line, --phase and --flight: which launches and values of a run are recorded."""
    flight = click.option(
        "--flight",
        metavar="K",
        type=click.IntRange(0, recording_settings.MAX_FLIGHT),
        help="Flight recorder: keep the inputs of the last K launches in shared memory; after a crash they are saved.",
    )
    phase = click.option(
        "--phase",
        type=click.Choice(recording_settings.PHASES),
        help="Values to print and save.  [default: level 2 inputs before and outputs after a launch, level 1 both]",
    )
    kernels = options.filters(
        "Print and save only kernels whose name matches: 'triton_*', '!cpp_fused_*'. All launches stay in the journal."
    )
    return kernels(options.modules_and_lines("Print and save only launches")(phase(flight(command))))


def watchpoints(command: _Command) -> _Command:
    """--watch and --on-hit."""
    watch = click.option(
        "--watch",
        metavar="'NAME: CONDITION'",
        multiple=True,
        help="Look at arguments, or at all arguments of kernels, of this name in every launch: 'buf7: absmax > 1e4', "
        "'*: nan'. Repeatable.",
    )
    on_hit = click.option(
        "--on-hit",
        metavar="ACTIONS",
        default="",
        help="What a watchpoint that is hit does: save (the tensors of the launch), stack (the native call stack, "
        "once), stop (the run), count (nothing else); several with commas.",
    )
    return watch(on_hit(command))


run_out = click.option(
    "--out",
    metavar="DIR",
    type=options.FilePath(file_okay=False),
    help=f"Where the run directory is made.  [default: {ResultKind.RUNS.default}]",
)


@dataclass(frozen=True)
class RecordingOptions:
    """The options of what is recorded of launches and printed: a field has the name and the value of its option.

    Attributes:
        level: None for that of the environment, or the default of the command.
        filters, modules, lines, launches: patterns of launches; () for all.
        phase: None for the level's own choice.
        flight: None for the setting of the environment.
        out: the directory for run directories; None for the default.
    """

    level: int | None
    filters: tuple[str, ...]
    modules: tuple[str, ...]
    lines: tuple[str, ...]
    phase: str | None
    flight: int | None
    launches: tuple[str, ...]
    watch: tuple[str, ...]
    on_hit: str
    guards: bool
    summaries: bool
    out: Path | None
    verbose: bool
    quiet: bool

    def of(self, package: Path, *, is_level_given: bool, **others: Any) -> RunOptions:
        """The options of a run.

        Args:
            is_level_given: the user has asked for a level, and so for its text.
            others: further options, or other values of these.

        Raises:
            UsageError: both --verbose and --quiet are given.
        """
        recorded = {
            "level": self.level,
            "filters": self.filters or None,
            "modules": self.modules or None,
            "lines": self.lines or None,
            "phase": self.phase,
            "flight": self.flight,
            "launch": ",".join(self.launches) or None,
            "guards": self.guards,
            "watch": self.watch,
            "on_hit": self.on_hit,
            "summaries": 1 if self.summaries else None,
            "out": self.out,
            "shown": shown(verbose=self.verbose, quiet=self.quiet, is_level_given=is_level_given),
        }
        return RunOptions(package, **{**recorded, **others})


def shown(*, verbose: bool, quiet: bool, is_level_given: bool) -> Shown:
    """The printing of launches that is asked for: on a terminal, a counter stands in place of thousands of names.

    Raises:
        UsageError: both flags are given.
    """
    if verbose and quiet:
        raise UsageError("-v and -q exclude each other", hint="-v prints names, -q prints nothing while the model runs")
    if quiet:
        return Shown.NOTHING
    return Shown.ALL if verbose or (is_level_given and not sys.stdout.isatty()) else Shown.VALUES


def recording(level: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The options of a `RecordingOptions`, which the command takes as `recording`.

    Args:
        level: the default of --level, in words.
    """

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def with_recording(*args: Any, **values: Any) -> Any:
            return command(*args, recording=_taken(values), **values)

        of_level = click.option(
            "--level",
            metavar="LEVEL",
            type=options.LevelType(),
            help=f"{recording_settings.MEANINGS}.  [default: {level}]",
        )
        for option in (*reversed(_OPTIONS), of_level):
            option(with_recording)
        return with_recording

    return add


def _taken(values: dict[str, Any]) -> RecordingOptions:
    """The recording that the values of options say; these are taken out."""
    taken: Mapping[str, Any] = {field.name: values.pop(field.name) for field in fields(RecordingOptions)}
    return RecordingOptions(**taken)


_OPTIONS: tuple[Callable[[Callable[..., Any]], Callable[..., Any]], ...] = (
    recorded_values,
    click.option(
        "--launch",
        "launches",
        metavar="CALL.LAUNCH",
        multiple=True,
        help="Print and save this launch only. Repeatable.",
    ),
    watchpoints,
    click.option(
        "--guards",
        is_flag=True,
        help="Put guard zones around the buffers that the model allocates and check them after every launch: this "
        "finds launches that write out of bounds.",
    ),
    click.option(
        "--summaries",
        is_flag=True,
        help="Keep the statistics of what each launch writes, of every call, in one small file: aoti-debug summaries.",
    ),
    run_out,
    click.option(
        "-v",
        "--verbose",
        is_flag=True,
        help="At level 3, print the name of each launch; without -v only in a pipe, and if --level 3 is given.",
    ),
    click.option(
        "-q", "--quiet", is_flag=True, help="Print what was found and where the run is: no names, values or progress."
    ),
)
