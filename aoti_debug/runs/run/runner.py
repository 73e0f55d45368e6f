"""Runs an instrumented package in a process of its own and records it in a run directory."""

from __future__ import annotations

import fcntl
import re
import time
from dataclasses import replace
from pathlib import Path

from aoti_debug.base import wording
from aoti_debug.base.abi import Level, NoteCode
from aoti_debug.base.errors import AotiDebugError, ArtifactError, RunDirError, TargetError, UsageError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine import exhaustion
from aoti_debug.base.machine.current_rank import Rank
from aoti_debug.base.machine.files import stamped_directories
from aoti_debug.base.machine.files.results_home import ResultKind
from aoti_debug.base.machine.processes import python_process
from aoti_debug.base.machine.steps import Stopwatch
from aoti_debug.base.machine.user_directories import scratch_directory
from aoti_debug.base.native import crash_stacks
from aoti_debug.package import recording_settings
from aoti_debug.package.manifest import Manifest
from aoti_debug.package.pt2 import trust
from aoti_debug.package.pt2.extract import UNCHANGED_PACKAGE_HINT
from aoti_debug.runs.diagnosis import rescue
from aoti_debug.runs.diagnosis.diagnosed_run import DiagnosedRun, rescued
from aoti_debug.runs.diagnosis.verdict import Verdict
from aoti_debug.runs.run import configuration, required_room
from aoti_debug.runs.run import options as run_options
from aoti_debug.runs.run.configuration import RunTarget, run_target
from aoti_debug.runs.run.inspector import InspectorError
from aoti_debug.runs.run.options import RunOptions
from aoti_debug.runs.run.supervise import ModelProcess, Observer, Report
from aoti_debug.runs.run.watchdog import Limits
from aoti_debug.runs.rundir import breadcrumbs, ranks_directory, run_directory, run_json
from aoti_debug.runs.rundir import summaries as run_summaries
from aoti_debug.runs.rundir.formats import shared_files
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.runs.rundir.run_json import Exit, ExitKind, RunInfo, RunStage
from aoti_debug.runs.rundir.timeline import Timeline

_CREATOR = re.compile(r"^\d{8}-\d{6}-(\d+)(?:-\d+)?\Z")
_UNRECORDED = "aoti-debug: nothing is recorded: "  # a line of the runtime
_EXTERNAL_SIGNALS = frozenset({"SIGKILL", "SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGXCPU"})


@dataclass(frozen=True)
class RunResult:
    """A finished run with its diagnosis."""

    diagnosed: DiagnosedRun
    seconds: float  # from the start of the process to its end
    lost: str  # what of its records is incomplete, and why; "" if all is there

    @property
    def run(self) -> RunDir:
        """The run without its diagnosis."""
        return self.diagnosed.run

    @property
    def verdict(self) -> Verdict | None:
        """The verdict; None for a run without a fault."""
        return self.diagnosed.verdict


def run(options: RunOptions, observer: Observer | None = None) -> RunResult:
    """Runs a package and notifies the observer meanwhile. A fault of the model is a result, not an error.

    Raises:
        UsageError: an option is wrong, the directory for runs cannot be written, or the package is not trusted.
        ArtifactError: the package or the inputs are not what they should be.
        TargetError: the model never started.
    """
    stopwatch = Stopwatch("prepare")
    run_options.check(options)
    target = run_target(options.package, options.model, trusted=options.user_code.trusted)
    manifest = target.manifest
    _check_target(target, options)
    configuration.check_device(manifest, options)
    configuration.check_level(manifest, options)
    base = options.out or ResultKind.RUNS.place()
    reclaim()
    is_new_base = not base.exists()
    path = _new_directory(base, options.rank)
    try:
        with scratch_directory() as temporary:  # until the call stacks in the libraries there have been read
            return _run_in(path, target, options, observer or Observer(), stopwatch, temporary)
    except (ArtifactError, TargetError, UsageError):
        if options.rank is None:  # a rank that never started is of interest to the others
            stamped_directories.remove(path, base if is_new_base else None)
            stamped_directories.relink_latest(base, run_json.NAME)
        raise


