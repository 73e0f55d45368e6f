"""Measures a model: builds it if necessary, calls it many times, and takes the calls apart.

aoti_debug_profiles/20261120-231501-4711/
  new.pt2 new/runs/ peaks.json   the package, its run, and what this machine can do
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from aoti_debug import wording
from aoti_debug.compare.compare_run import has_reference, reference_of
from aoti_debug.errors import RunDirError, UsageError
from aoti_debug.machine import python_process
from aoti_debug.machine.steps import StepListener, Steps
from aoti_debug.profile.measured_call import measured_calls
from aoti_debug.profile.model_profile import ModelProfile, site_profiles
from aoti_debug.profile.options import WARM_UP, ProfileOptions
from aoti_debug.profile.peaks import machine_peaks
from aoti_debug.profile.roofline import Peaks
from aoti_debug.profile.site_work import site_works
from aoti_debug.pt2 import archive
from aoti_debug.replay.session import ReplaySession, replay_folder
from aoti_debug.run import target
from aoti_debug.run.options import RunOptions, recording_everything
from aoti_debug.run.preloaded import PRELOADED
from aoti_debug.run.runner import run_with
from aoti_debug.run.supervise import Observer
from aoti_debug.rundir.run_directory import RunDir
from aoti_debug.rundir.run_json import ExitKind

_SILENT = {"AOTI_DEBUG_PRINT": "none"}


def profile(options: ProfileOptions, listener: StepListener | None = None) -> ModelProfile:
    """Measures the launches of a model.

    Raises:
        UsageError: an option is wrong, the model is not trusted, or does not end well.
        ArtifactError: the model or its inputs are not what they should be.
        ToolchainError, TargetError: the model could not be built or started.
        RunDirError: its calls were not recorded.
    """
    steps = Steps(listener)
    with replay_folder(options.out) as folder, python_process.forking_from(PRELOADED, options.imports) as server:
        server.preload()
        chosen = run_options(options.model, options, folder, "new", steps)
        run = recorded(chosen, steps, "run")
        with steps.step("roofline") as note:
            peaks = machine_peaks(run.manifest.device, folder)
            note.text = peaks_text(peaks)
        return profile_of(options.model, run, peaks)


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
        environment=_SILENT,
    )
    if target.is_stripped(archive.inspect(model)):
        return given
    return ReplaySession(given, folder, steps).of_model(model, name).options


def recorded(options: RunOptions, steps: Steps, name: str) -> RunDir:
    """A run whose calls all returned.

    Args:
        name: of the step.

    Raises:
        UsageError: the model does not end well.
    """
    with steps.step(name) as note:
        run = run_with(options, Observer()).run
        note.text = f"{wording.count(len(run.launches), 'launch')} in {wording.count(len(run.timeline.calls), 'call')}"
    if run.state is not ExitKind.CLEAN:
        raise UsageError(
            f"the model does not end well: {run.info.exit.detail or run.state.value}", hint="aoti-debug triage says why"
        )
    return run


def profile_of(model: Path, run: RunDir, peaks: Peaks) -> ModelProfile:
    """The profile of a run at level 3.

    Raises:
        RunDirError: the run has no measured call, or none that launched anything.
    """
    calls = measured_calls(run, WARM_UP)
    if not calls or not any(call.counts for call in calls):
        raise RunDirError(
            f"run {run.path.name} recorded no launch of a measured call", hint="aoti-debug show says what it recorded"
        )
    reference = reference_of(run)[0] if has_reference(run) else None
    first = [launch for launch in run.launches if launch.key.call == calls[0].call]
    works = site_works(first, run.manifest, reference)
    return ModelProfile(model, run, WARM_UP, calls, site_profiles(run, calls, works, peaks), peaks)


def peaks_text(peaks: Peaks) -> str:
    """ "20 GB/s, 150 GFLOP/s in float32"."""
    rates = [f"{wording.number(round(rate / 1e9))} GFLOP/s in {dtype}" for dtype, rate in peaks.flops.items()]
    return ", ".join([f"{peaks.bandwidth / 1e9:.3g} GB/s", *rates])
