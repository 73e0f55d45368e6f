"""Measures a model: builds it if necessary, calls it many times, and takes the calls apart.

aoti-debug/profiles/20261120-231501-4711/
  new.pt2 new/runs/ old.pt2 old/runs/ peaks.json   packages, their runs, and what this machine can do
"""

from __future__ import annotations

import statistics
from dataclasses import field, replace
from pathlib import Path

from aoti_debug.base import wording
from aoti_debug.base.errors import RunDirError, TargetError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.files import stamped_directories
from aoti_debug.base.machine.files.results_home import ResultKind
from aoti_debug.base.machine.processes import child_process, python_process
from aoti_debug.base.machine.steps import StepListener, Steps
from aoti_debug.base.machine.user_code import UserCode
from aoti_debug.base.wording import first_line
from aoti_debug.compare.compare_run import has_reference, reference_of
from aoti_debug.compare.modules import LaunchTimes, SiteTime
from aoti_debug.compare.what_if.substituted_run import ReplayOptions, ReplaySession, options_of
from aoti_debug.package.pt2 import archive
from aoti_debug.runs.diagnosis.diagnosed_run import require_end
from aoti_debug.runs.run import runner
from aoti_debug.runs.run.device_profiler import MEASURING_ERRORS, CaptureError, DeviceTimes
from aoti_debug.runs.run.options import ModelCalls, RunOptions
from aoti_debug.runs.run.protocol import PRELOADED
from aoti_debug.runs.run.supervise import Observer
from aoti_debug.runs.rundir import device_activity
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.runs.show.calls_and_replays import calls_text
from aoti_debug.views.profile.changes import Changes, Round, find_changes
from aoti_debug.views.profile.device_calls import DeviceCall, MeasuredCall, MeasuringCost, device_calls, measured_calls
from aoti_debug.views.profile.model_profile import CLOCKS, ModelProfile, clock_of, site_profiles
from aoti_debug.views.profile.roofline import Peaks, PeaksRequest
from aoti_debug.views.profile.site_work import site_groups, site_works

CALLS = 50
WARM_UP = 3  # calls before any time is taken
_ENVIRONMENT = {"AOTI_DEBUG_PRINT": "none"}
_CRUMB_EVERY = 1 << 20  # launches: a breadcrumb is work for the GPU
WORKER = "aoti_debug.views.profile.roofline"
_PEAK_SECONDS = 600.0  # that the measurement may take
_PEAKS = "peaks"
ROUNDS = 10  # processes of each model
_TIMED_CALLS = 30  # of a run for times alone


@dataclass(frozen=True)
class ProfileOptions(ModelCalls):
    """A model to measure, and how.

    Attributes:
        model: an exported program, a compiled or an instrumented package.
        calls: how many calls are measured, after WARM_UP others; on a GPU, after some without its profiler, too.
        against: an older model of the same program, measured in turn with the model; None for none.
        out: the directory in which the directory of the profile is made.
        cuda_graph: measure replays of a CUDA graph that captures a call.
    """

    model: Path
    calls: int = field(default=CALLS, kw_only=True)
    against: Path | None = None
    out: Path = field(default_factory=ResultKind.PROFILES.place)
    cuda_graph: bool = False


def run_options(model: Path, options: ProfileOptions, folder: Path, name: str, steps: Steps) -> RunOptions:
    """The options of the runs of a model; it is built unless it can be run as it is.

    Args:
        name: of the package that is built, and of the folder of its runs.

    Raises:
        ArtifactError, ToolchainError, UsageError: it cannot be built, or is not trusted.
    """
    given = replace(
        options.recorded(model, folder / name / "runs", model.name),
        level=3,
        crumb_every=_CRUMB_EVERY,
        device_times=DeviceTimes(WARM_UP, options.cuda_graph),
        environment=_ENVIRONMENT,
    )
    if archive.inspect(model).is_stripped():
        return given
    return ReplaySession(given, folder, steps).of_model(model, name).options