def _check_target(target: RunTarget, options: RunOptions) -> None:
    recording_settings.require_names(target.manifest, options.site_filter, str(options.package))
    if target.interposed is None:
        return
    given = {
        "--guards": options.guards,
        "--random-inputs": options.random_inputs is not None,
        "--watch": bool(options.watch),
        "--summaries": options.summaries is not None,
        "--inspect": bool(options.inspector),
        "replacing results": options.substitute is not None,
        "replacing weights": options.weights is not None,
        "--threads": options.threads is not None,
    }
    for option, is_set in given.items():
        if is_set:
            raise UsageError(
                f"{option} needs the source of the package's wrapper, and {options.package} holds none",
                hint=UNCHANGED_PACKAGE_HINT,
            )


def _new_directory(base: Path, rank: Rank | None) -> Path:
    """Creates a run directory; that of a rank, in the directory of all ranks.

    Raises:
        UsageError: it cannot be created.
    """
    try:
        return stamped_directories.create(base) if rank is None else ranks_directory.claim(base, rank)
    except OSError as error:
        raise UsageError(
            f"cannot make a directory in {base}: {error.strerror}", hint="--out DIR names another one"
        ) from error


def _write_run_files(path: Path, info: RunInfo, target: RunTarget, options: RunOptions) -> None:
    """Writes the files that a run directory has before its process starts.

    Raises:
        UsageError: they cannot be written.
    """
    try:
        (path / run_directory.MANIFEST).write_bytes(target.text)
        (path / run_directory.PACKAGE).symlink_to(options.package.resolve())
        if options.inputs is not None:
            (path / f"inputs{options.inputs.suffix}").symlink_to(options.inputs.resolve())
        run_json.write(info, path)
    except OSError as error:
        raise UsageError(
            f"cannot write to {path}: {error.strerror}",
            hint="free some disk space, or name another one with --out DIR",
        ) from error


def _run_in(
    path: Path, target: RunTarget, options: RunOptions, observer: Observer, stopwatch: Stopwatch, temporary: Path
) -> RunResult:
    manifest = target.manifest
    info = configuration.run_info(manifest, options)
    trust.remember_run(manifest, info.imports, info.libraries)
    _write_run_files(path, info, target, options)
    observer.started(path)
    began = time.monotonic()
    environment = configuration.run_environment(path, options, info.level, temporary)
    required_room.require(options.package, manifest, environment, inputs=options.inputs, weights=options.weights)
    if info.level == Level.SAVE:
        required_room.require_for_tensors(path, options.package, manifest, environment)
    try:
        stopwatch.next("import torch")
        python_process.wait_for_imports(environment)
        stopwatch.next("start")
        with ModelProcess(configuration.run_request(path, info, target, options), environment) as process:
            info = replace(info, pid=process.pid)
            run_json.write(info, path)
            linker = _LatestLinker(observer, path, options.rank)
            report = process.watch(linker, Limits(options.timeout, options.stall), stopwatch)
    except KeyboardInterrupt:
        rescued(finish(path, replace(info, exit=Exit(ExitKind.ABORTED, "interrupted"))))
        raise
    except SystemExit:  # SIGTERM: torchrun ends the other ranks with it when one has failed
        killed = Exit(ExitKind.ABORTED, "killed by SIGTERM", signal="SIGTERM", unix_time=time.time())
        rescued(finish(path, replace(info, exit=killed)))
        raise
    stopwatch.next("read")
    exit_ = replace(exit_of(report), unix_time=report.unix_time)
    info = replace(info, torch_version=report.torch_version or info.torch_version, torch_settings=report.torch_settings)
    ended = finish(path, replace(info, exit=exit_, tool_calls=report.tool_calls))
    is_starting = report.stage in (RunStage.IMPORT, RunStage.INPUTS, RunStage.LOAD)
    if is_starting and not ended.run.launches and not report.kill_reason:
        rescue.release(path)
        raise _start_error(path, report, manifest)
    if exit_.kind is ExitKind.CLEAN and ended.run.journal is None:
        _require_record(path)
    _link_latest(path, options.rank)
    return completed(ended, report, began)


