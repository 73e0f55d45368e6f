"""Runs of a model at level 3, which records when each launch begins and ends, and prints nothing.

On a GPU, what its profiler records says how long the kernels of a launch run.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from aoti_debug.base.errors import UsageError
from aoti_debug.base.machine.progress.steps import Steps
from aoti_debug.base.wording import first_line
from aoti_debug.compare.what_if.replay_session import ReplaySession
from aoti_debug.package.pt2 import archive
from aoti_debug.runs.run import configuration, runner
from aoti_debug.runs.run.device_profiler import MEASURING_ERRORS, CaptureError, DeviceTimes
from aoti_debug.runs.run.options import RunOptions, recording_everything
from aoti_debug.runs.run.supervise import Observer
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.runs.rundir.run_json import ExitKind
from aoti_debug.views.profile.options import WARM_UP, ProfileOptions

_ENVIRONMENT = {"AOTI_DEBUG_PRINT": "none"}
_CRUMB_EVERY = 1 << 20  # launches: a breadcrumb is work for the GPU


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
        calls=options.calls,
        imports=options.imports,
        libraries=options.libraries,
        trusted=options.trusted,
        crumb_every=_CRUMB_EVERY,
        device_times=DeviceTimes(WARM_UP, options.cuda_graph),
        environment=_ENVIRONMENT,
    )
    if configuration.is_stripped(archive.inspect(model)):
        return given
    return ReplaySession(given, folder, steps).of_model(model, name).options


def run_to_the_end(options: RunOptions) -> RunDir:
    """A run whose calls all returned.

    Raises:
        MeasuringError: it cannot be measured on the GPU.
        UsageError: the model does not end well, or is not trusted.
        ArtifactError, TargetError: it could not be started.
    """
    run = runner.run(options, Observer()).run
    measuring_error = MEASURING_ERRORS.get(run.info.exit.exception or "")
    if measuring_error is CaptureError:
        raise CaptureError(_capture_failure(run))
    if measuring_error is not None:
        raise measuring_error(_told(run))
    if run.state is not ExitKind.CLEAN:
        raise UsageError(
            f"{options.package.name} does not end well: {run.info.exit.detail or run.state.value}",
            hint="aoti-debug triage says why",
        )
    return run


def _name(run: RunDir) -> str:
    return "the model" if run.package is None else run.package.name


def _told(run: RunDir) -> str:
    """The text of the exception that has ended the run."""
    return f"{_name(run)}: {run.info.exit.detail.partition(': ')[2]}"


def _capture_failure(run: RunDir) -> str:
    """Why a CUDA graph cannot capture the model, with the launch that it fails in."""
    fault = next((fault for fault in run.timeline.faults if fault.launch is not None), None)
    if fault is None or fault.launch is None:
        return _told(run)
    launch = run.launch(str(fault.launch))
    reason = first_line(fault.text) or "it waits for the GPU, or does something else that a capture does not permit"
    return f"{_name(run)}: a CUDA graph cannot capture {launch.kernel} (launch {launch.id}): {reason}"
