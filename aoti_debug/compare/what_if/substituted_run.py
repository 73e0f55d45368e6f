"""Runs of a package with instructions for the runtime, which launches to skip or replace; those of one replay.

A file of instructions has one a line, with tabs between its fields; runtime_shims/run/substitutions.h describes it.
The directory of a replay:

aoti-debug/replays/20261120-231501-4711/
  runs/ baseline/ substituted/ program_0/ b.pt2 b/
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import TypeAlias

from aoti_debug.base import dtypes, wording
from aoti_debug.base.abi import NoteCode, Phase
from aoti_debug.base.errors import ArtifactError, UsageError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine import torch_settings
from aoti_debug.base.machine.files.results_home import ResultKind
from aoti_debug.base.machine.steps import Steps
from aoti_debug.base.machine.user_code import UserCode
from aoti_debug.instrument.builder.build import BuildOptions, instrumented
from aoti_debug.package.pt2 import archive, trust
from aoti_debug.runs.run import runner, saved_outputs
from aoti_debug.runs.run.options import RunOptions, recording_everything
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


@dataclass(frozen=True, kw_only=True)
class ReplayOptions:
    """A run to repeat, and what is done otherwise.

    Attributes:
        run: its directory or name; None for the latest.
        substitutions: "0.36=eager" (replacements.py).
        to: stop before this launch, "0.37"; "" to go on to the end.
        begin: do not launch what is before this launch, but give it the recorded results; "" to launch everything.
        out: the directory in which the directory of the replay is made.
        user_code: as for `run`.
    """

    run: Path | None = None
    substitutions: tuple[str, ...] = ()
    to: str = ""
    begin: str = ""
    out: Path = field(default_factory=ResultKind.REPLAYS.place)
    user_code: UserCode = UserCode()


def options_of(run: RunDir, folder: Path, options: ReplayOptions) -> RunOptions:
    """The options that repeat a run.

    Raises:
        RunDirError: its package was not found, or is another one, or its inputs are not known.
        UsageError: it was not made on this account, and is not trusted.
    """
    run.require_repeatable()
    package = run.required_package
    trust.require(archive.inspect(package), trusted=options.user_code.trusted)
    if not (options.user_code.trusted or run.is_made_here):
        loaded = trust.would_load(run.manifest, run.info.imports, run.info.libraries)
        raise UsageError(
            f"{run.path} was not made on this account; its package would run{loaded}", hint=trust.TRUST_HINT
        )
    return replace(
        recording_everything(package, folder / "runs"),
        inputs=run.inputs,
        calls=run.info.calls,
        user_code=replace(options.user_code, trusted=True).after(run.info.imports, run.info.libraries),
        environment=torch_settings.environment(run.info.torch_settings),
    )


class ReplaySession:
    """Runs one package again and again, each time with other instructions.

    Attributes:
        options: of its runs.
        folder: for their instructions and outputs.
        runs: the number of them by now.
    """

    def __init__(self, options: RunOptions, folder: Path, steps: Steps) -> None:
        self.options = options
        self.folder = folder
        self.steps = steps
        self.runs = 0

    def again(
        self, name: str, instructions: Sequence[Instruction], *, level: int = 3, observer: Observer | None = None
    ) -> SubstitutedRun:
        """Runs the package.

        Args:
            name: of the step, of the run and of its folder.

        Raises:
            ArtifactError, UsageError, TargetError, RunDirError: as of `run_substituted`.
        """
        with self.steps.step(f"run {name}") as note:
            found = self.silently(name, instructions, level=level, observer=observer)
            note.text = found.summary or wording.pluralize(len(found.run.launches), "launch")
        return found

    def silently(
        self, name: str, instructions: Sequence[Instruction], *, level: int = 3, observer: Observer | None = None
    ) -> SubstitutedRun:
        """Runs the package within a step of the caller's.

        Args:
            name: of the run's folder.

        Raises:
            ArtifactError, UsageError, TargetError, RunDirError: as of `run_substituted`.
        """
        options = replace(self.options, level=level, phase="both" if level == 1 else None)
        found = run_substituted(options, instructions, self.folder / name.replace(" ", "_"), observer)
        self.runs += 1
        return found

    def of_model(self, model: Path, name: str) -> ReplaySession:
        """The session of another model with the same inputs; the model is built unless it is an instrumented package.

        Args:
            name: of the package that is built, and of the folder of its runs.

        Raises:
            ArtifactError, ToolchainError, UsageError: it cannot be built, or is not trusted.
        """
        options = self.options
        building = BuildOptions(
            program=model,
            output=self.folder / f"{name}.pt2",
            user_code=options.user_code,
        )
        package = instrumented(
            model, building, self.steps, name=f"build {model.name}", has_inputs=options.inputs is not None
        )
        folder = self.folder / name
        return ReplaySession(replace(options, package=package, out=folder / "runs"), folder, self.steps)


def recorded(session: ReplaySession, run: RunDir) -> RunDir:
    """The run if it saved tensors; otherwise a repetition that does.

    Raises:
        UsageError, TargetError, RunDirError: it cannot be repeated.
    """
    return run if run.has_tensors else session.again("level 1", (), level=1).run