def _require_record(path: Path) -> None:
    """Checks that a run without a journal has none because nothing was to be recorded.

    Raises:
        TargetError: the runtime could not make the journal, and has said why.
    """
    said = [line for line in _log_lines(path) if line.startswith(_UNRECORDED)]
    if not said:
        return
    reason = said[-1].removeprefix(_UNRECORDED)
    lacks = exhaustion.lacking(reason)
    hint = exhaustion.hint_for(lacks) if lacks else "--out DIR names another directory for runs"
    raise TargetError(f"nothing was recorded: {reason}", hint=hint)


def _log_lines(path: Path) -> list[str]:
    return (path / "stderr.log").read_text(encoding="utf-8", errors="replace").splitlines()


def completed(ended: DiagnosedRun, report: Report, began: float) -> RunResult:
    """The result of a run that has ended: what survives only in memory is saved.

    Args:
        began: when its process started, by the monotonic clock.

    Raises:
        TargetError: the system refused to write what the model returned, or another result.
    """
    ended, found = rescued(ended)
    lost = report.log_failure or (found.failure if found else "") or _keep_summaries(ended.run)
    ended, failure = _with_timings(ended, report.stopwatch)
    report.require_saved()
    return RunResult(ended, time.monotonic() - began, lost or failure)


def _keep_summaries(run: RunDir) -> str:
    """Turns the rows of the summaries into one columnar file; returns why that was not possible, "" if it was."""
    try:
        run_summaries.keep(run)
    except RunDirError as error:
        return f"{error}; the rows stay in {run_summaries.NAME}"
    return ""


def _with_timings(ended: DiagnosedRun, stopwatch: Stopwatch) -> tuple[DiagnosedRun, str]:
    """Writes down how long each phase took; the last one is the reading of the run, with its diagnosis.

    Returns:
        The run, and the reason why the durations could not be written; "" if they were.
    """
    _ = ended.verdict  # computed now, as a part of that phase
    info = replace(ended.run.info, timings=stopwatch.seconds)
    failure = ""
    try:
        run_json.write(info, ended.run.path)
    except OSError as error:
        failure = f"{run_json.NAME} has no timings: {error.strerror}"
    return ended.with_info(info), failure


def _link_latest(path: Path, rank: Rank | None) -> None:
    """Points `latest` at a run; the directory of a run of ranks has its link since it was made."""
    if rank is None:
        stamped_directories.link_latest(path)


class _LatestLinker(Observer):
    """Links `latest` to the run as soon as the model is called, and forwards every event."""

    def __init__(self, observer: Observer, path: Path, rank: Rank | None) -> None:
        self._observer = observer
        self._path = path
        self._rank = rank

    def reached(self, stage: RunStage) -> None:
        if stage is RunStage.CALL:
            _link_latest(self._path, self._rank)
        self._observer.reached(stage)

    def output(self, stream: str, data: bytes) -> None:
        self._observer.output(stream, data)

    def tick(self) -> None:
        self._observer.tick()


def finish(path: Path, info: RunInfo) -> DiagnosedRun:
    """Writes down how the run ended. A clean exit in which a launch reported an error is a fault."""
    breadcrumbs.preserve(path)
    crash_stacks.preserve(path)
    run_json.write(info, path)
    finished = run_directory.open_run(path)
    exit_ = _recorded_exit(finished.timeline, info.exit)
    if exit_ is not info.exit:
        info = replace(info, exit=exit_)
        run_json.write(info, path)
        finished = finished.with_info(info)
    return DiagnosedRun(finished)


def _recorded_exit(timeline: Timeline, exit_: Exit) -> Exit:
    """How a run ended, with what its records tell about it: a launch that failed, or that the run was stopped at."""
    if timeline.faults:
        is_fault = exit_.kind is ExitKind.CLEAN
        return replace(exit_, kind=ExitKind.FAULT, detail=timeline.faults[0].text) if is_fault else exit_
    stops = [f"watchpoint {watchpoint.text}" for watchpoint in timeline.watchpoints if watchpoint.stopped]
    stops += [note.text.removeprefix("stopped ") for note in timeline.notes if note.code == NoteCode.STOPPED]
    if stops and exit_.kind in (ExitKind.CLEAN, ExitKind.FAULT):
        return replace(exit_, kind=ExitKind.STOPPED, detail=stops[0])
    return exit_


