"""The main function of a repro: runs what its command line asks for, in this process or in a child."""

from __future__ import annotations

import gc
import math
import os
import sys
import traceback
from collections.abc import Callable
from typing import NoReturn

import torch

from . import bench, debugger, evidence, operator_indices, poison, reduce, repeat, sanitize, verdict
from .accesses import lines_of
from .child import ReplayReport, run_child
from .job import AS_RECORDED, FAILED, FAULT, NO_FAULT, Job
from .kernel import RefusalError
from .memory import LaunchMemory
from .options import Options, parse

Mode = Callable[[Job, Options, ReplayReport], int]

SLOW = ("interpret", "checked")  # back ends that may take any time
CUDA_ERROR = "CUDA error"


def main(recorded: Job) -> NoReturn:
    """Replays the launch and exits: 0 as recorded, 10 differs, 11 a fault, 12 the recorded fault was not reproduced."""
    gc.freeze()  # the end of the process need not visit the objects of the imported modules
    options = parse(recorded)
    job = options.applied(recorded)
    if options.report is not None:
        sys.exit(_as_child(job, options, ReplayReport(options.report)))
    if job.cuda_devices and job.cuda_devices != recorded.cuda_devices:
        print(f"{job.title}: recorded on {', '.join(recorded.cuda_devices)}, replayed on {', '.join(job.cuda_devices)}")
    if options.evidence is not None:
        sys.exit(evidence.run_with_evidence(job, options, options.evidence, lambda report: _run(job, options, report)))
    sys.exit(_run(job, options, ReplayReport(None)))


def _run(job: Job, options: Options, report: ReplayReport) -> int:
    if options.reduce:
        return reduce.reduce(job, options)
    if options.debugger:
        debugger.debugger(job, options)
    if options.sanitize:
        return sanitize.sanitize(job, options, report)
    if (job.fault or options.evidence) and not options.here:
        return _in_child(job, options, report)
    try:
        return _mode(options)(job, options, report)
    except RefusalError as error:
        raise SystemExit(f"{job.title}: {error}") from error
    except Exception as error:
        if not job.fault:
            raise
        report.what = _one_line(error)
        traceback.print_exception(error)
        return FAULT


def _mode(options: Options) -> Mode:
    if options.trial.startswith(debugger.TRIAL):
        return debugger.trial
    if options.trial:
        return sanitize.trial if options.trial.startswith(sanitize.TRIAL) else reduce.trial
    if options.repeat:
        return repeat.repeat
    if options.poison:
        return poison.poison
    if options.bench:
        return bench.bench
    return _replay


def _replay(job: Job, options: Options, report: ReplayReport) -> int:
    """Launches it once and compares it with the record."""
    job.prepare(options.settings(job))
    memory = job.memory()
    report.send("begin")
    tensors = _launch_checked(job, memory, report)
    if not job.fault:
        return verdict.judge(job, options, report, tensors)
    if verdict.judge_findings(job, report):
        return FAULT
    if report.descriptor is None:
        print(f"{job.title}: the launch ended without a fault; the recorded fault was not reproduced ({job.fault})")
    return NO_FAULT


def _launch_checked(job: Job, memory: LaunchMemory, report: ReplayReport) -> dict[str, torch.Tensor]:
    """Runs the launch; out-of-range indices of an operator are reported before it runs."""
    if job.kernel is not None:
        return job.run(memory)
    with operator_indices.IndexWatch(memory.views, report.access):
        return job.run(memory)


def _as_child(job: Job, options: Options, report: ReplayReport) -> int:
    try:
        code = _mode(options)(job, options, report)
    except (RefusalError, SystemExit) as error:
        report.send("refused", str(error))
        raise SystemExit(str(error)) from error
    except Exception as error:  # noqa: BLE001 - any exception of the launch is its fault
        report.send("error", _one_line(error))
        if not str(error).startswith(CUDA_ERROR):  # that says where it was noticed, not where it came from
            traceback.print_exception(error)
            sys.stderr.flush()
        os._exit(FAULT if report.began else FAILED)
    report.send("end", code)
    return code


def _one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]


def _in_child(job: Job, options: Options, report: ReplayReport) -> int:
    """Runs the launch in a child process and reports how it ended."""
    if job.fault:
        print(f"recorded: {job.fault}", flush=True)
    words = [*options.words(), *_mode_words(options)]
    hangs = bool(job.fault) and options.backend not in SLOW
    ended = run_child(
        words,
        text="echoed" if options.evidence else "through",
        seconds=None if hangs else math.inf,
        folds=bool(job.cuda_devices),
    )
    report.add_child(ended)
    if ended.failed:
        when = "failed" if ended.began else "failed before the launch"
        print(f"{job.title}: the replay {when} ({ended.failure_reason})")
        return FAILED
    code = FAULT if ended.fault else int((ended.message("end") or ("", FAULT))[1])
    if job.fault and (code == NO_FAULT or (code == AS_RECORDED and not _mode_words(options))):
        print(f"{job.title}: the launch ended without a fault; the recorded fault was not reproduced")
        return NO_FAULT
    if ended.fault:
        print(f"here:     {ended.fault}")
        for line in (line for access in report.accesses if access.seen_by == "operator" for line in lines_of(access)):
            print(f"  {line}")
    if code == FAULT and job.fault:
        print(f"{job.title}: fault reproduced")
    elif ended.fault:
        print(f"{job.title}: a fault; the recorded launch had none")
    return code


def _mode_words(options: Options) -> list[str]:
    if options.repeat:
        return ["--repeat", str(options.repeat)]
    return ["--poison"] if options.poison else ["--bench"] if options.bench else []
