"""Runs an unmodified script, whose packages are recorded in one run directory."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from aoti_debug.app.execute import bare_libraries, kept_inputs, recorded_packages, script_environment
from aoti_debug.app.execute.failed_call import (
    CalledPackage,
    FailedCall,
    called_packages,
    failed_call,
    keep_refused_call,
    with_caught,
)
from aoti_debug.app.execute.replacements import COMPILED, error_file, kept_error
from aoti_debug.base.abi import Level, Variable
from aoti_debug.base.errors import EXIT_FINDING, TargetError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.files import stamped_directories
from aoti_debug.base.machine.files.results_home import ResultKind
from aoti_debug.base.machine.steps import Stopwatch
from aoti_debug.base.native import crash_stacks
from aoti_debug.base.version import __version__
from aoti_debug.package import recording_settings
from aoti_debug.runs.diagnosis.diagnosed_run import DiagnosedRun
from aoti_debug.runs.diagnosis.verdict import Verdict
from aoti_debug.runs.run import configuration, runner
from aoti_debug.runs.run import options as run_options
from aoti_debug.runs.run.options import RunOptions
from aoti_debug.runs.run.runner import RunResult
from aoti_debug.runs.run.script_process import ScriptProcess, UserScript
from aoti_debug.runs.run.supervise import Observer, Report
from aoti_debug.runs.run.watchdog import Limits
from aoti_debug.runs.rundir import breadcrumbs, ranks_directory, run_directory, run_json
from aoti_debug.runs.rundir.launch import LaunchStatus
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.runs.rundir.run_json import EMBEDDED, Exit, ExitKind, RunInfo, RunStage

_SHARED = ("stderr.log", crash_stacks.PYTHON, run_directory.PACKAGES, COMPILED)  # by the runs of a process
_FROM_OUTSIDE = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # as Ctrl-C, and who ends a server, send them
_KILLED = 128  # and the number of the signal: what a shell says


@dataclass(frozen=True)
class ExecutedScript:
    """A script that has ended.

    Attributes:
        exit_code: its own; of one that a fault or a time limit ended, that of a finding.
        result: the run of the package that failed, or of the first one that was called; None if none was, or only by
            ranks.
        others: the runs of its other packages.
        failed: the call to look into; None where no package failed, or none was called.
        ranks: the directory of the run of ranks that the script started; None without one.
        killed: why it was killed: "no progress for 30 s"; "" if it was not.
        ended_by: the signal that ended it while no model was called: "SIGINT"; "" if none did.
    """

    exit_code: int
    result: RunResult | None = None
    others: tuple[RunDir, ...] = ()
    failed: FailedCall | None = None
    ranks: Path | None = None
    killed: str = ""
    ended_by: str = ""

    @property
    def verdict(self) -> Verdict | None:
        """The verdict of the run of the call to look into; None without a fault."""
        if self.result is not None:
            return self.result.verdict
        return None if self.failed is None else DiagnosedRun(self.failed.run).verdict


def execute(
    script: UserScript, options: RunOptions, observer: Observer, *, chooses_call: bool = False
) -> ExecutedScript:
    """Runs a script to its end, and diagnoses how it ended.

    Args:
        options: of what is recorded.
        chooses_call: name a call to look into, also where no package has a fault; the inputs of all calls are kept for
            that, and looked at what they return.

    Raises:
        UsageError: an option is wrong, or the directory for runs cannot be written.
        TargetError: it cannot be started.
    """
    stopwatch = Stopwatch("prepare")
    run_options.check(options)
    base = options.out or ResultKind.RUNS.place()
    runner.reclaim()
    is_new_base = not base.exists()
    path = stamped_directories.make(base)
    info = _info(script, options)
    run_json.write(info, path)
    began = time.monotonic()
    stopwatch.next("script")
    try:
        weights = path / run_directory.PACKAGES / run_directory.WEIGHTS
        recording = {**os.environ, **configuration.recording_variables(path, options, _level(options))}
        recording[Variable.WEIGHTS.value] = str(weights)
        environment = script_environment.with_startup(
            recording, keeps_all=chooses_call, torch_compile=script.torch_compile
        )
        process = ScriptProcess(script, environment, path)
    except OSError as error:
        stamped_directories.remove(path, base if is_new_base else None)
        raise TargetError(f"Python cannot be started: {error.strerror}") from error
    info = replace(info, pid=process.pid)
    run_json.write(info, path)
    limits = Limits(options.timeout, options.stall, options.stall if chooses_call else None)
    report = process.watch(_LatestLinker(observer, path), limits, stopwatch)
    report.error = kept_error(error_file(path, info.pid))
    stopwatch.next("read")
    shutil.rmtree(weights, ignore_errors=True)
    if chooses_call:
        keep_refused_call(path, info)
    if not (path / run_directory.MANIFEST).exists():
        if ranks := _launches_of_ranks(path):
            return _executed_ranks(path, ranks, report, chooses_call=chooses_call)
        stamped_directories.remove(path, base if is_new_base else None)
        return ExecutedScript(_exit_code(report, has_finding=False), killed=report.kill_reason)
    called = with_caught(
        _called_packages(path, info, report), info.pid, report.returncode, is_ended_by_error=report.error is not None
    )
    failed = failed_call(called) if chooses_call or any(one.ended.verdict is not None for one in called) else None
    _delete_kept(path)
    if failed is not None:
        failed = _moved_first(path, failed)
    ended = DiagnosedRun(run_directory.open_run(path))
    others = tuple(map(run_directory.open_run, _inner_runs(path)))
    stamped_directories.link_latest(path)
    result = runner.completed(ended, report, began)
    code = _exit_code(report, has_finding=result.verdict is not None)
    ended_by = _ended_by(report) if result.verdict is None else ""
    return ExecutedScript(code, result, others, failed, killed=report.kill_reason, ended_by=ended_by)


def is_recorded(options: RunOptions) -> bool:
    """True if anything is to be recorded: the level is not 0."""
    return configuration.level_given(options) != 0


class _LatestLinker(Observer):
    """Links `latest` to the run when the first package is called, and forwards every event."""

    def __init__(self, observer: Observer, path: Path) -> None:
        self._observer = observer
        self._path = path
        self._is_linked = False

    def output(self, stream: str, data: bytes) -> None:
        self._observer.output(stream, data)

    def tick(self) -> None:
        if not self._is_linked and (self._path / run_directory.MANIFEST).exists():
            stamped_directories.link_latest(self._path)
            self._is_linked = True
        self._observer.tick()


def _level(options: RunOptions) -> int:
    given = configuration.level_given(options)
    return Level.NAMES.value if given is None else given


def _info(script: UserScript, options: RunOptions) -> RunInfo:
    poison = run_json.poison_in_force(options.poison, guards=options.guards)
    return RunInfo(
        tool_version=__version__,
        torch_version=configuration.installed_torch(),
        pid=os.getpid(),
        started=datetime.now().astimezone().isoformat(timespec="seconds"),
        level=_level(options),
        filters=options.filters or (),
        module_filters=options.modules or (),
        line_filters=options.lines or (),
        phase=options.phase or "",
        device="cpu",
        command=("aoti-debug", "exec", *_words(script, options)),
        host=EMBEDDED,
        poison=poison,
        guards=poison is not None,
    )


def _words(script: UserScript, options: RunOptions) -> tuple[str, ...]:
    return (
        *(
            () if options.level is None else ("--level", str(recording_settings.written_level(options.level)))
        ),  # comes first
        *(("--torch-compile",) if script.torch_compile else ()),
        *run_options.words_of(replace(options, level=None)),
        *script.words,
    )


def _exit_code(report: Report, *, has_finding: bool) -> int:
    if report.kill_reason:
        return EXIT_FINDING
    if report.returncode >= 0:
        return report.returncode
    is_fault = runner.exit_of(report).kind is ExitKind.FAULT
    return EXIT_FINDING if has_finding and is_fault else _KILLED - report.returncode


def _ended_by(report: Report) -> str:
    """The signal by which somebody else has ended the script; "" if none did."""
    ended_by = -report.returncode
    return signal.Signals(ended_by).name if ended_by in _FROM_OUTSIDE and not report.kill_reason else ""


def _exit(report: Report) -> Exit:
    """The end of the script. One that ends itself is no fault of a model, unless a call or the device has failed."""
    if report.returncode > 0 and report.error is None:
        return Exit(ExitKind.CLEAN, f"the script ended with exit code {report.returncode}")
    return replace(runner.exit_of(report), unix_time=report.unix_time)


def _called_packages(path: Path, info: RunInfo, report: Report) -> tuple[CalledPackage, ...]:
    """Writes down how the runs of the processes ended; the first of them is that in the directory."""
    ended = [_finished(path, info, report)]
    for folder in _inner_runs(path):
        inner = _with_settings(run_json.read(folder), path)
        ended.append(
            _finished(folder, inner, report) if inner.pid == info.pid else _finished_child(folder, inner, path, report)
        )
    return _with_packages(path, ended)


def _with_packages(path: Path, ended: Sequence[DiagnosedRun]) -> tuple[CalledPackage, ...]:
    """The packages of runs, to which these have links then."""
    called = called_packages(path, ended)
    for one in called:
        link = one.run.path / run_directory.PACKAGE
        if one.package is not None and not link.exists():
            link.symlink_to(one.package)
    for file in path.glob(error_file(path, "*").name):  # of processes that called no package
        file.unlink()
    return called


def _delete_kept(path: Path) -> None:
    """Deletes what only the processes of the script needed."""
    kept_inputs.delete(path)
    for folder in (bare_libraries.FOLDER, recorded_packages.PROGRAMS):
        shutil.rmtree(path / run_directory.PACKAGES / folder, ignore_errors=True)


def _launches_of_ranks(path: Path) -> list[Path]:
    """The runs of ranks in the run directory, the last one at the end: torchrun may start the ranks again."""
    return sorted(folder for folder in path.iterdir() if not folder.is_symlink() and ranks_directory.is_one(folder))


def _executed_ranks(path: Path, launches: Sequence[Path], report: Report, *, chooses_call: bool) -> ExecutedScript:
    """The end of a script whose ranks have called packages: the last run of ranks takes the place of its directory."""
    from aoti_debug.runs.ranks import ranks_analysis, ranks_run  # most scripts have no ranks

    runs = [
        folder
        for launch in launches
        for rank in ranks_directory.read(launch).ranks.values()
        for folder in (rank, *_inner_runs(rank))
        if stamped_directories.has(folder, run_json.NAME)
    ]
    called = _with_packages(path, [_finished_child(folder, run_json.read(folder), path, report) for folder in runs])
    analysis = ranks_analysis.analyse(ranks_run.open_ranks(launches[-1]))
    first = ranks_analysis.shown_rank(analysis.run, analysis.failure).path
    chosen = [one for one in called if first in (one.run.path, one.run.path.parent)]
    has_failed = analysis.failure is not None
    failed = failed_call(chosen if has_failed else called) if chooses_call or has_failed else None
    _delete_kept(path)
    (path / crash_stacks.PYTHON).unlink(missing_ok=True)  # of the process that started the ranks
    _replace_by(path, launches[-1])
    if failed is not None:
        failed = failed.moved(launches[-1], path)
    stamped_directories.link_latest(path)
    code = _exit_code(report, has_finding=has_failed)
    return ExecutedScript(code, failed=failed, ranks=path, killed=report.kill_reason)


def _replace_by(path: Path, launch: Path) -> None:
    """Lets a run of ranks take the place of the directory that it lies in; what all have in common lies in it then."""
    moved = path.with_name(f".{path.name}")
    path.rename(moved)
    (moved / launch.name).rename(path)
    for name in (*_SHARED, *(other.name for other in _launches_of_ranks(moved))):
        if (moved / name).exists():
            (moved / name).rename(path / name)
    shutil.rmtree(moved)


def _finished_child(folder: Path, info: RunInfo, path: Path, script: Report) -> DiagnosedRun:
    """Writes down how a process ended that the script had started: only its records say so, and its own error.

    Args:
        path: the run directory of the script.
        script: how that ended; if it was killed, a process that was in a call, and had not crashed, was killed with it.
    """
    report = Report(Stopwatch("read"), stage=RunStage.CALL, error=kept_error(error_file(path, info.pid)))
    info = _with_settings(info, path)
    if report.error is not None:
        return runner.finish(folder, replace(info, exit=runner.exit_of(report)))
    breadcrumbs.preserve(folder)
    crash_stacks.preserve(folder)
    is_open = any(not call.ended for call in run_directory.open_run(folder).timeline.calls)
    if script.kill_reason and is_open and not _has_crashed(folder):
        return runner.finish(folder, replace(info, exit=runner.exit_of(script)))
    run_json.write(info, folder)
    ended = DiagnosedRun(run_directory.open_run(folder))
    if not _ended_between_launches(ended):
        return ended
    assert ended.verdict is not None
    return runner.finish(folder, replace(info, exit=Exit(ExitKind.CLEAN, f"between launches: {ended.verdict.what}")))


def _ended_between_launches(ended: DiagnosedRun) -> bool:
    """True for a process that was ended between launches, or ended itself, as those of a pool do: no model failed."""
    if ended.run.state is not ExitKind.ABORTED or ended.verdict is None or ended.verdict.suspects:
        return False
    return all(call.ended for call in ended.run.timeline.calls) and not _has_crashed(ended.run.path)


def _has_crashed(folder: Path) -> bool:
    """True if the stacks of a process that has ended show a crash."""
    stacks = crash_stacks.read(folder)
    if stacks is None or stacks.died is None:
        return False
    from aoti_debug.runs.diagnosis.diagnose import DEATHS  # the verdict on a crash imports it

    return stacks.died.signal in DEATHS


def _with_settings(info: RunInfo, path: Path) -> RunInfo:
    """A run with the settings of torch that its process had, if they are known, and the command that starts it again.

    That is the command of the script: a process that it has started records nothing when it is started alone.

    Args:
        path: the run directory of the script.
    """
    command = run_json.read(path).command if (path / run_json.NAME).exists() else info.command
    return replace(info, torch_settings=kept_inputs.kept_settings(path, info.pid), command=command)


def _moved_first(path: Path, failed: FailedCall) -> FailedCall:
    """Lets the run of the package that failed take the place of the first one."""
    place = failed.run.path
    if place != path:
        _swap(path, place)
    moved = failed.moved(place, path)
    others = (other.moved(path, place) if other.run.path == path != place else other for other in moved.others)
    return replace(moved, others=tuple(others))


def _inner_runs(path: Path) -> list[Path]:
    """The runs of other packages, and of other processes, in the order in which those of a process began."""
    found = [folder for folder in path.glob("process-*") if stamped_directories.has(folder, run_json.NAME)]
    return sorted(found, key=lambda folder: [int(number) for number in folder.name.split("-")[1:]])


def _finished(path: Path, info: RunInfo, report: Report) -> DiagnosedRun:
    opened = run_directory.open_run(path)
    process = opened.info.pid if opened.journal is None else opened.journal.header.pid
    info = replace(info, device=opened.manifest.device)
    if process != info.pid:  # one that the script had started was the first to call a package
        return _finished_child(path, replace(info, pid=process), path, report)
    ended = _exit(report)
    is_open = any(launch.status is LaunchStatus.OPEN for launch in opened.launches)
    is_idle = opened.manifest.device == "cpu" and all(call.ended for call in opened.timeline.calls)
    if report.kill_reason and is_idle and not is_open:  # another package, or process, was in a call
        ended = Exit(ExitKind.CLEAN, f"between launches: the script was killed: {report.kill_reason}")
    elif (signal_name := _ended_by(report)) and is_idle and not is_open:
        ended = Exit(ExitKind.CLEAN, f"between launches: the script was ended by {signal_name}")
    if report.returncode > 0 and is_open:
        ended = replace(runner.exit_of(report), unix_time=report.unix_time)
    return runner.finish(path, _with_settings(replace(info, exit=ended), path))


def _swap(path: Path, inner: Path) -> None:
    """Lets the run in an inner directory take the place of the run that it lies in."""
    moved = path.with_name(f".{path.name}")
    inner.rename(moved)
    for name in (*_SHARED, *(folder.name for folder in path.glob("process-*"))):
        if (path / name).exists():
            (path / name).rename(moved / name)
    path.rename(moved / inner.name)
    moved.rename(path)