def exit_of(report: Report) -> Exit:
    """The end of the process. An exception comes first: on a broken device, the exit status that follows says less."""
    error = report.error
    if error is not None:
        if error.type == InspectorError.__name__:
            return Exit(ExitKind.STOPPED, error.message, report.stage, exception=error.type)
        detail = f"{error.type}: {error.message}" if error.message else error.type
        return Exit(ExitKind.FAULT, detail, report.stage, exception=error.type, code=error.code)
    if report.kill_reason:
        return Exit(ExitKind.TIMEOUT, report.kill_reason, report.stage, seconds=report.seconds)
    if report.signal:
        kind = ExitKind.ABORTED if report.signal in _EXTERNAL_SIGNALS else ExitKind.FAULT
        return Exit(kind, f"killed by {report.signal}", report.stage, report.signal, seconds=report.seconds)
    if report.returncode != 0:
        detail = f"the process ended itself with exit code {report.returncode}"
        return Exit(ExitKind.FAULT, detail, report.stage, seconds=report.seconds)
    return Exit(ExitKind.CLEAN, "", report.stage, seconds=report.seconds)


def _start_error(path: Path, report: Report, manifest: Manifest) -> AotiDebugError:
    """The error of a run in which no launch began."""
    error = report.error
    library_error = None if error is None else error.to_error()
    if error is not None and library_error is not None and not error.lacks:
        return library_error
    loading = {
        RunStage.IMPORT: "while torch and --import modules were loaded",
        RunStage.INPUTS: "while the inputs were loaded",
    }
    activity = loading.get(report.stage, "while the package was loaded")
    stderr_lines = _log_lines(path)[-3:]
    ending = exit_of(report).detail
    if error is not None and error.lacks:
        ending = wording.first_line(ending)
    lines = [f"the model never started: {ending}, {activity}", *(stderr_lines if error is None else [])]
    hint = "custom operators need --import MODULE or --load-library PATH"
    lacks = exhaustion.lacking("\n".join(stderr_lines)) if error is None else error.lacks
    if lacks:
        hint = f"not enough {lacks}: {exhaustion.hint_for(lacks)}"
    elif report.torch_version is not None and report.torch_version != manifest.torch_version:
        hint = f"the package was built with torch {manifest.torch_version}, this is torch {report.torch_version}"
    elif manifest.other_torch:
        hint = manifest.other_torch
    return TargetError("\n  ".join(lines), hint=hint)


def reclaim() -> None:
    """Saves the shared memory of runs whose process has died into their run directories, and frees it.

    Memory that a living process uses, that a living tool still watches, or that belongs to another user is skipped.
    """
    for file in shared_files.all_files():
        if _is_alive(file.pid) or _is_locked(file.path):
            continue
        run = file.run_directory()
        if run is not None and shared_files.linked(run, file.name) == file.path:
            if not _is_creator_alive(run):
                _save(run, file.name)
        else:
            file.path.unlink(missing_ok=True)


def _save(run: Path, name: str) -> None:
    """Saves one file of shared memory and frees it; if the disk is full, it stays in shared memory."""
    if name == breadcrumbs.NAME:
        try:
            breadcrumbs.preserve(run)
        except OSError:
            return
    elif name == shared_files.FLIGHT_RECORDER:
        try:
            rescue.rescue(run)
        except RunDirError:  # the inputs of a run that cannot be opened are of no use
            shared_files.remove(run, name)


def _is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def _is_creator_alive(run: Path) -> bool:
    """True if the process that created the run directory is alive: it records how its child ended."""
    creators = (_CREATOR.search(folder.name) for folder in (run, run.parent))
    return any(match is not None and _is_alive(int(match[1])) for match in creators)


def _is_locked(path: Path) -> bool:
    """True if a process has it locked (one of another container may), or it cannot be opened."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    return False
