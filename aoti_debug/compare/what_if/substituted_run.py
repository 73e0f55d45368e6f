"""A run of a package with instructions for the runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from aoti_debug.base.abi import NoteCode
from aoti_debug.base.errors import ArtifactError
from aoti_debug.base.lazy.dataclass import dataclass
from aoti_debug.compare.what_if import instructions as instruction_file
from aoti_debug.compare.what_if.instructions import Instruction
from aoti_debug.runs.run import runner, saved_outputs
from aoti_debug.runs.run.options import RunOptions
from aoti_debug.runs.run.supervise import Observer
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.runs.rundir.run_json import ExitKind

_NOT_REACHED = "; not reached: "


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
    instruction_file.write(file, instructions)
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
