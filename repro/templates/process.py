"""The process that a repro is: reads its command line and does what it asks, here or in a child that may die of it."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from . import bench, poison, reduce, repeat, sanitize, trial, verdict
from .child import Report, run_child
from .job import AS_RECORDED, FAILED, FAULT, NO_FAULT, Job, Launch
from .kernel import Kernel
from .memory import Argument, Result, Storage
from .options import Options, parse

Mode = Callable[[Job, Options, Report], int]

CUDA_ERROR = "CUDA error"


def main(
    launch: Launch,
    *,
    title: str,
    folder: Path,
    arguments: Sequence[Argument],
    storages: Sequence[Storage],
    results: Sequence[Result] = (),
    kernel: Kernel | None = None,
    fault: str = "",
    random: str = "",
    libraries: Sequence[str] = (),
    imports: Sequence[str] = (),
) -> NoReturn:
    """Replays the launch and exits: 0 as recorded, 10 differs, 11 a fault came, 12 the recorded fault did not come.

    Args:
        launch: takes the arguments by name and returns the tensors that it allocated, by name.
        folder: where the script lies, with tensors/.
        kernel: what it launches, where that must be compiled or loaded first.
        fault: what the recorded launch ended in; "" if it ended well.
        random: why its values cannot be compared; "" if they can.
        libraries, imports: shared libraries and Python modules that define its operator.
    """
    job = Job(launch, title, folder, arguments, storages, results, kernel, fault, random, libraries, imports)
    options = parse(job)
    sys.exit(_run(options.applied(job), options))


def _run(job: Job, options: Options) -> int:
    if options.report is not None:
        return _as_child(job, options, Report(options.report))
    if options.reduce:
        return reduce.reduce(job, options)
    if options.sanitize:
        return sanitize.sanitize(job, options)
    if job.fault and not options.here:
        return _in_child(job, options)
    if not job.fault:
        return _mode(options)(job, options, Report(None))
    try:
        return _mode(options)(job, options, Report(None))
    except Exception as error:  # noqa: BLE001 - whatever leaves the launch is its fault
        traceback.print_exception(error)
        return FAULT


def _mode(options: Options) -> Mode:
    if options.trial:
        return sanitize.trial if options.trial.startswith(sanitize.TRIAL) else trial.trial
    if options.repeat:
        return repeat.repeat
    if options.poison:
        return poison.poison
    if options.bench:
        return bench.bench
    return _replay


def _replay(job: Job, options: Options, report: Report) -> int:
    """Launches it once and compares it with the record."""
    job.make_ready(options.settings(job))
    memory = job.memory()
    report.say("begin")
    tensors = job.run(memory)
    if not job.fault:
        return verdict.judge(job, options, tensors)
    if verdict.judge_findings(job):
        return FAULT
    if report.descriptor is None:
        print(f"{job.title}: it ended well; the recorded fault did not come ({job.fault})")
    return NO_FAULT


def _as_child(job: Job, options: Options, report: Report) -> int:
    try:
        code = _mode(options)(job, options, report)
    except Exception as error:  # noqa: BLE001 - whatever leaves the launch is its fault
        text = f"{type(error).__name__}: {error}".splitlines()[0]
        report.say("error", text)
        if not str(error).startswith(CUDA_ERROR):  # that says where it was noticed, not where it came from
            traceback.print_exception(error)
            sys.stderr.flush()
        os._exit(FAULT)
    report.say("end", code)
    return code


def _in_child(job: Job, options: Options) -> int:
    """The launch in a child process: whether the recorded fault comes, and else what the child says."""
    print(f"recorded: {job.fault}", flush=True)
    ended = run_child([*options.words(), *_mode_words(options)])
    if not ended.began:
        print(f"{job.title}: the replay failed before the launch ({ended.fault or ended.ending})")
        return FAILED
    code = FAULT if ended.fault else int((ended.said("end") or ("", FAULT))[1])
    if code == NO_FAULT or (code == AS_RECORDED and not _mode_words(options)):
        print(f"{job.title}: it ended well; the recorded fault did not come")
        return NO_FAULT
    if code == FAULT:
        if ended.fault:
            print(f"here:     {ended.fault}")
        print(f"{job.title}: fault reproduced")
    return code


def _mode_words(options: Options) -> list[str]:
    if options.repeat:
        return ["--repeat", str(options.repeat)]
    return ["--poison"] if options.poison else ["--bench"] if options.bench else []
