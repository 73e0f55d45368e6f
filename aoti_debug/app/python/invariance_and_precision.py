"""`aoti_debug.invariance` and `aoti_debug.precision`: how numbers change with the batch, or with fewer bits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from aoti_debug.app.python import finding_text, model_files
from aoti_debug.app.python.model_files import GivenModel
from aoti_debug.app.python.procedures import settings_of
from aoti_debug.base.errors import EXIT_CLEAN, UsageError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.files.results_home import ResultKind
from aoti_debug.base.machine.processes.child_process import sharing_search_path, sharing_torch_settings
from aoti_debug.base.machine.user_code import UserCode
from aoti_debug.compare.invariance.fixed_batch import FixedBatch, FixedBatchOptions, fixed_batch, fixed_lines
from aoti_debug.compare.invariance.invariance import SIZES, InvarianceOptions
from aoti_debug.compare.invariance.invariance import invariance as compare_samples
from aoti_debug.compare.invariance.text import invariance_lines
from aoti_debug.compare.invariance.varied_inputs import BATCH, Others
from aoti_debug.compare.invariance.varying_launches import Invariance
from aoti_debug.compare.modules import PartedBy
from aoti_debug.compare.what_if.precision import TOLERANCE, PrecisionOptions, RoundedModel
from aoti_debug.compare.what_if.precision import precision as round_modules
from aoti_debug.compare.what_if.precision_text import precision_lines
from aoti_debug.package.inputs.input_files import Inputs


@dataclass(frozen=True)
class SampleOptions:
    """The sample that `invariance` looks at, and what lies beside it.

    Attributes:
        dim: the size that varies, as for `aoti-debug invariance`: "batch", "length", "ids.1".
        rows: of the inputs, one or several; None for the first one, or along another dimension than the first of an
            input for as many as the smallest size.
        others: beside the sample, "given" rows of the inputs, elements "drawn" from them, "zeros", "masked": drawn
            elements, with zeros in inputs that are masks, or "small": drawn ones, floating ones divided by 1024.
    """

    dim: str = BATCH
    rows: int | range | None = None
    others: str = Others.GIVEN.value


@dataclass(frozen=True)
class SampleInBatches:
    """A sample alone and among others. `print` shows the launches in which its bits begin to differ."""

    invariance: Invariance

    @property
    def is_invariant(self) -> bool:
        """True if every launch and every output is known to have the same bits for the sample in every run."""
        return not self.invariance.is_finding and self.invariance.is_complete

    def __str__(self) -> str:
        return "\n".join(invariance_lines(self.invariance))


def invariance(
    model: Any,
    *inputs: Any,
    sizes: Sequence[int] = SIZES,
    sample: SampleOptions = SampleOptions(),  # noqa: B008  # it is frozen
    imports: Sequence[str] = (),
    inductor_configs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    out: str | Path | None = None,
    trusted: bool = False,
    **keywords: Any,
) -> SampleInBatches:
    """Compares a sample alone with the same sample in larger batches, bit for bit, launch by launch.

        found = aoti_debug.invariance(model, x)
        print(found)

    Args:
        model: a `torch.nn.Module`, which is not changed, an `ExportedProgram`, or the path of a `.pt2` file.
        inputs, keywords: of its call; a program and an instrumented package have example inputs.
        sizes: the values of the size that varies; the sample is alone at the smallest one.
        sample: which rows of the inputs it is, along which dimension, and what lies beside them.
        imports: modules of Python that register the model's custom operators.
        inductor_configs: settings of torch._inductor.config.
        dynamic_shapes: of a module, as `torch.export.export` takes them; by default the first size of every tensor
            that is as long as the first one there is one batch size.
        out: where the directory of the runs is made; None for `aoti-debug/diffs`.
        trusted: also execute the code of a file that was not made on this account.

    Raises:
        UsageError, ArtifactError, ToolchainError, TargetError: an argument is wrong, or the model could not be
            exported, built or started.
        ModelFaultError: the model crashes, hangs or raises an exception.
        RunDirError: a run cannot be read.
    """
    if sample.others not in (chosen := [one.value for one in Others]):
        raise UsageError(f"others={sample.others!r} is not known", hint=f"it is one of {', '.join(chosen)}")
    configs = settings_of(model, inductor_configs)
    call = GivenModel(model, Inputs(inputs, keywords), dynamic_shapes, configs)
    files = model_files.written(call if dynamic_shapes else model_files.batched(call, sizes))
    options = InvarianceOptions(
        model=files.model,
        inputs=files.inputs,
        dim=sample.dim,
        sizes=tuple(sizes),
        sample=range(sample.rows, sample.rows + 1) if isinstance(sample.rows, int) else sample.rows,
        others=Others(sample.others),
        inductor_configs=configs,
        out=ResultKind.DIFFS.place() if out is None else Path(out),
        user_code=UserCode(tuple(imports), (), trusted),
    )
    with sharing_search_path(), sharing_torch_settings():
        return SampleInBatches(compare_samples(options))


@dataclass(frozen=True)
class SampleInFixedBatches:
    """A sample in packages whose batch is fixed. `print` shows the outputs that have other bits for it."""

    found: FixedBatch

    @property
    def is_same(self) -> bool:
        """True if every output is known to have the same bits for the sample in every run."""
        return self.found.exit_code == EXIT_CLEAN

    def __str__(self) -> str:
        return "\n".join(fixed_lines(self.found))


def invariance_by_size(
    model: Any,
    *inputs: Any,
    sizes: Sequence[int] = SIZES,
    row: int = 0,
    imports: Sequence[str] = (),
    inductor_configs: Mapping[str, Any] | None = None,
    out: str | Path | None = None,
) -> SampleInFixedBatches:
    """Exports a module for each size of the batch, and compares what the packages return for a sample, bit for bit.

    It is for a module that cannot be exported with a batch that varies. Packages of several sizes are several
    compilations: outputs are compared, and no launch is named. Of the largest size, other places of the sample and
    other values beside it are run as well.

    Args:
        model: a `torch.nn.Module`, which is not changed.
        inputs: of a call; the first dimension of those as long as the first one is the batch.
        sizes: of the batch.
        row: of the inputs: the sample.
        imports: modules of Python that register the model's custom operators.
        inductor_configs: settings of torch._inductor.config.
        out: where the directory of the runs is made; None for `aoti-debug/diffs`.

    Raises:
        UsageError, ArtifactError, ToolchainError, TargetError: an argument is wrong, or the model could not be
            exported, built or started.
        ModelFaultError: the model crashes, hangs or raises an exception.
        RunDirError: an output cannot be read.
    """
    configs = settings_of(model, inductor_configs)
    files = [
        model_files.written(GivenModel(model, model_files.of_size(Inputs(inputs, {}), row, size), None, configs))
        for size in sorted(set(sizes))
    ]
    options = FixedBatchOptions(
        models=tuple(file.model for file in files),
        inputs=files[-1].inputs,
        inductor_configs=configs,
        out=ResultKind.DIFFS.place() if out is None else Path(out),
        user_code=UserCode(tuple(imports)),
    )
    with sharing_search_path(), sharing_torch_settings():
        return SampleInFixedBatches(fixed_batch(options))


@dataclass(frozen=True)
class RoundingOptions:
    """The parts that `precision` rounds alone, and the error that its proposal may make.

    Attributes:
        by: "module" or "launch".
        depth: of modules: the number of names in their paths; None for as many as there are.
        tolerance: the largest relative error of an output that the proposal may make.
    """

    by: str = PartedBy.MODULE.value
    depth: int | None = None
    tolerance: float = TOLERANCE


@dataclass(frozen=True)
class PreciseModel:
    """The effect of a narrower dtype on a model. `print` shows its table and the proposal."""

    rounded: RoundedModel

    @property
    def kept(self) -> tuple[str, ...] | None:
        """The modules that have to stay as they are; () if all may be rounded, None if none may."""
        return None if self.rounded.proposal is None else self.rounded.proposal.kept

    def __str__(self) -> str:
        return "\n".join(precision_lines(self.rounded, finding_text.TABLE_WIDTH))


def precision(
    model: Any,
    *inputs: Any,
    to: str = "bfloat16",
    rounding: RoundingOptions = RoundingOptions(),  # noqa: B008  # it is frozen
    imports: Sequence[str] = (),
    inductor_configs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    out: str | Path | None = None,
    trusted: bool = False,
    **keywords: Any,
) -> PreciseModel:
    """Rounds each module of a model to a narrower dtype, then several at once, and finds those that have to stay.

        rounded = aoti_debug.precision(model, x, to="float8_e4m3fn")
        print(rounded)

    The model is run once for each module, each time in a process of its own.

    Args:
        model: a `torch.nn.Module`, which is not changed, an `ExportedProgram`, or a path: of a `.pt2` file or of a run
            directory.
        inputs, keywords: of its call; a program and an instrumented package have example inputs.
        to: "bfloat16", "float16", "float8_e4m3fn", "float8_e5m2" or "float32".
        rounding: which parts are rounded alone, and the error that the proposal may make.
        imports: modules of Python that register the model's custom operators; its processes do not know what this one
            has registered.
        inductor_configs: settings of torch._inductor.config.
        dynamic_shapes: of a module, as `torch.export.export` takes them.
        out: where the directory of the runs is made; None for `aoti-debug/replays`.
        trusted: also execute the code of a file that was not made on this account.

    Raises:
        UsageError, ArtifactError, ToolchainError, TargetError: an argument is wrong, or the model could not be
            exported, built or started.
        ModelFaultError: the model crashes, hangs or raises an exception.
        RunDirError: the run cannot be read, or cannot be repeated.
    """
    if rounding.by not in (parts := [one.value for one in PartedBy]):
        raise UsageError(f"by={rounding.by!r} is not known", hint=f"it is one of {', '.join(parts)}")
    configs = settings_of(model, inductor_configs)
    files = model_files.written(GivenModel(model, Inputs(inputs, keywords), dynamic_shapes, configs))
    options = PrecisionOptions(
        model=files.model,
        to=to,
        by=PartedBy(rounding.by),
        depth=rounding.depth,
        tolerance=rounding.tolerance,
        inputs=files.inputs,
        inductor_configs=configs,
        out=ResultKind.REPLAYS.place() if out is None else Path(out),
        user_code=UserCode(tuple(imports), (), trusted),
    )
    with sharing_search_path(), sharing_torch_settings():
        return PreciseModel(round_modules(options))
