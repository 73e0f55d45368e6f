"""The options of a triage, and its runs: the same package and inputs, recorded in different ways."""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import field, replace
from itertools import chain
from pathlib import Path
from typing import Any

from aoti_debug.base import wording
from aoti_debug.base.errors import AotiDebugError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.files import stamped_directories
from aoti_debug.base.machine.files.results_home import ResultKind
from aoti_debug.base.machine.steps import Step, Steps
from aoti_debug.compare.bisect.threaded_calls import (
    CALLS_OF_A_THREAD,
    ThreadedCalls,
    ThreadsOptions,
    call_from_threads,
    recorded_by_default,
    ways,
)
from aoti_debug.compare.evaluation_process import LOG, EvaluationProcess
from aoti_debug.compare.protocol.measurement import EXPORTED_DOUBLE, EXPORTED_EAGER
from aoti_debug.instrument.builder.options import TIMEOUT, BuildOptions
from aoti_debug.package.pt2.archive import Artifact
from aoti_debug.runs.diagnosis import suggested_commands
from aoti_debug.runs.run import runner
from aoti_debug.runs.run.options import ModelCalls, RunOptions
from aoti_debug.runs.run.runner import RunResult
from aoti_debug.runs.run.supervise import Observer
from aoti_debug.runs.rundir import run_json
from aoti_debug.runs.rundir.launch import Launch
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.triage.nonfinite.replaced_values import RunFiles
from aoti_debug.triage.results.finding_kinds import Infinities

TIME_LIMIT = 540.0  # seconds
FLIGHT = 8  # launches whose inputs the flight recorder keeps
NO_CACHING = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}  # a bad access is less likely to hit another live buffer
_QUIET = {"AOTI_DEBUG_PRINT": "none"}
SMALL = 1 << 30  # bytes of a package, and of what it saves, that runs twice on a GPU at the same time
_CORES = 4  # that it takes to run it twice at the same time
_ALL_TENSORS = "run, level 1, all"
_TUNING = ("max_autotune", "max_autotune_gemm", "max_autotune_pointwise", "coordinate_descent_tuning")


@dataclass(frozen=True)
class TriageOptions(ModelCalls):
    """The model, its inputs, and how to run it.

    Attributes:
        model: the file of an exported program or of a compiled package, or an instrumented package.
        name: which model of a compiled package that holds several; "" for the only one.
        random_inputs: the seed of generated inputs; None for none.
        exported: the exported program that a compiled package came from: supplies model lines.
        out: the directory in which the triage directory is made.
        stall: seconds without a launch that begins or ends until the model counts as hung.
        tries: runs to attempt to reproduce a fault.
        infinities: how unintended infinities are reported.
        compare: at the end, compare every launch with what the program says.
        guards: also look for out-of-bounds writes and uninitialised reads.
        threads: also call the model from so many threads, and compare with the same calls alone; None for none.
        build_timeout: seconds that torch may take to lower the program until it counts as hung.
        time_limit: seconds after which the triage ends with what it has found so far.
        inductor_configs: as for `build` and `run`.
    """

    model: Path
    out: Path = field(default_factory=ResultKind.TRIAGES.place)
    stall: float = 60.0
    tries: int = 3
    infinities: Infinities = Infinities.FAIL
    compare: bool = True
    guards: bool = False
    threads: int | None = None
    inductor_configs: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""
    random_inputs: int | None = None
    exported: Path | None = None
    build_timeout: float = TIMEOUT
    time_limit: float = TIME_LIMIT

    @property
    def calling(self) -> tuple[str, ...]:
        """The options of a command line that calls the model in the same way."""
        code = self.user_code
        return suggested_commands.calling(self.inputs, self.calls, code.imports, code.libraries)

    @property
    def words(self) -> tuple[str, ...]:
        """The options of a command line that builds the model with the same settings, and calls it in the same way."""
        settings = [("--inductor-config", f"{key}={value}") for key, value in self.inductor_configs.items()]
        return (*self.calling, *chain.from_iterable(settings))

    @property
    def tuning(self) -> str:
        """A remark where settings let torch choose kernels by the time that each takes; else ""."""
        asked = [key for key in _TUNING if self.inductor_configs.get(key)]
        if not asked:
            return ""
        verb = "lets" if len(asked) == 1 else "let"
        return (
            f"{wording.comma_separated(asked)} {verb} torch choose kernels by the time that each takes: another build "
            "may have other ones; the triage of a compiled package runs its own"
        )

    def building(self, program: Artifact, output: Path) -> BuildOptions:
        """The options of a build of the model.

        Args:
            program: the model, or the exported program that it came from.
            output: the package.
        """
        return BuildOptions(
            program=program,
            output=output,
            inductor_configs=self.inductor_configs,
            user_code=self.user_code,
            model=self.name,
            exported=self.exported,
            timeout=self.build_timeout,
        ).for_this_machine()