def run_to_the_end(options: RunOptions, model: Path) -> RunDir:
    """A run whose calls all returned.

    Args:
        model: that the user has named.

    Raises:
        MeasuringError: it cannot be measured on the GPU.
        ModelFaultError: the model does not end well.
        UsageError: it is not trusted.
        ArtifactError, TargetError: it could not be started.
    """
    run = runner.run(options, Observer()).run
    measuring_error = MEASURING_ERRORS.get(run.info.exit.exception or "")
    if measuring_error is CaptureError:
        raise CaptureError(_capture_failure(run))
    if measuring_error is not None:
        raise measuring_error(_told(run))
    require_end(run, model)
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


@dataclass(frozen=True)
class RunCalls:
    """The measured calls of the model, or replays of its CUDA graph.

    Attributes:
        cost: of measuring; None without the profiler of a GPU.
        on_device: the same calls with the work of the GPU; None without its profiler.
    """

    measured: tuple[MeasuredCall, ...]
    cost: MeasuringCost | None = None
    on_device: tuple[DeviceCall, ...] | None = None


def calls_of(run: RunDir, warm_up: int) -> RunCalls:
    """Reads the measured calls of a run.

    Args:
        warm_up: how many calls are left out of a run that the profiler of a GPU has not recorded.

    Raises:
        RunDirError: what that profiler has recorded cannot be read.
    """
    activity = device_activity.read(run.path)
    if activity is None:
        return RunCalls(measured_calls(run, warm_up))
    calls = device_calls(run, activity)
    return RunCalls(tuple(call.measured for call in calls), MeasuringCost.of(activity), calls)


def machine_peaks(device: str, folder: Path, reached: float) -> Peaks:
    """The peaks of this machine; they are measured if they were not before, or are below what a launch has reached.

    Args:
        device: "cpu" or "cuda".
        folder: for the answer and the output of the process.
        reached: as in PeaksRequest.

    Raises:
        TargetError: the process failed.
    """
    request = PeaksRequest(device, reached)
    peaks, code = python_process.ask(WORKER, request, Peaks, folder, _PEAKS, seconds=_PEAK_SECONDS)
    log = folder / f"{_PEAKS}.log"
    if peaks is None:
        raise TargetError(
            f"what this machine can do was not measured: {child_process.describe_end(code, log)}",
            hint=f"the output of the process is in {log}",
        )
    return peaks


def compare_with(old_model: Path, new_model: Path, old: RunOptions, new: RunOptions, steps: Steps) -> Changes:
    """Runs both models in turn, each in ROUNDS processes, and compares their launches.

    Args:
        old_model, new_model: the files that were named.
        old, new: the options of their runs, each of which is made ROUNDS times.

    Raises:
        ModelFaultError: one does not end well.
        UsageError: the models take other inputs.
        ArtifactError, TargetError, RunDirError: one of them cannot be run, or its run cannot be read.
    """
    runs: list[tuple[RunDir, RunDir]] = []
    rounds: list[tuple[Round, Round]] = []
    with steps.step("run both in turn") as note:
        for number in range(ROUNDS):
            pair = _in_turn((old, old_model), (new, new_model), number)
            rounds.append((calls_of(pair[0], WARM_UP).measured, calls_of(pair[1], WARM_UP).measured))
            runs = runs or [pair]
            steps.advance(number + 1, ROUNDS)
        calls = rounds[0][0]
        one = "call" if calls[0].replay_of is None else "replay"
        note.text = f"{ROUNDS} times {wording.pluralize(len(calls), one)} of each"
    groups, notes = site_groups(*runs[0])
    return find_changes(old_model, groups, rounds, notes)


def _in_turn(old: tuple[RunOptions, Path], new: tuple[RunOptions, Path], number: int) -> tuple[RunDir, RunDir]:
    """Runs both; neither is the first in every round."""
    if number % 2 == 0:
        return run_to_the_end(*old), run_to_the_end(*new)
    later = run_to_the_end(*new)
    return run_to_the_end(*old), later


