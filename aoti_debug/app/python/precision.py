"""`aoti_debug.precision`: modules of a model in memory, of a file or a run, rounded to a narrower dtype."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from aoti_debug.app.python import finding_text, model_files
from aoti_debug.app.python.model_files import GivenModel
from aoti_debug.app.python.procedures import settings_of
from aoti_debug.base.errors import UsageError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.files.results_home import ResultKind
from aoti_debug.base.machine.processes.child_process import sharing_search_path, sharing_torch_settings
from aoti_debug.base.machine.user_code import UserCode
from aoti_debug.compare.modules import PartedBy
from aoti_debug.compare.what_if.precision import TOLERANCE, PrecisionOptions, RoundedModel
from aoti_debug.compare.what_if.precision import precision as round_modules
from aoti_debug.compare.what_if.precision_text import precision_lines
from aoti_debug.package.inputs.input_files import Inputs


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