@dataclass(frozen=True)
class Finished:
    """A run that has ended.

    Attributes:
        seconds: its duration.
        began: seconds from the beginning of the work.
    """

    result: RunResult
    seconds: float
    began: float


class BackgroundRun:
    """Runs a package in a process of its own, from now on.

    Args:
        steps: of the work that it is a part of; only their clock is read.
    """

    def __init__(self, options: RunOptions, steps: Steps) -> None:
        self._observer = _Cancellable()
        self._pool = ThreadPoolExecutor(1)
        self._future = self._pool.submit(_timed, options, self._observer, steps)
        self._pool.shutdown(wait=False)

    def finished(self) -> Finished:
        """Waits for its end.

        Raises:
            UsageError, ArtifactError, TargetError: the model never started.
        """
        return self._future.result()

    def cancel(self) -> None:
        """Kills its process if it still runs, waits for that, and removes what it recorded."""
        self._observer.cancelled.set()
        self._pool.shutdown()
        if self._observer.path is not None and self._observer.path.exists():
            stamped_directories.remove(self._observer.path, None)
            stamped_directories.relink_latest(self._observer.path.parent, run_json.NAME)


class _Cancellable(Observer):
    """Interrupts its run once it is cancelled."""

    def __init__(self) -> None:
        self.cancelled = threading.Event()
        self.path: Path | None = None

    def started(self, run: Path) -> None:
        self.path = run

    def tick(self) -> None:
        if self.cancelled.is_set():
            raise KeyboardInterrupt


def _timed(options: RunOptions, observer: Observer, steps: Steps) -> Finished:
    began = steps.now
    result = runner.run(options, observer)
    return Finished(result, steps.now - began, began)


