"""The runs of one replay: their directory, the recorded run, its package and its options.

aoti-debug/replays/20261120-231501-4711/
  runs/ baseline/ substituted/ program_0/ b.pt2 b/
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from pathlib import Path

from aoti_debug.base import wording
from aoti_debug.base.errors import UsageError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine import torch_settings
from aoti_debug.base.machine.files.results_home import ResultKind
from aoti_debug.base.machine.steps import Steps
from aoti_debug.base.machine.user_code import UserCode
from aoti_debug.compare.what_if.substituted_run import Instruction, SubstitutedRun, run_substituted
from aoti_debug.instrument.builder.build import BuildOptions, instrumented
from aoti_debug.package.pt2 import archive, trust
from aoti_debug.runs.run.options import RunOptions, recording_everything
from aoti_debug.runs.run.supervise import Observer
from aoti_debug.runs.rundir.run_directory import RunDir


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
