"""`aoti_debug.inspect`: runs a package in this process and calls a function on the tensors of its launches."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from aoti_debug.base.abi import Variable
from aoti_debug.base.machine import current_rank as machine_ranks
from aoti_debug.base.machine.processes.changed_environment import changed_environment
from aoti_debug.package.pt2 import archive
from aoti_debug.runs.run.inspector import InspectedLaunch, Inspector, InspectorFunction
from aoti_debug.runs.run.load_model import load


@contextlib.contextmanager
def inspect(
    package: str | Path,
    function: InspectorFunction | None = None,
    *,
    filters: Sequence[str] = (),
    phase: str | None = None,
    tag: str = "",
    ranks: Collection[int] | None = None,
) -> Iterator[Callable[..., Any]]:
    """Loads an instrumented package and yields it as a callable that calls `function` on the tensors of its launches.

        with aoti_debug.inspect("model.instrumented.pt2", f, filters=("triton_*",)) as model:
            model(x)

    Args:
        function: called as `function(tensor, launch)` with the tensor itself, on its device, without a copy, and an
            `aoti_debug.runs.run.inspector.InspectedLaunch`; what a launch reads before it, what it writes after it.
            None: the functions of the inspectors of this process (`aoti_debug.inspector`), found by their tags in the
            model.
        filters: patterns of kernel names; "!PATTERN" excludes. Empty: every launch.
        phase: "before", "after" or "both", instead.
        tag: a pattern: only tensors of inspectors in the model that have such a tag.
        ranks: of torch.distributed, or of the variable RANK, on which the function is called; None for all.

    Raises:
        ArtifactError: the package cannot be read.
        InspectorError: when the model is called: the function raised an exception, or has changed a tensor.
    """
    artifact = archive.inspect(package)
    manifest = artifact.manifest()
    inspector = (
        Inspector(_call_own, manifest, "in the model", tag or "*")
        if function is None
        else Inspector(function, manifest, getattr(function, "__qualname__", repr(function)), tag)
    )
    variables = {
        Variable.INSPECT: inspector.variable if machine_ranks.selected(ranks) else "",
        Variable.FILTER: ",".join(filters),
        Variable.PHASE: phase or "",
        Variable.LEVEL: os.environ.get(Variable.LEVEL.value) or "3",
        Variable.PRINT: os.environ.get(Variable.PRINT.value) or "none",
    }
    with changed_environment({variable.value: value for variable, value in variables.items()}):
        model = load(artifact, manifest.model, manifest.device)

        def call(*args: Any, **kwargs: Any) -> Any:
            import torch

            try:
                with torch.no_grad():
                    return model(*args, **kwargs)
            finally:
                inspector.check()

        yield call


def _call_own(tensor: Any, launch: InspectedLaunch) -> None:
    from aoti_debug.package.printing import inspectors

    if launch.place is not None:
        inspectors.call_registered(launch.place.tag, launch.place.phase, launch.place.index, tensor)
