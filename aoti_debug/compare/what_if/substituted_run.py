"""A run of a package with instructions for the runtime: launches to skip, to replace the results of, or to stop at.

A file of instructions has one a line, with tabs between its fields; runtime_shims/run/substitutions.h describes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

from aoti_debug.base import dtypes
from aoti_debug.base.abi import NoteCode, Phase
from aoti_debug.base.errors import ArtifactError, UsageError
from aoti_debug.base.frozen import dataclass
from aoti_debug.runs.run import runner, saved_outputs
from aoti_debug.runs.run.options import RunOptions
from aoti_debug.runs.run.supervise import Observer
from aoti_debug.runs.rundir.formats.stored_tensor import elements_at, layout_of
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.runs.rundir.run_json import ExitKind

_NUMBERS = {dtype.name: number for number, dtype in enumerate(dtypes.DTYPES)}  # c10::ScalarType
_NOT_REACHED = "; not reached: "


@dataclass(frozen=True)
class Skip:
    """A launch is not launched; what it would write keeps what it holds."""

    launch: str


@dataclass(frozen=True)
class Stop:
    """The run stops before a launch."""

    launch: str


@dataclass(frozen=True)
class Wait:
    """The process waits before a launch, until a file is gone; meanwhile FILE.waiting holds its id."""

    launch: str
    file: Path


@dataclass(frozen=True)
class Replace:
    """The result of a launch in an argument is replaced by the elements of a tensor file."""

    launch: str
    argument: str
    file: Path


@dataclass(frozen=True)
class Round:
    """The elements of a tensor of a launch are rounded to the numbers of another dtype, and keep their own dtype.

    Attributes:
        phase: before the launch, which gives back afterwards what it only read, or after it.
    """

    launch: str
    argument: str
    dtype: str
    phase: Phase


Instruction: TypeAlias = Skip | Stop | Wait | Replace | Round


def write(path: Path, instructions: Iterable[Instruction]) -> None:
    """Writes a file of instructions.

    Raises:
        OSError: it cannot be written.
        RunDirError: a tensor file is missing or damaged.
        UsageError: a name cannot be written.
    """
    path.write_text("".join(f"{_line(instruction)}\n" for instruction in instructions))


def _line(instruction: Instruction) -> str:
    match instruction:
        case Skip(launch):
            fields = ["skip", launch]
        case Stop(launch):
            fields = ["stop", launch]
        case Wait(launch, file):
            fields = ["wait", launch, str(file)]
        case Replace(launch, argument, file):
            source, offset = elements_at(file)
            fields = ["value", launch, argument, *_tensor(file), str(offset), str(source)]
        case Round(launch, argument, dtype, phase):
            fields = ["round", launch, argument, str(_NUMBERS[dtype]), phase.name.lower()]
    if any(character in field for field in fields for character in "\t\n"):
        raise UsageError(f"{fields[-1]!r} has a tab or an end of line in its name", hint="use another directory")
    return "\t".join(fields)


def _tensor(file: Path) -> tuple[str, str]:
    """Of a saved tensor: the number of its dtype, and its sizes."""
    layout = layout_of(file)
    return str(_NUMBERS[layout.dtype]), ",".join(map(str, layout.shape)) or "-"


@dataclass(frozen=True)
class SubstitutedRun:
    """A run, and what became of the instructions.

    Attributes:
        outputs: the files of what the model returned, by index.
        summary: how much was replaced and skipped; "" if the run did not end well.
        refused: the instructions that were not followed, each with its reason.
        seconds: from the start of the process to its end.
    """

    run: RunDir
    outputs: Mapping[int, Path]
    summary: str
    refused: tuple[str, ...]
    seconds: float


def run_substituted(
    options: RunOptions, instructions: Sequence[Instruction], folder: Path, observer: Observer | None = None
) -> SubstitutedRun:
    """Runs a package; with instructions at level 1 or more, nothing is printed.

    Args:
        folder: a new folder for the instructions and the outputs.

    Raises:
        ArtifactError: the package was built by an earlier version.
        UsageError, TargetError, RunDirError: as of `run` and `instructions.write`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "instructions.txt"
    write(file, instructions)
    chosen = replace(
        options,
        substitute=file if instructions else None,
        outputs=folder / "outputs",
        environment={**options.environment, "AOTI_DEBUG_PRINT": "none"},
    )
    result = runner.run(chosen, observer or Observer())
    notes = result.run.timeline.notes
    summaries = [note.text for note in notes if note.code == NoteCode.SUBSTITUTED]
    if instructions and not summaries and result.run.state is ExitKind.CLEAN:
        raise ArtifactError(
            f"{options.package} was built by an earlier version of aoti-debug: it cannot replace results",
            hint="build it again",
        )
    refused = [note.text for note in notes if note.code == NoteCode.NOT_SUBSTITUTED]
    summary, _, missing = (summaries[-1] if summaries else "").partition(_NOT_REACHED)
    refused += [f"{launch} was not reached" for launch in missing.split(", ") if launch]
    return SubstitutedRun(result.run, saved_outputs.saved(folder / "outputs"), summary, tuple(refused), result.seconds)