def profile(options: ProfileOptions, listener: StepListener | None = None) -> ModelProfile:
    """Measures the launches of a model, and compares them with those of an older one if that is asked for.

    Raises:
        ModelFaultError: a model does not end well.
        UsageError: an option is wrong, or a model is not trusted.
        ArtifactError: a model or its inputs are not what they should be.
        ToolchainError, TargetError: a model could not be built or started.
        RunDirError: its calls were not recorded.
    """
    steps = Steps(listener)
    forking = python_process.forking_from(PRELOADED, options.user_code.imports)
    with stamped_directories.new_folder(options.out) as folder, forking as server:
        server.preload()
        new = run_options(options.model, options, folder, "new", steps)
        old = None if options.against is None else run_options(options.against, options, folder, "old", steps)
        with steps.step("run") as note:
            run = run_to_the_end(new, options.model)
            launches = wording.pluralize(len(run.launches), "launch")
            note.text = f"{launches} in {calls_text(run)}"
        with steps.step("roofline"):
            calls = calls_of(run, WARM_UP)
            found = profile_of(options.model, run, calls, machine_peaks(run.manifest.device, folder, 0.0))
            if found.highest_flops > found.peaks.flops_of(""):  # it was measured while the machine was busy
                peaks = machine_peaks(run.manifest.device, folder, found.highest_flops)
                found = profile_of(options.model, run, calls, peaks)
        if options.against is None or old is None:
            return found
        return found.against(compare_with(options.against, options.model, old, new, steps))


def launch_times(run: RunDir, folder: Path, user_code: UserCode) -> LaunchTimes:
    """Repeats a run at level 3, in which nothing is saved, and takes the times of its launches.

    Args:
        folder: for the run.

    Raises:
        ModelFaultError: the model does not end well.
        UsageError, ArtifactError, TargetError, RunDirError: it cannot be run again, or its calls were not recorded.
    """
    repeated = options_of(run, folder, ReplayOptions(run=run.path, user_code=user_code))
    timed = replace(
        repeated,
        level=3,
        calls=_TIMED_CALLS,
        crumb_every=_CRUMB_EVERY,
        device_times=DeviceTimes(WARM_UP, replays=False),
        environment={**repeated.environment, **_ENVIRONMENT},
    )
    found = run_to_the_end(timed, repeated.package)
    return times_of(found, calls_of(found, WARM_UP))


def times_of(run: RunDir, calls: RunCalls) -> LaunchTimes:
    """The times of the launches of a run at level 3, as its modules share them.

    Raises:
        RunDirError: the run has no measured call, or it took no time.
    """
    measured = calls.measured
    sites = sorted({site for one in measured for site in one.launches_ns})
    seconds = {site: statistics.median(one.launches_ns.get(site, 0) for one in measured) * 1e-9 for site in sites}
    gaps = statistics.median(one.gaps_ns for one in measured) * 1e-9 if measured else 0.0
    call = sum(seconds.values()) + gaps
    if call <= 0:
        raise RunDirError(f"run {run.path.name} recorded no time of a call", hint="run it again")
    count = wording.pluralize(len(measured), "call")
    between = f"{gaps / call:.1%} of it between launches"
    return LaunchTimes(
        sites=tuple(SiteTime(site, seconds[site]) for site in sites),
        call=call,
        calls=len(measured),
        source=f"medians of {count} in a run that saves nothing, {CLOCKS[clock_of(run, calls.cost)]}, {between}",
    )


def profile_of(model: Path, run: RunDir, calls: RunCalls, peaks: Peaks) -> ModelProfile:
    """The profile of a run at level 3.

    Raises:
        RunDirError: the run has no measured call, or none that launched anything.
    """
    measured = calls.measured
    if not any(call.counts for call in measured):
        raise RunDirError(
            f"run {run.path.name} recorded no launch of a measured call", hint="aoti-debug show says what it recorded"
        )
    if statistics.median(call.wall_ns for call in measured) <= 0:
        raise RunDirError(f"the calls of run {run.path.name} took no time", hint="run the profile again")
    reference = reference_of(run)[0] if has_reference(run) else None
    first = [launch for launch in run.launches if launch.key.call == measured[0].recorded_call]
    works = site_works(first, run.manifest, reference)
    sites = site_profiles(run, measured, works, peaks)
    return ModelProfile(model, run, measured, sites, peaks, calls.cost, on_device=calls.on_device)
