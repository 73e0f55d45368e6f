"""Runs of a model at level 3, which records when each launch begins and ends, and prints nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from aoti_debug.errors import UsageError
from aoti_debug.machine.progress.steps import Steps
from aoti_debug.profile.options import WARM_UP, ProfileOptions
from aoti_debug.pt2 import archive
from aoti_debug.replay.replay_session import ReplaySession
from aoti_debug.run import run_target
from aoti_debug.run.options import RunOptions, recording_everything
from aoti_debug.run.runner import run_with
from aoti_debug.run.supervise import Observer
from aoti_debug.rundir.run_directory import RunDir
from aoti_debug.rundir.run_json import ExitKind

# A launch on a GPU returns when its kernels have completed: CUDA's driver reads the second one.
_ENVIRONMENT = {"AOTI_DEBUG_PRINT": "none", "CUDA_LAUNCH_BLOCKING": "1"}


def run_options(model: Path, options: ProfileOptions, folder: Path, name: str, steps: Steps) -> RunOptions:
    """The options of the runs of a model; it is built unless it can be run as it is.

    Args:
        name: of the package that is built, and of the folder of its runs.

    Raises:
        ArtifactError, ToolchainError, UsageError: it cannot be built, or is not trusted.
    """
    given = replace(
        recording_everything(model, folder / name / "runs"),
        inputs=options.inputs,
        level=3,
        calls=options.calls + WARM_UP,
        imports=options.imports,
        libraries=options.libraries,
        trusted=options.trusted,
        environment=_ENVIRONMENT,
    )
    if run_target.is_stripped(archive.inspect(model)):
        return given
    return ReplaySession(given, folder, steps).of_model(model, name).options


def run_to_the_end(options: RunOptions) -> RunDir:
    """A run whose calls all returned.

    Raises:
        UsageError: the model does not end well, or is not trusted.
        ArtifactError, TargetError: it could not be started.
    """
    run = run_with(options, Observer()).run
    if run.state is not ExitKind.CLEAN:
        raise UsageError(
            f"{options.package.name} does not end well: {run.info.exit.detail or run.state.value}",
            hint="aoti-debug triage says why",
        )
    return run
