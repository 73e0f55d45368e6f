"""`aoti_debug.repro`: a script that replays one launch alone, of a run or of a model that is run for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from aoti_debug.app.python import model_files
from aoti_debug.app.python.debug import DebuggedModel
from aoti_debug.app.python.model_files import GivenModel
from aoti_debug.app.python.procedures import TriagedModel
from aoti_debug.app.python.record import RecordedBlock
from aoti_debug.app.torch_compile.cached_build import PACKAGE
from aoti_debug.base.errors import UsageError
from aoti_debug.base.machine.processes.child_process import sharing_search_path
from aoti_debug.base.machine.steps import Steps
from aoti_debug.base.machine.user_code import UserCode
from aoti_debug.instrument.builder import build as builder
from aoti_debug.instrument.builder.options import BuildOptions
from aoti_debug.package.inputs.input_files import Inputs
from aoti_debug.repro.repro import Repro, ReproOptions, write_repro
from aoti_debug.runs.diagnosis.diagnosed_run import DiagnosedRun
from aoti_debug.runs.run import runner
from aoti_debug.runs.run.options import RunOptions
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.triage.results import triage_directory


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
    call = GivenModel(source, Inputs(inputs, keywords), dynamic_shapes, inductor_configs or {})
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
    with sharing_search_path():
        return runner.run(options).run
