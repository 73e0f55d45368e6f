"""`aoti_debug.record`: records the packages that are compiled or loaded in a block of this process.

A package that is loaded in a block is replaced by its instrumented one, and stays so as long as its model lives. Its
run ends with the block; a later block begins another run of it. In between, nothing of it is recorded.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import html
import os
import shlex
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any

from aoti_debug.app.execute.failed_call import NOTHING_SEEN, FailedCall
from aoti_debug.app.execute.kept_inputs import PackageUse
from aoti_debug.app.execute.operator_modules import OperatorModules
from aoti_debug.app.execute.recorded_packages import RecordedPackages
from aoti_debug.app.execute.replacements import USE, Replacements
from aoti_debug.app.python import finding_text
from aoti_debug.app.python.recorded_model import ModelRun, RecordedModel
from aoti_debug.base import wording
from aoti_debug.base.abi import Level, Variable
from aoti_debug.base.errors import AotiDebugError, UsageError
from aoti_debug.base.machine import cache
from aoti_debug.base.machine.files import stamped_directories
from aoti_debug.base.machine.files.results_home import ResultKind
from aoti_debug.package import recording_settings
from aoti_debug.package.pt2 import archive
from aoti_debug.package.pt2.archive import ArtifactKind
from aoti_debug.runs.diagnosis.diagnosed_run import DiagnosedRun
from aoti_debug.runs.diagnosis.findings import NONFINITE, Finding
from aoti_debug.runs.diagnosis.verdict import Verdict
from aoti_debug.runs.diagnosis.verdict_text import finding_of
from aoti_debug.runs.run import configuration
from aoti_debug.runs.run import options as run_options
from aoti_debug.runs.run.options import RunOptions, Shown
from aoti_debug.runs.rundir import run_json
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.views.report import report

_WHEN = "only packages that are compiled or loaded in the block are recorded"


def record(
    *,
    level: int | str | None = None,
    filters: Sequence[str] = (),
    keep_inputs: bool = False,
    out: str | Path | None = None,
) -> RecordedBlock:
    """Records every AOTInductor package that is compiled or loaded in a block.

        with aoti_debug.record(level=2) as recorded:
            model = torch._inductor.aoti_load_package("model.pt2")
            model(x)
        print(recorded)
        recorded.finding, recorded.runs

    Each package is instrumented when it is loaded, which takes about as long as compiling it, or is found in the cache.
    A package that was loaded before the block is not recorded. The model runs in this process: a crash ends it, and
    `aoti-debug show` then names the launch. The end of the block does not wait for the device: of replays of a CUDA
    graph that have not ended, the statistics are missing, and a note says so.

    Args:
        level: 0 off, 1 save, 2 values, 3 kernel names, "hash" hashes only; None for AOTI_DEBUG_LEVEL, or 3.
        filters: patterns of kernel names; "!PATTERN" excludes. Empty: every launch.
        keep_inputs: keep those of every call until the next ones, also on a GPU, and look at what it returns: whatever
            the block ends in, `aoti_debug.triage(recorded)` can look into it. Otherwise those of a call that fails are
            kept, if that is cheap.
        out: where run directories are made; None for AOTI_DEBUG_DIR, or `aoti-debug/runs`.

    Raises:
        UsageError: an argument is wrong.
    """
    options = RunOptions(
        package=Path(),
        level=None if level is None else recording_settings.level_number(level),
        filters=tuple(filters) or None,
        out=None if out is None else Path(out),
        shown=Shown.ALL if Variable.PRINT.value in os.environ else Shown.NOTHING,
    )
    run_options.check(options)
    given = configuration.level_given(options)
    return RecordedBlock(replace(options, level=Level.NAMES.value if given is None else given), keep_inputs=keep_inputs)


class RecordedBlock:
    """A block whose packages are recorded; printed, and shown in a notebook as the report of its run.

    Within the block, the attributes say what was recorded so far.
    """

    def __init__(self, options: RunOptions, *, keep_inputs: bool) -> None:
        """Prepares it; use `record`."""
        self._options = options
        self._keeps_inputs = keep_inputs
        self._base = (options.out or ResultKind.RUNS.place()).absolute()
        self._has_base = self._base.exists()
        self._runs: list[tuple[RecordedModel, ModelRun]] = []
        self._current: dict[RecordedModel, ModelRun] = {}  # that have not ended
        self._notes: list[str] = []
        self._lock = threading.Lock()
        self._is_begun = False
        self._results: tuple[_Result, ...] | None = None  # when it has ended

    def __enter__(self) -> RecordedBlock:
        """Begins the block.

        Raises:
            UsageError: it has had one, or the directory for runs cannot be made.
        """
        if self._is_begun:
            raise UsageError("a recording has one block", hint="with aoti_debug.record() as recorded: begins another")
        try:
            stamped_directories.make_base(self._base)
        except OSError as error:
            raise UsageError(f"cannot make {self._base}: {error.strerror}", hint="out=DIR names another one") from error
        self._is_begun = True
        _BLOCKS.begin(self)
        return self

    def __exit__(self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None) -> None:
        """Ends the block, and the runs of its packages."""
        _BLOCKS.end(self)
        if error is not None and isinstance(getattr(error, "error_code", None), int):  # of a device
            for model, run in self._runs:
                if model.manifest.device != "cpu":
                    run.failed(error)
        self._results = tuple(self._finished())
        if self._results:
            stamped_directories.link_latest(self._chosen.run.path)
        else:
            self._relink()

    def _relink(self) -> None:
        """Lets `latest` lead to the newest run again, after those of the block were deleted."""
        if not self._base.is_dir():
            return
        stamped_directories.relink_latest(self._base, run_json.NAME)
        if not self._has_base:
            stamped_directories.remove_empty(self._base)

    def _finished(self) -> Iterator[_Result]:
        for model, run in self._runs:
            if not run.is_over and not model.end():
                self._notes.append(f"a call of {model.package.name} has not ended, and is recorded to its end")
            if run.has_begun:
                ended = run.finish()
                yield _Result(ended, run.call_in_question(ended))
            else:
                run.remove()

    def use(self, packages: RecordedPackages, path: str, model: str) -> PackageUse:
        """The package that a loader is to load in this block in the place of another one."""
        if not self._options.level:
            return PackageUse(path)
        found = packages.recorded(path, model)
        with contextlib.suppress(AotiDebugError):  # the loader says what is wrong with its file
            if archive.inspect(found).kind is ArtifactKind.INSTRUMENTED:
                return RecordedModel(Path(found).absolute(), _BLOCKS.run_of)
        reason = packages.reasons.get(path)
        self._notes += [reason] if reason is not None and reason not in self._notes else []
        return PackageUse(path)

    def run_of(self, model: RecordedModel) -> ModelRun | None:
        """The run of a model in this block, begun where there is none; None at level 0."""
        if not self._options.level:
            return None
        with self._lock:
            run = self._current.get(model)
            if run is None or run.is_over:  # an inner block has ended it
                options = replace(self._options, package=model.package)
                run = ModelRun(self._base, options, model.manifest, keeps_all=self._keeps_inputs)
                self._current[model] = run
                self._runs.append((model, run))
                stamped_directories.link_latest(run.path)
            return run

    @property
    def _all(self) -> tuple[_Result, ...]:
        if self._results is not None:
            return self._results
        return tuple(_Result(run.so_far()) for _, run in self._runs if run.has_begun)

    @property
    def _chosen(self) -> _Result:
        """The run with a fault, or else with values that are not finite, or else the first one."""
        return max(self._all, key=lambda result: (result.diagnosed.verdict is not None, result.finding.kind.is_fault))

    @property
    def runs(self) -> tuple[RunDir, ...]:
        """The runs of the models that were called, in the order in which they began.

        Raises:
            RunDirError: their records cannot be read.
        """
        return tuple(result.run for result in self._all)

    @property
    def run(self) -> RunDir | None:
        """The run of the finding; None if nothing was recorded."""
        return self._chosen.run if self._all else None

    @property
    def call(self) -> FailedCall | None:
        """The call that a triage looks into, with its package and inputs; None if the block goes on, or kept no inputs.

        It is the one with a fault, or else the first one whose results are not finite, or else the last one of the
        first model: then its `others` are the last ones of the other models.
        """
        chosen = self._chosen if self._all else None
        if chosen is None or chosen.call is None or chosen.call.why != NOTHING_SEEN:
            return None if chosen is None else chosen.call
        others = tuple(one.call for one in self._all if one is not chosen and one.call is not None)
        return replace(chosen.call, others=others)

    @property
    def verdict(self) -> Verdict | None:
        """The guilty launch; None without a fault."""
        return self._chosen.diagnosed.verdict if self._all else None

    def remove(self) -> None:
        """Deletes the runs of the block, which has ended."""
        for result in self._all:
            stamped_directories.remove(result.run.path, None)
        self._results = ()
        self._relink()

    @property
    def finding(self) -> Finding | None:
        """The fault; or, where values were recorded, outputs that are not finite; None without a run.

        Where there is none, its kind is "no_fault". A triage looks for more, and proves it.

        Raises:
            RunDirError: the records cannot be read.
        """
        return self._chosen.finding if self._all else None

    def __str__(self) -> str:
        found = finding_text.lines(self._chosen.finding, self.runs) if self._all else [self._why_nothing]
        return "\n".join([*found, *(f"  note  {note}" for note in (*self._notes, *_not_recorded()))])

    @property
    def _why_nothing(self) -> str:
        if not self._options.level:
            return "nothing was recorded: the level is 0"
        if self._runs:
            return "nothing was recorded: no model of a recorded package was called in the block"
        return f"nothing was recorded: {_WHEN}"

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        if not self._all:
            return f"<pre>{html.escape(str(self))}</pre>"
        return finding_text.framed(report.html(report.find(self._chosen.run.path)))


class _Result:
    """A run with its finding, and the call to look into."""

    def __init__(self, diagnosed: DiagnosedRun, call: FailedCall | None = None) -> None:
        self.diagnosed = diagnosed
        self.run = diagnosed.run
        self.call = call

    @cached_property
    def finding(self) -> Finding:
        found = finding_of(self.run, self.diagnosed.verdict)
        if not found.kind.is_fault and self.call is not None and self.call.is_not_finite:
            what = f"call {self.call.number} returned values that are not finite"
            found = replace(found, kind=NONFINITE, what=what)
        return self._with_triage(found) if found.kind.is_fault else found

    def _with_triage(self, finding: Finding) -> Finding:
        """The finding with the command that looks into its call, in the place of those that run this program again."""
        if self.call is None or self.call.inputs is None:
            return finding
        command = shlex.join(["aoti-debug", "triage", str(self.call.package), "--inputs", str(self.call.inputs)])
        again = shlex.join(self.run.info.command)
        return replace(finding, next=(command, *(other for other in finding.next if again not in other)))


def _not_recorded() -> list[str]:
    """A line on the models of this process that are not recorded: they were loaded outside of all blocks."""
    module = sys.modules.get("torch.export.pt2_archive._package")
    model = getattr(module, "AOTICompiledModel", None)
    loaders = [found.loader for found in gc.get_objects() if type(found) is model] if model is not None else []
    count = sum(not isinstance(getattr(loader, USE, None), PackageUse) for loader in loaders)
    if not count:
        return []
    verb = "is" if count == 1 else "are"
    return [f"{wording.pluralize(count, 'model')} of this process {verb} not recorded: loaded outside of any block"]


class _Blocks:
    """The blocks that are open in this process; the innermost one records."""

    def __init__(self) -> None:
        self.operators = OperatorModules()
        self._open: list[RecordedBlock] = []
        self._replacements: Replacements | None = None
        self._lock = threading.RLock()

    def begin(self, recording: RecordedBlock) -> None:
        with self._lock:
            self._open.append(recording)
            if self._replacements is None:
                self._replacements = Replacements(lambda: self)
                self._replacements.install()

    def end(self, recording: RecordedBlock) -> None:
        with self._lock:
            self._open.remove(recording)
            if not self._open and self._replacements is not None:
                self._replacements.remove()
                self._replacements = None

    def run_of(self, model: RecordedModel) -> ModelRun | None:
        """The run of a model in the innermost block; None outside of all."""
        with self._lock:
            return self._open[-1].run_of(model) if self._open else None

    @cached_property
    def _packages(self) -> RecordedPackages:
        """The packages of this process, in a folder that it deletes at its end."""
        scratch = contextlib.ExitStack()
        folder = scratch.enter_context(cache.scratch())
        process = os.getpid()
        atexit.register(lambda: scratch.close() if os.getpid() == process else None)
        return RecordedPackages(folder, self.operators)

    def remember_program(self, compiled: Any, program: Callable[[], Any], configs: Mapping[str, Any]) -> None:
        if self._open:
            self._packages.remember_program(compiled, program, configs)

    def use(self, path: str, model: str) -> PackageUse:
        recording = self._open[-1] if self._open else None
        return PackageUse(path) if recording is None else recording.use(self._packages, path, model)


_BLOCKS = _Blocks()


def watch_operators() -> None:
    """Notes from now on which modules register operators: what builds and triages packages imports them as well."""
    _BLOCKS.operators.watch()
