"""Compares every launch of a model with what its program says, in a directory of its own.

aoti-debug/compares/20261120-231501-4711/
  compare.json  package.pt2  runs/ outputs/ repro/ request.json evaluation.log
  exported_outputs/ exported_outputs_float64/
"""

from __future__ import annotations

import os
import shlex
import shutil
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from aoti_debug.base import wording
from aoti_debug.base.errors import AotiDebugError, ArtifactError, UsageError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine import torch_settings
from aoti_debug.base.machine.files import stamped_directories
from aoti_debug.base.machine.files.results_home import ResultKind
from aoti_debug.base.machine.processes import python_process
from aoti_debug.base.machine.processes.child_process import changed_environment
from aoti_debug.base.machine.steps import StepListener, Steps
from aoti_debug.compare import stored_comparison
from aoti_debug.compare.compare_run import Scope, compare_run, exported_of, has_reference
from aoti_debug.compare.comparison import NO_PROGRAM, NOT_SELECTED, SILENT, Comparison, Row
from aoti_debug.compare.measure.metric import metric_function
from aoti_debug.compare.measure.verdicts import LaunchVerdict
from aoti_debug.compare.precision_setting import with_setting
from aoti_debug.compare.protocol import messages
from aoti_debug.compare.protocol.measurement import EXPORTED_EAGER
from aoti_debug.compare.regions.regions import UNRETURNED
from aoti_debug.instrument.builder.build import BuildOptions, BuildSummary, instrumented
from aoti_debug.instrument.builder.options import COMPILED
from aoti_debug.instrument.frontend.protocol.messages import LeftOut
from aoti_debug.package import recording_settings
from aoti_debug.package.launch_traits import traits_of
from aoti_debug.package.manifest import PackageOrigin
from aoti_debug.package.pt2 import archive, trust
from aoti_debug.package.recording_settings import EVERYTHING, SiteFilter
from aoti_debug.repro.repro import ReproOptions, write_repro
from aoti_debug.repro.run_repro import FAILED, Mode, gather, modes, this_machine
from aoti_debug.runs.diagnosis.diagnosed_run import DiagnosedRun
from aoti_debug.runs.run import runner
from aoti_debug.runs.run.options import ModelCalls, RunOptions, check_inputs, recording_everything
from aoti_debug.runs.run.protocol import PRELOADED
from aoti_debug.runs.run.supervise import Observer
from aoti_debug.runs.rundir import ranks_directory, recorded_runs, run_directory, run_json
from aoti_debug.runs.rundir.launch import Launch, LaunchStatus
from aoti_debug.runs.rundir.run_directory import RunDir

FOLDER = "sources"
INDEPENDENT = ("checked", "interpret")  # modes of a repro that do not run the kernel's machine code
TOLERANCE = 1e-4  # an arithmetic of its own: what is larger is no rounding
SECONDS = 120.0  # for one launch
OPERATOR = "it calls an operator, of which the package holds no source"


def compare_sources(run: RunDir, filters: SiteFilter, folder: Path, steps: Steps) -> Comparison:
    """Compares the launches of a run that saved tensors with the sources of their kernels.

    Args:
        filters: the launches to compare.
        folder: for the repros of launches that differ.
    """
    device, diagnosed = run.manifest.device, DiagnosedRun(run)
    machine = this_machine(run.manifest.compiler, cuda=device == "cuda")
    by_kernel: dict[str, list[Launch]] = defaultdict(list)
    for launch in run.launches:
        by_kernel[launch.kernel].append(launch)
    rows: dict[str, Row] = {}
    chosen = filters.site_ids(run.manifest.sites)

    def compare(launches: Sequence[Launch]) -> None:
        built: Path | None = None
        for launch in launches:
            if launch.site.id not in chosen:
                rows[launch.id] = _row(launch, LaunchVerdict.NOT_COMPARABLE, NOT_SELECTED)
                continue
            mode = next((m for m in modes(launch.site.kind, device, machine) if m.name in INDEPENDENT), None)
            place = folder / FOLDER / launch.id
            rows[launch.id] = _compared(diagnosed, launch, mode, place, built)
            built = _keep_build(place, folder / FOLDER / "build" / launch.kernel) or built
            if rows[launch.id].verdict is not LaunchVerdict.DIFFERS_FROM_SOURCE:
                shutil.rmtree(place, ignore_errors=True)
            steps.advance(len(rows), len(run.launches))

    with steps.step("compare with the sources") as note:
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            for _ in pool.map(compare, by_kernel.values()):
                pass
        note.text = wording.pluralize(len(by_kernel), "kernel")
    shutil.rmtree(folder / FOLDER / "build", ignore_errors=True)
    return Comparison(run=run, rows=tuple(rows[launch.id] for launch in run.launches), outputs_missing=NO_PROGRAM)


