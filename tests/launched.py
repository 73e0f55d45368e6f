"""What a run launched, to be compared with what another run of the same model launched."""

from __future__ import annotations

from typing import Any

from aoti_debug.package.argument_values import Tensor
from aoti_debug.runs.rundir.launch import Argument
from aoti_debug.runs.rundir.run_directory import RunDir


def launched(run: RunDir) -> list[tuple[Any, ...]]:
    """Every launch: its kernel, its kind, and of each argument name, role and value; of tensors dtype and layout."""
    return [
        (launch.id, launch.kernel, launch.site.kind.value, [_described(argument) for argument in launch.args])
        for launch in run.launches
    ]


def _described(argument: Argument) -> tuple[object, ...]:
    value = argument.tensor or argument.after
    if isinstance(value, Tensor):
        found = value.layout
        layout = (found.dtype, found.device, found.shape, found.strides, found.storage_offset)
        return argument.name, argument.role.name, layout
    return argument.name, argument.role.name, value.value
