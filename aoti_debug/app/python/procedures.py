"""`aoti_debug.triage`, `compare`, `equal` and `repro`: the procedures on a model in memory, a file or a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from aoti_debug.app.execute.triage_script import triage_failed_call
from aoti_debug.app.python import finding_text, model_files
from aoti_debug.app.python.debug import DebuggedModel
from aoti_debug.app.python.model_files import GivenModel, ModelFiles
from aoti_debug.app.python.record import RecordedBlock
from aoti_debug.app.torch_compile.cached_build import PACKAGE
from aoti_debug.base.errors import EXIT_FINDING, UsageError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.files.results_home import ResultKind
from aoti_debug.base.machine.processes.child_process import sharing_search_path, sharing_torch_settings
from aoti_debug.base.machine.steps import Steps
from aoti_debug.base.machine.user_code import UserCode
from aoti_debug.compare.bisect.equal import MAX_BUILDS, EqualOptions, find_equal
from aoti_debug.compare.bisect.equal_result import EqualSearch, equal_lines
from aoti_debug.compare.compare import CompareOptions
from aoti_debug.compare.compare import compare as compare_launches
from aoti_debug.compare.comparison import Comparison
from aoti_debug.compare.outcome import exit_code, report_lines
from aoti_debug.instrument.builder import build as builder
from aoti_debug.instrument.builder.options import BuildOptions
from aoti_debug.instrument.frontend.protocol.caller_settings import with_assigned
from aoti_debug.package.inputs.input_files import Inputs
from aoti_debug.package.recording_settings import SiteFilter
from aoti_debug.repro.repro import Repro, ReproOptions, write_repro
from aoti_debug.runs.diagnosis.diagnosed_run import DiagnosedRun
from aoti_debug.runs.diagnosis.findings import Finding
from aoti_debug.runs.run import runner
from aoti_debug.runs.run.options import RunOptions
from aoti_debug.runs.run.timed_pairs import PAIRS
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.runs.show.finding import all_finding_lines
from aoti_debug.triage import session
from aoti_debug.triage.investigation.triage_runs import TriageOptions
from aoti_debug.triage.results import triage_directory
from aoti_debug.triage.results.triage_directory import TriageDir
from aoti_debug.views.report import report as reports


@dataclass(frozen=True)
class TriagedModel:
    """The triage of a model. `print` shows its finding, and a notebook its report.

    Attributes:
        directory: its package, runs and repro.
        report: an HTML page.
    """

    directory: TriageDir
    report: Path

    @property
    def finding(self) -> Finding:
        """The fault and its evidence; `finding.kind.is_fault` is False where nothing is wrong."""
        return self.directory.finding

    @property
    def repro(self) -> Path | None:
        """The folder that replays the guilty launch alone; None where there is none."""
        return self.directory.repro

    def __str__(self) -> str:
        return "\n".join(all_finding_lines(self.finding, finding_text.WIDTH, str(self.report)))

    def _repr_html_(self) -> str:
        return finding_text.framed(reports.html(reports.of_triage(self.directory)))


def triage(
    model: Any,
    *inputs: Any,
    guards: bool = False,
    imports: Sequence[str] = (),
    inductor_configs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    out: str | Path | None = None,
    trusted: bool = False,
    **keywords: Any,
) -> TriagedModel:
    """Finds out why a model crashes, hangs, or computes NaN or wrong values.

        found = aoti_debug.triage(model, x)
        print(found)

    It is exported, built and run several times, each time in a process of its own; then the guilty launch is replayed
    alone. The program and the inputs are kept in `aoti-debug/compiled`. After nine minutes it ends with what was found
    so far, as `aoti-debug triage` does.

    Args:
        model: a `torch.nn.Module`, which is not changed, an `ExportedProgram`, or the path of a `.pt2` file: an
            exported program, a compiled package or an instrumented one. Or what `record` returned: the call that failed
            in the block is looked into, with its inputs, or else the last one of each model, until one shows a fault.
        inputs, keywords: of its call; a program and an instrumented package have example inputs.
        guards: also look for out-of-bounds writes and uninitialised reads.
        imports: modules of Python that register the model's custom operators; its processes do not know what this one
            has registered.
        inductor_configs: settings of torch._inductor.config.
        dynamic_shapes: of a module, as `torch.export.export` takes them.
        out: where the directory of the triage is made; None for `aoti-debug/triages`.
        trusted: also execute the code of a file that was not made on this account.

    Raises:
        UsageError, ArtifactError, ToolchainError, TargetError: an argument is wrong, or the model could not be
            exported, built or started.
    """
    configs = settings_of(model, inductor_configs)
    if isinstance(model, RecordedBlock):
        files = _call_of(model)
    else:
        files = model_files.written(GivenModel(model, Inputs(inputs, keywords), dynamic_shapes, configs))
    options = TriageOptions(
        model=files.model,
        inputs=files.inputs,
        guards=guards,
        out=ResultKind.TRIAGES.place() if out is None else Path(out),
        inductor_configs=configs,
        user_code=UserCode(tuple(imports), (), trusted),
    )
    command = files.words("triage")
    with sharing_search_path(files.model.parent), sharing_torch_settings():
        if isinstance(model, RecordedBlock) and model.call is not None:
            finished = triage_failed_call(model.call, model.verdict, options, command=command)
        else:
            finished = session.triage(options, command=command)
        return TriagedModel(finished, reports.write_triage(finished))


def _call_of(block: RecordedBlock) -> ModelFiles:
    """The package and the inputs of the call of a block that is looked into.

    Raises:
        UsageError: there is none.
    """
    if block.call is None:
        raise UsageError(
            "no call of the block is known to have failed" if block.runs else "nothing was recorded in the block",
            hint="record(keep_inputs=True) keeps the inputs of its last call as well"
            if block.runs
            else "print it to see why",
        )
    return ModelFiles(block.call.package, block.call.inputs)


@dataclass(frozen=True)
class ComparedModel:
    """The comparison of a model. `print` shows its table, and a notebook its page."""

    comparison: Comparison

    @property
    def run(self) -> RunDir:
        """The run whose launches were compared, with their tensors."""
        return self.comparison.run

    @property
    def is_wrong(self) -> bool:
        """True if a launch, a state or an output is wrong or not what eager has, or the run did not end well."""
        return exit_code(self.comparison) == EXIT_FINDING

    def __str__(self) -> str:
        return "\n".join(report_lines(self.comparison, finding_text.TABLE_WIDTH))

    def _repr_html_(self) -> str:
        return finding_text.framed(reports.html(reports.of_comparison(self.comparison)))


def compare(
    model: Any,
    *inputs: Any,
    filters: Sequence[str] = (),
    imports: Sequence[str] = (),
    inductor_configs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    out: str | Path | None = None,
    trusted: bool = False,
    **keywords: Any,
) -> ComparedModel:
    """Compares every launch of a model with what its program says, and its outputs with eager's.

        compared = aoti_debug.compare(model, x)
        print(compared)

    The model is run once, in a process of its own, with all tensors saved.

    Args:
        model: a `torch.nn.Module`, which is not changed, an `ExportedProgram`, or a path: of a `.pt2` file or of a run
            directory.
        inputs, keywords: of its call; a program and an instrumented package have example inputs.
        filters: patterns of kernel names; "!PATTERN" excludes. Empty: every launch.
        imports: modules of Python that register the model's custom operators; its processes do not know what this one
            has registered.
        inductor_configs: settings of torch._inductor.config.
        dynamic_shapes: of a module, as `torch.export.export` takes them.
        out: where the directory of the comparison is made; None for `aoti-debug/compares`.
        trusted: also execute the code of a file that was not made on this account.

    Raises:
        UsageError, ArtifactError, ToolchainError, TargetError: an argument is wrong, or the model could not be
            exported, built or started.
        RunDirError: the run cannot be read, or cannot be repeated.
    """
    configs = settings_of(model, inductor_configs)
    files = model_files.written(GivenModel(model, Inputs(inputs, keywords), dynamic_shapes, configs))
    options = CompareOptions(
        model=files.model,
        inputs=files.inputs,
        filters=SiteFilter(tuple(filters)),
        out=ResultKind.COMPARES.place() if out is None else Path(out),
        inductor_configs=configs,
        user_code=UserCode(tuple(imports), (), trusted),
    )
    with sharing_search_path(), sharing_torch_settings():
        return ComparedModel(compare_launches(options))


@dataclass(frozen=True)
class EqualModel:
    """The changes that make a model equal to eager. `print` shows them as `aoti-debug equal` does."""

    search: EqualSearch

    @property
    def lines(self) -> tuple[str, ...]:
        """The changes that are needed, a line to paste each; () if it is equal already, or cannot be made so."""
        return self.search.lines

    def __str__(self) -> str:
        return "\n".join(equal_lines(self.search))


def equal(
    model: Any,
    *inputs: Any,
    max_builds: int = MAX_BUILDS,
    pairs: int = PAIRS,
    imports: Sequence[str] = (),
    inductor_configs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    out: str | Path | None = None,
    trusted: bool = False,
    **keywords: Any,
) -> EqualModel:
    """Finds the smallest set of changes with which a model is equal to eager, bit for bit.

        found = aoti_debug.equal(model, x)
        print(found)

    It is built with one set of changes after the other, each time in a process of its own. A call that was interrupted,
    or has used up its builds or its time, goes on when it is made again with the path of a file.

    Args:
        model: a `torch.nn.Module`, which is not changed, an `ExportedProgram`, or the path of one.
        inputs, keywords: of its call; a program has example inputs.
        max_builds: the largest number of builds.
        pairs: how many calls of each two packages are timed, 0 for none.
        imports: modules of Python that register the model's custom operators; its processes do not know what this one
            has registered.
        inductor_configs: settings of torch._inductor.config.
        dynamic_shapes: of a module, as `torch.export.export` takes them.
        out: where the directory of the search is made; None for `aoti-debug/bisects`.
        trusted: also execute the code of a file that was not made on this account.

    Raises:
        UsageError, ArtifactError, ToolchainError, TargetError: an argument is wrong, or the model could not be
            exported, built or started.
    """
    configs = settings_of(model, inductor_configs)
    files = model_files.written(GivenModel(model, Inputs(inputs, keywords), dynamic_shapes, configs))
    options = EqualOptions(
        program=files.model,
        inputs=files.inputs,
        inductor_configs=configs,
        max_builds=max_builds,
        pairs=pairs,
        out=ResultKind.BISECTS.place() if out is None else Path(out),
        user_code=UserCode(tuple(imports), (), trusted),
    )
    with sharing_search_path(), sharing_torch_settings():
        return EqualModel(find_equal(options))


def settings_of(model: Any, inductor_configs: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """The settings given; of a model in memory also those that this process has assigned."""
    import torch

    in_memory = isinstance(model, torch.nn.Module | torch.export.ExportedProgram)
    return with_assigned(inductor_configs) if in_memory else inductor_configs or {}


def repro(
    source: Any = None,
    *inputs: Any,
    launch: str = "",
    imports: Sequence[str] = (),
    inductor_configs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    out: str | Path | None = None,
    trusted: bool = False,
    **keywords: Any,
) -> Repro:
    """Writes a folder that replays one launch alone, from its saved tensors.

        written = aoti_debug.repro(model, x, launch="triton_red_fused_1")
        print(written)

    A model is run for it at level 1, in a process of its own. A run that saved no tensors of the launch is repeated.

    Args:
        source: a run (what `open_run` returns, its directory or its name), what `record`, `debug` or `triage` returned,
            or a model: a `torch.nn.Module`, an `ExportedProgram` or the path of a `.pt2` file. None: the newest run or
            triage.
        inputs, keywords: of the call of a model.
        launch: what `aoti-debug show` prints of it: its number, its kernel, a pattern, a line of the model; "" for the
            one that the fault or the finding is laid to.
        imports: modules of Python that register the custom operators of a model.
        inductor_configs: for a model, settings of torch._inductor.config.
        dynamic_shapes: of a module, as `torch.export.export` takes them.
        out: what to write; None for a folder in `aoti-debug/repros`.
        trusted: also execute the code of a file or a run that was not made on this account.

    Raises:
        UsageError: an argument is wrong, nothing was recorded, no launch or several kernels are named, the launch
            cannot be replayed, or something is there already.
        ArtifactError, ToolchainError, TargetError: the model could not be built or started.
        RunDirError: the run cannot be read, or holds too little of the launch and cannot be repeated.
    """
    call = GivenModel(source, Inputs(inputs, keywords), dynamic_shapes, settings_of(source, inductor_configs))
    run: DiagnosedRun | str | Path | None
    if source is None or (isinstance(source, str | Path) and not _is_model(Path(source))):
        run, chosen = source, launch or triage_directory.launch_of_finding(source)
    elif isinstance(source, TriagedModel):
        where = source.finding.where
        run, chosen = source.directory.run, launch or ("" if where is None else where.launch)
        if run is None:
            raise UsageError("this triage has no run: the model was never called", hint="print it to see why")
    else:
        recorded = _run_of(source)
        run = DiagnosedRun(_run(call, UserCode(tuple(imports), (), trusted)) if recorded is None else recorded)
        chosen = launch
    return write_repro(ReproOptions(chosen, run, output=None if out is None else Path(out), trusted=trusted))


def _is_model(path: Path) -> bool:
    return path.suffix == ".pt2" and path.is_file()


def _run_of(source: Any) -> RunDir | None:
    """The run that an object stands for; None for a model.

    Raises:
        UsageError: nothing was recorded in a block.
    """
    if isinstance(source, RecordedBlock):
        if source.run is None:
            raise UsageError("nothing was recorded in the block", hint="print it to see why")
        return source.run
    if isinstance(source, DebuggedModel):
        return source.run
    return source if isinstance(source, RunDir) else None


def _run(call: GivenModel, user_code: UserCode) -> RunDir:
    """Runs a model once with all of its tensors saved."""
    program = None if call.is_file else call.exported()
    folder = model_files.new_folder()
    if program is not None:
        call = call.with_example_inputs(program)
        package = model_files.write_package(call, program, folder)
    else:
        building = BuildOptions(
            program=call.model,
            output=folder.path / PACKAGE,
            inductor_configs=call.inductor_configs,
            user_code=user_code,
        )
        package = builder.instrumented(Path(call.model), building, Steps(), has_inputs=call.has_inputs)
    inputs = model_files.write_inputs(call, folder.path)
    options = RunOptions(package, level=1, filters=(), inputs=inputs, out=folder.path, user_code=user_code)
    with sharing_search_path(), sharing_torch_settings():
        return runner.run(options).run
