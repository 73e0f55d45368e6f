"""`aoti_debug.debug`: exports a model, builds its package, runs it and returns the outputs and the run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aoti_debug.app.python import finding_text, model_files
from aoti_debug.app.python.model_files import GivenModel
from aoti_debug.app.torch_compile.cached_build import PROGRAM
from aoti_debug.base.abi import Variable
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.processes.child_process import changed_environment, sharing_torch_settings
from aoti_debug.package import recording_settings
from aoti_debug.package.inputs.input_files import Inputs
from aoti_debug.package.pt2 import archive
from aoti_debug.runs.diagnosis.findings import Finding
from aoti_debug.runs.diagnosis.verdict_text import finding_of
from aoti_debug.runs.run import load_model, runner
from aoti_debug.runs.run.options import RunOptions
from aoti_debug.runs.run.runner import RunResult
from aoti_debug.runs.rundir.run_json import ExitKind
from aoti_debug.views.report import report

if TYPE_CHECKING:
    from torch.export import ExportedProgram

    from aoti_debug.runs.diagnosis.verdict import Verdict
    from aoti_debug.runs.rundir.run_directory import RunDir


@dataclass(frozen=True)
class DebuggedModel:
    """The outputs and the run of one call of a model.

    A notebook shows it as the report of the run, `print` as its finding.

    Attributes:
        outputs: of the package, as the model returns them; None where the run has a fault.
        run: at the level that was asked for.
        verdict: the guilty launch; None for a run without a fault.
        package: the instrumented package.
        program: the exported program, which `aoti-debug triage` and `aoti-debug compare` take; None if torch cannot
            save it. They take the package as well.
    """

    outputs: Any
    run: RunDir
    verdict: Verdict | None
    package: Path
    program: Path | None

    def __str__(self) -> str:
        return "\n".join(finding_text.lines(self.finding, (self.run,)))

    @cached_property
    def finding(self) -> Finding:
        """The guilty launch, outputs that are not finite, or neither: its `kind`, `what`, `where`, `evidence`, `next`.

        Raises:
            RunDirError: a saved tensor is missing or damaged.
        """
        return finding_of(self.run, self.verdict)

    def _repr_html_(self) -> str:
        return finding_text.framed(report.html(report.find(self.run.path)))


def debug(
    model: Any,
    *inputs: Any,
    level: int | str = 1,
    filters: Sequence[str] = (),
    inductor_configs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    out: str | Path | None = None,
    **keywords: Any,
) -> DebuggedModel:
    """Exports a model, builds its package, runs it once and returns the outputs and the run.

        result = aoti_debug.debug(model, x)
        result.outputs, result.verdict, result.run

    The run is a process of its own: a fault there leaves this one alone. A package that ran without one is then called
    in this process, for its outputs.

    Args:
        model: a `torch.nn.Module`, which is not changed, or an `ExportedProgram`.
        inputs, keywords: of its call; a program has example inputs.
        level: 0 off, 1 save, 2 print values, 3 kernel names, "hash" hashes only.
        filters: patterns of kernel names; "!PATTERN" excludes. Empty: every launch.
        inductor_configs: settings of torch._inductor.config.
        dynamic_shapes: as `torch.export.export` takes them.
        out: where the directory of the program, the package and the run is made; None for `aoti-debug/compiled`.

    Raises:
        UsageError: an argument is wrong, the model cannot be exported, or a file cannot be written.
        ToolchainError: torch or the compiler failed.
        TargetError: the model never started.
    """
    chosen = recording_settings.level_number(level)
    given = GivenModel(model, Inputs(inputs, keywords), dynamic_shapes, inductor_configs or {})
    exported = given.exported()
    call = given.with_example_inputs(exported)
    folder = model_files.new_folder(None if out is None else Path(out))
    package = model_files.write_package(call, exported, folder)
    inputs_file = model_files.write_inputs(call, folder.path)
    with sharing_torch_settings():
        result = runner.run(
            RunOptions(package, level=chosen, inputs=inputs_file, filters=tuple(filters), out=folder.path)
        )
    outputs = _outputs(package, exported, call.inputs) if _is_clean(result) else None
    program = folder.path / PROGRAM
    return DebuggedModel(outputs, result.run, result.verdict, package, program if program.is_file() else None)


def _is_clean(result: RunResult) -> bool:
    return result.verdict is None and result.run.info.exit.kind is ExitKind.CLEAN


def _outputs(package: Path, program: ExportedProgram, inputs: Inputs) -> Any:
    """The outputs of the package; numbers, which it returns as tensors, are numbers again."""
    import torch
    from torch.export.graph_signature import ConstantArgument, OutputKind, SymIntArgument
    from torch.utils import _pytree as pytree

    artifact = archive.inspect(package)
    manifest = artifact.manifest()
    with changed_environment({Variable.LEVEL.value: "0"}), torch.no_grad():
        outputs = load_model.load(artifact, manifest.model, manifest.device)(*inputs.args, **inputs.kwargs)
    leaves, structure = pytree.tree_flatten(outputs)
    specs = [spec.arg for spec in program.graph_signature.output_specs if spec.kind is OutputKind.USER_OUTPUT]
    for number, argument in enumerate(specs):
        if isinstance(argument, ConstantArgument):
            leaves[number] = argument.value
        elif isinstance(argument, SymIntArgument):
            leaves[number] = int(leaves[number])
    return pytree.tree_unflatten(leaves, structure)