class TriageRuns:
    """Runs one package in different ways; the run directories are in `folder`.

    Attributes:
        evaluation: the process that prepares to evaluate the program while the model runs; None if none was started.
        outputs: the folder for what the model returned in the run with all tensors.
        opened: the runs in `folder` that were made so far, by their directories: each is read once.
    """

    def __init__(self, package: Path, folder: Path, options: TriageOptions, steps: Steps) -> None:
        self._options = replace(
            options.recorded(package, folder),
            random_inputs=options.random_inputs,
            level=3,
            stall=options.stall,
            crumb_every=1,
            model=options.name,
            environment=_QUIET,
        )
        self._steps = steps
        self.outputs = folder.with_name("outputs")
        self.opened: dict[Path, RunDir] = {}
        self._ahead: BackgroundRun | None = None
        self.evaluation: EvaluationProcess | None = None

    def names(self) -> RunResult:
        """Level 3 with the flight recorder: names the launch and keeps its inputs, in case the fault is rare."""
        return self._run("run, level 3", replace(self._options, flight=FLIGHT))

    def blocking(self) -> RunResult:
        """Level 3 with a host that waits for every kernel: tells launches on several streams apart."""
        options = replace(self._options, flight=FLIGHT, environment={**_QUIET, "CUDA_LAUNCH_BLOCKING": "1"})
        return self._run("run, one launch at a time", options)

    def values(self) -> RunResult:
        """Level 2: statistics of every tensor."""
        return self._run("run, level 2", replace(self._options, level=2))

    def with_files(self, files: RunFiles) -> RunResult:
        """Level 2 with other inputs, weights or results of launches; no step of its own."""
        return self._kept(runner.run(_given(replace(self._options, level=2), files), Observer()))

    def tensors(
        self,
        launches: Sequence[Launch],
        environment: Mapping[str, str] | None = None,
        files: RunFiles = RunFiles(),  # noqa: B008 - it is frozen
    ) -> RunResult:
        """Level 1: the tensors of some launches."""
        ids = ",".join(launch.id for launch in launches)
        variables = {**_QUIET, **(environment or {})}
        options = replace(self._options, level=1, launch=ids, phase="both", environment=variables)
        return self._run("run, level 1", _given(options, files))

    def with_inputs(self, inputs: Path, folder: Path) -> RunResult:
        """Level 3 with other inputs; the caller says what came of it.

        Args:
            inputs: their file.
            folder: for the run directory.
        """
        return runner.run(replace(self._options, inputs=inputs, random_inputs=None, out=folder), Observer())

    def all_tensors(self) -> RunResult:
        """Level 1: the tensors of all launches. A run that was begun ahead is taken if it was not disturbed."""
        finished = self._finished_ahead()
        if finished is None:
            return self._run(_ALL_TENSORS, self._all_tensors)
        result, timings = finished.result, finished.result.run.info.timings
        self._steps.add(Step(_ALL_TENSORS, finished.seconds, _outcome(result), timings, finished.began))
        return self._kept(result)

    @property
    def running(self) -> RunOptions:
        """The options of every run."""
        return self._options

    @property
    def _all_tensors(self) -> RunOptions:
        return replace(self._options, level=1, phase="both", outputs=self.outputs)

    @property
    def has_begun_ahead(self) -> bool:
        """True while a run goes on in the background that was not asked for yet."""
        return self._ahead is not None

    def begin_all_tensors(self) -> None:
        """Begins `all_tensors` in the background, beside whatever runs until it is asked for."""
        self._ahead = BackgroundRun(self._all_tensors, self._steps)

    def prepare_evaluation(self, device: str, folder: Path) -> None:
        """Starts the process that will evaluate the program; where it does not start, there is none.

        Args:
            folder: for its output.
        """
        with contextlib.suppress(OSError):
            self.evaluation = EvaluationProcess(device, folder / LOG)

    def close(self) -> None:
        """Ends and forgets what was begun ahead, with what the model returned."""
        ahead, self._ahead = self._ahead, None
        evaluation, self.evaluation = self.evaluation, None
        if ahead is not None:
            ahead.cancel()
        if evaluation is not None:
            evaluation.close()
        self.remove_returned()

    def remove_returned(self) -> None:
        """Removes what the model and the program returned."""
        for name in (self.outputs.name, EXPORTED_EAGER, EXPORTED_DOUBLE):
            shutil.rmtree(self.outputs.with_name(name), ignore_errors=True)

    def _finished_ahead(self) -> Finished | None:
        """The run that was begun ahead; None if there is none, or it could not start."""
        if self._ahead is None:
            return None
        with contextlib.suppress(AotiDebugError):
            finished = self._ahead.finished()
            if finished.result.verdict is None:
                self._ahead = None
                return finished
        self.close()
        return None

    def guarded_tensors(self, launches: Sequence[Launch]) -> RunResult:
        """Level 1 with guard zones around every buffer: an out-of-bounds write does no damage."""
        ids = ",".join(launch.id for launch in launches)
        return self._run("run, level 1, guards", replace(self._options, level=1, launch=ids, phase="both", guards=True))

    def with_gpu_core(self, environment: Mapping[str, str]) -> RunResult:
        """Level 3, with a core dump of the GPU in the run directory where a kernel fails or seems to hang.

        Args:
            environment: further variables.
        """
        options = replace(self._options, gpu_core=True, environment={**_QUIET, **environment})
        return self._run("run, core dump of the GPU", options)

    def guarded(self) -> RunResult:
        """Level 3 with guard zones around every buffer."""
        return self._run("run, guards", replace(self._options, guards=True))

    def from_threads(self, threads: int) -> ThreadedCalls:
        """The calls of several threads, and the same calls alone."""
        calls = max(self._options.calls, CALLS_OF_A_THREAD * threads)
        run = recorded_by_default(replace(self._options, level=None, calls=calls))
        with self._steps.step(f"run, {wording.pluralize(threads, 'thread')}") as note:
            found = call_from_threads(ThreadsOptions(run=run, threads=threads, further=ways(threads)))
            note.text = _outcome(found.result)
            note.timings = found.result.run.info.timings
        for result in (found.alone, found.result):
            self._kept(result)
        return found

    def poisoned(self, poison: int) -> RunResult:
        """Level 2 with every new buffer filled with one byte."""
        return self._run(
            f"run, buffers begin as {poison:02x}", replace(self._options, level=2, guards=True, poison=poison)
        )

    def _run(self, name: str, options: RunOptions) -> RunResult:
        with self._steps.step(name) as note:
            result = runner.run(options, Observer())
            note.text = _outcome(result)
            note.timings = result.run.info.timings
        return self._kept(result)

    def _kept(self, result: RunResult) -> RunResult:
        self.opened[result.run.path] = result.run
        return result


def _given(options: RunOptions, files: RunFiles) -> RunOptions:
    """The options of a run with files in the place of its own."""
    options = replace(options, weights=files.weights, substitute=files.results)
    return options if files.inputs is None else replace(options, inputs=files.inputs, random_inputs=None)


def fits_beside(package: Path, device: str) -> bool:
    """True if the device and the cores have room for a package in several processes at the same time."""
    return device != "cpu" and (os.cpu_count() or 1) >= _CORES and package.stat().st_size <= SMALL


def _outcome(result: RunResult) -> str:
    verdict = result.verdict
    if verdict is None:
        return f"{wording.pluralize(len(result.run.launches), 'launch')}, no fault"
    where = f" in {verdict.launch.id} {verdict.launch.kernel}" if verdict.launch else ""
    return verdict.what.partition("\n")[0] + where