def _compared(diagnosed: DiagnosedRun, launch: Launch, mode: Mode | None, place: Path, built: Path | None) -> Row:
    verdict = LaunchVerdict.NOT_COMPARABLE
    if launch.status is not LaunchStatus.RETURNED:
        return _row(launch, verdict, UNRETURNED[launch.status])
    if not any(_bytes(launch)):
        return Row(launch=launch, verdict=verdict, reason=SILENT)
    if mode is None or mode.missing:
        reason = mode.missing if mode is not None else traits_of(launch.site.kind).not_replayed or OPERATOR
        return _row(launch, verdict, reason)
    try:
        write_repro(ReproOptions(launch.kernel, run=diagnosed, launch=launch.id, output=place, trusted=True))
    except AotiDebugError as error:
        return _row(launch, verdict, wording.first_line(str(error)))
    if built is not None:
        _copy_libraries(built, place / "build")
    evidence = gather(place, (*mode.words, "--tolerance", repr(TOLERANCE)), SECONDS)
    if evidence.outcome == "as recorded":
        return _row(launch, LaunchVerdict.MATCHES_SOURCE)
    if evidence.outcome == "differs":
        differing = (line.strip() for line in evidence.lines if "differs in" in line or "NaN" in line)
        return _row(launch, LaunchVerdict.DIFFERS_FROM_SOURCE, wording.first_line(next(differing, evidence.what)))
    why = evidence.what or ("it failed" if evidence.outcome == FAILED else f"its replay ended in: {evidence.outcome}")
    return _row(launch, verdict, f"{mode.name}: {wording.first_line(why)}")


