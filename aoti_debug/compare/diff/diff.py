"""Compares two runs, or two models that are run for it, in a directory of its own.

aoti-debug/diffs/20261120-231501-4711/
  a.pt2  b.pt2  a/ b/   packages and runs that were made for it
"""

from __future__ import annotations

from dataclasses import field, replace
from pathlib import Path

from aoti_debug.base import wording
from aoti_debug.base.errors import UsageError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.files import stamped_directories
from aoti_debug.base.machine.files.results_home import ResultKind
from aoti_debug.base.machine.processes import python_process
from aoti_debug.base.machine.steps import StepListener, Steps
from aoti_debug.base.machine.user_code import UserCode
from aoti_debug.compare.diff.diff_runs import diff_runs
from aoti_debug.compare.diff.difference import Diff
from aoti_debug.compare.diff.explain_differences import explain_differences
from aoti_debug.instrument.builder.build import BuildOptions, instrumented
from aoti_debug.package import recording_settings
from aoti_debug.package.pt2 import archive
from aoti_debug.package.pt2.archive import ArtifactKind
from aoti_debug.runs.run import runner
from aoti_debug.runs.run.options import recording_everything
from aoti_debug.runs.run.protocol import PRELOADED
from aoti_debug.runs.run.supervise import Observer
from aoti_debug.runs.rundir import run_directory
from aoti_debug.runs.rundir.run_directory import RunDir


@dataclass(frozen=True, kw_only=True)
class DiffOptions:
    """Two runs, or models to run, and how.

    Attributes:
        a, b: each a run directory or the name of a run, an exported program, a compiled or an instrumented package.
        inputs: a .pt or .safetensors file for the models; None for those of the run beside a model, or embedded
            ones; a compiled package takes those of an exported program beside it.
        calls: how many times each model is called; None: as often as in the run beside it, or once.
        level: of the runs that are made: 1 saves tensors, 2 keeps their hashes and statistics, hash their hashes only.
        explains: compute with the programs in float64 whether rounding explains what differs.
        out: the directory in which the directory of the runs is made.
        user_code: as for `build` and `run`.
    """

    a: Path
    b: Path
    inputs: Path | None = None
    calls: int | None = None
    level: int = 1
    explains: bool = True
    out: Path = field(default_factory=ResultKind.DIFFS.place)
    user_code: UserCode = UserCode()


def diff(options: DiffOptions, listener: StepListener | None = None) -> Diff:
    """Compares two runs; models are built and run for it.

    Raises:
        UsageError: an option is wrong, a model is not trusted, or the inputs have other sizes.
        ArtifactError: a model or its inputs are not what they should be.
        ToolchainError, TargetError: a model could not be built or started.
        RunDirError: a run cannot be read, or recorded no values.
    """
    recording_settings.level_number(options.level, recording_settings.WITH_HASHES)
    if options.calls is not None and options.calls < 1:
        raise UsageError(f"--calls {options.calls} is less than 1", hint="--calls takes a number from 1")
    steps = Steps(listener)
    models = {name: path for name, path in (("a", options.a), ("b", options.b)) if path.suffix == ".pt2"}
    runs = {
        name: run_directory.open_run(path) for name, path in (("a", options.a), ("b", options.b)) if name not in models
    }
    if not models and (options.inputs is not None or options.calls is not None):
        raise UsageError(
            "--inputs and --calls are for models, and both sides are runs", hint="name a model.pt2 to run it"
        )
    directory: Path | None = None
    with python_process.forking_from(PRELOADED, options.user_code.imports) as server:
        if models:
            with stamped_directories.new_folder(options.out, "a", "b") as folder:
                server.preload()
                directory = folder
                beside = next(iter(runs.values()), None)
                for name, model in models.items():
                    runs[name] = _Recorder(options, folder, steps, beside).record(name, model)
        with steps.step("compare") as note:
            found = diff_runs(runs["a"], runs["b"])
            note.text = f"{wording.pluralize(found.paired, 'pair')} of launches"
        if options.explains:
            found = explain_differences(found, options.user_code, steps)
    return replace(found, directory=directory)


class _Recorder:
    """Builds and runs the models of one comparison."""

    def __init__(self, options: DiffOptions, folder: Path, steps: Steps, beside: RunDir | None) -> None:
        self._options = options
        self._folder = folder
        self._steps = steps
        self._inputs = options.inputs or (None if beside is None else beside.inputs)
        self._calls = options.calls or (1 if beside is None else beside.info.calls)

    def record(self, side: str, model: Path) -> RunDir:
        """A run of a model, with values."""
        package = self._built(side, model)
        with self._steps.step(f"run {side}") as note:
            result = runner.run(
                replace(
                    recording_everything(package, self._folder / side),
                    inputs=self._inputs,
                    level=self._options.level,
                    phase="both",
                    calls=self._calls,
                    user_code=self._options.user_code,
                    environment={"AOTI_DEBUG_PRINT": "none"},
                    built_from=model.name,
                ),
                Observer(),
            )
            note.text = wording.pluralize(len(result.run.launches), "launch")
        return result.run

    def _built(self, side: str, model: Path) -> Path:
        options = self._options
        has_inputs = self._inputs is not None
        building = BuildOptions(
            model,
            exported=None if has_inputs else self._program_of(model),
            output=self._folder / f"{side}.pt2",
            user_code=options.user_code,
        )
        return instrumented(model, building, self._steps, name=f"build {side}", has_inputs=has_inputs)

    def _program_of(self, model: Path) -> Path | None:
        """The other side, if it is an exported program and this model a compiled package: that has no inputs."""
        other = self._options.b if model == self._options.a else self._options.a
        if other.suffix != ".pt2" or archive.inspect(model).kind is not ArtifactKind.PACKAGE:
            return None
        return other if archive.inspect(other).kind is ArtifactKind.EXPORTED else None