def _copy_libraries(source: Path, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for library in source.glob("*.so"):
        shutil.copy2(library, target)


def _keep_build(place: Path, kept: Path) -> Path | None:
    """Keeps what a repro has compiled, for the next launch of its kernel; None if it has compiled nothing."""
    if not any((place / "build").glob("*.so")):
        return None
    _copy_libraries(place / "build", kept)
    return kept


def _row(launch: Launch, verdict: LaunchVerdict, reason: str = "") -> Row:
    size = sum(_bytes(launch))
    compared = 0 if verdict is LaunchVerdict.NOT_COMPARABLE else size
    return Row(
        launch=launch, verdict=verdict, reason=reason, together_with=(launch.id,), bytes=size, compared_bytes=compared
    )


def _bytes(launch: Launch) -> list[int]:
    """The sizes of what a launch writes."""
    written = {a.name: a.layout for a in launch.args if a.written and a.layout is not None}
    return [layout.bytes for layout in written.values()]


PACKAGE = "package.pt2"
OUTPUTS = "outputs"
_COMPILED = (PackageOrigin.COMPILED, PackageOrigin.UNCOMPILED)


@dataclass(frozen=True, kw_only=True)
class CompareOptions(ModelCalls):
    """The model or run to compare with its program.

    Attributes:
        model: an exported program, a compiled or an instrumented package, or a run: its directory or name.
        exported: the exported program that a compiled package came from.
        program: the exported program that an instrumented package was built from; None where it is not known.
        random_inputs: the seed of inputs to make, for a first look; None to take given ones.
        filters: the launches to compare.
        metric: "FILE.py:FUNCTION"; "" for none.
        out: the directory in which the directory of the comparison is made.
        left_out: operators that are called as they are when the model is built; None to note nothing either.
        inductor_configs: as for `build` and `run`.
        tries_setting: builds the program once more where eager's rounding may explain how outputs differ.
    """

    model: Path
    exported: Path | None = None
    program: Path | None = None
    random_inputs: int | None = None
    filters: SiteFilter = EVERYTHING
    metric: str = ""
    out: Path = field(default_factory=ResultKind.COMPARES.place)
    inductor_configs: Mapping[str, Any] = field(default_factory=dict)
    left_out: LeftOut | None = None
    tries_setting: bool = True


def compare(options: CompareOptions, listener: StepListener | None = None) -> Comparison:
    """Compares every launch of a model with what its program says.

    Raises:
        UsageError: an option is wrong, or the model is not trusted.
        ArtifactError: the model or its inputs are not what they should be, or the package holds no reference.
        ToolchainError, TargetError: the model could not be built, started or evaluated.
        RunDirError: the run cannot be read, or cannot be repeated.
    """
    _check(options)
    recorded = None if options.model.is_file() else recorded_runs.find(options.model)
    if recorded is not None and recorded.run is not None:
        options = replace(options, model=recorded.run)
    is_new_base = not options.out.exists()
    folder = stamped_directories.make(options.out)
    try:
        steps = Steps(listener)
        comparison = replace(_Session(options, folder, steps).compare(), directory=str(folder))
        _write(comparison, folder)
        stored_comparison.keep_in_run(comparison, steps)
        stamped_directories.link_latest(folder)
        return comparison
    except BaseException:
        if not any(folder.iterdir()) or not (folder / "runs").exists():
            stamped_directories.remove(folder, options.out if is_new_base else None)
        raise


def _write(comparison: Comparison, folder: Path) -> None:
    try:
        stored_comparison.write(comparison, folder)
    except OSError as error:
        raise UsageError(
            f"cannot write {folder / stored_comparison.NAME}: {error.strerror}", hint="free some room on the disk"
        ) from error


def require_trust(run: RunDir, *, trusted: bool) -> None:
    """Checks that the comparison of a run executes nothing from an untrusted source.

    Raises:
        UsageError: it would.
    """
    if run.package is not None:
        trust.require(archive.inspect(run.package), trusted=trusted)
    if not (trusted or run.is_made_here):
        loaded = trust.would_load(run.manifest, run.info.imports, run.info.libraries)
        raise UsageError(
            f"{run.path} was not made on this account; the operators or sources that it names would run{loaded}",
            hint=trust.TRUST_HINT,
        )


def _check(options: CompareOptions) -> None:
    if options.metric:
        metric_function(options.metric).check()
    check_inputs(options.inputs, options.random_inputs)
    recording_settings.check_patterns(options.filters)
    if options.calls < 1:
        raise UsageError(f"--calls {options.calls} is less than 1", hint="--calls takes a number from 1")


class _Session:
    def __init__(self, options: CompareOptions, folder: Path, steps: Steps) -> None:
        self._options = options
        self._folder = folder
        self._steps = steps

    def compare(self) -> Comparison:
        with python_process.forking_from(PRELOADED, self._options.user_code.imports) as server:
            server.preload()
            run, options = self._run(), self._options
            require_trust(run, trusted=options.user_code.trusted)
            if self._has_no_program(run):
                return self._with_sources(run)
            returned = self._folder / OUTPUTS  # of a run that was made on this account; any other has not saved them
            scope = Scope(
                filters=options.filters,
                metric=options.metric,
                user_code=options.user_code,
                exported=exported_of(options.model, options.exported or options.program),
                outputs=returned if returned.is_dir() else None,
            )
            comparison = self._with_setting(compare_run(run, scope, self._folder, self._steps), run)
            wrong = comparison.first_wrong
            return comparison if wrong is None else replace(comparison, repro=self._repro(run, wrong.launch))

    def _with_setting(self, comparison: Comparison, run: RunDir) -> Comparison:
        """The comparison with the outputs of another setting, if that may explain them and the program is known."""
        options, folder = self._options, self._folder
        program = exported_of(options.model, options.exported or options.program)
        if program is None or not options.tries_setting:
            return comparison
        building, running = replace(self._building(), program=program), self._running(run.inputs, run.info.calls)
        with changed_environment(torch_settings.environment(run.info.torch_settings)):
            return with_setting(comparison, building, running, folder / EXPORTED_EAGER, folder, self._steps)

    def _run(self) -> RunDir:
        """The run to compare, with the tensors of all launches."""
        options = self._options
        if (options.model / run_json.NAME).is_file() or ranks_directory.is_one(options.model):
            self._check_not_compiled("a run directory")
            run = run_directory.open_run(options.model)
            return run if run.has_tensors else self._again(run)
        package = archive.inspect(options.model)
        if package.kind not in COMPILED:
            self._check_not_compiled(package.kind.value)
        return self._record(self._built(), options.inputs, options.calls)

    def _has_no_program(self, run: RunDir) -> bool:
        """True for a package that torch has compiled, without its program: it holds only the sources of its kernels."""
        return run.manifest.source in _COMPILED and not (run.package is not None and has_reference(run))

    def _with_sources(self, run: RunDir) -> Comparison:
        options = self._options
        if options.metric:
            raise UsageError("--metric needs the values of the program", hint="--exported PROGRAM.pt2 gives them")
        recording_settings.require_names(run.manifest, options.filters, str(options.model))
        comparison = compare_sources(run, options.filters, self._folder, self._steps)
        wrong = comparison.first_wrong
        return comparison if wrong is None else replace(comparison, repro=str(self._folder / FOLDER / wrong.launch.id))

    def _check_not_compiled(self, what: str) -> None:
        if self._options.exported is not None:
            both = shlex.join(["aoti-debug", "diff", str(self._options.exported), str(self._options.model)])
            raise UsageError(
                f"{self._options.model} is {what}, which is compared with its own program",
                hint=f"to compare it with another program: {both}",
            )

    def _building(self) -> BuildOptions:
        options = self._options
        return BuildOptions(
            program=options.model,
            output=self._folder / PACKAGE,
            exported=options.exported,
            inductor_configs=options.inductor_configs,
            user_code=options.user_code,
            left_out=options.left_out,
        )

    def _built(self) -> Path:
        options = self._options
        has_inputs = options.inputs is not None or options.random_inputs is not None
        return instrumented(
            options.model, self._building(), self._steps, has_inputs=has_inputs, check=self._check_program
        )

    def _check_program(self, built: BuildSummary) -> None:
        options = self._options
        if built.program_difference:
            words = ("aoti-debug", "triage", str(options.model), "--exported", str(options.exported))
            triage = shlex.join(words)
            raise ArtifactError(
                f"{options.model} was not compiled from {options.exported} as it is lowered here: "
                f"{built.program_difference}",
                hint="pass its own program, and with --inductor-config the settings that it was compiled with; "
                f"{triage} compares what the package returns",
            )

    def _again(self, run: RunDir) -> RunDir:
        """A run of the same package and inputs that saves tensors."""
        run.require_repeatable()
        options = self._options
        recorded = None if options.random_inputs is not None else run.inputs
        with changed_environment(torch_settings.environment(run.info.torch_settings)):
            return self._record(run.required_package, options.inputs or recorded, run.info.calls)

    def _record(self, package: Path, inputs: Path | None, calls: int) -> RunDir:
        with self._steps.step("run, level 1") as note:
            running = replace(self._running(inputs, calls), package=package, random_inputs=self._options.random_inputs)
            result = runner.run(running, Observer())
            note.text = wording.pluralize(len(result.run.launches), "launch")
        return result.run

    def _running(self, inputs: Path | None, calls: int) -> RunOptions:
        return replace(
            recording_everything(self._folder / PACKAGE, self._folder / "runs"),
            inputs=inputs,
            level=1,
            phase="both",
            calls=calls,
            user_code=self._options.user_code,
            outputs=self._folder / OUTPUTS,
            built_from=self._options.model.name if self._options.model.is_file() else "",
        )

    def _repro(self, run: RunDir, launch: Launch) -> str:
        """The folder of the repro of a launch; "" if it cannot be replayed."""
        with self._steps.step("repro") as note:
            try:
                repro = write_repro(
                    ReproOptions(launch.kernel, run=DiagnosedRun(run), launch=launch.id, output=self._folder / "repro")
                )
            except AotiDebugError as error:
                note.text = f"no repro: {error}"
                return ""
            messages.move_to_repro(self._folder, repro.path)
            note.text = wording.pluralize(repro.tensors, "tensor")
        return str(repro.path)
