"""The operand values that a non-finite element was computed from: single values, or the row that was reduced."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from aoti_debug.base import wording
from aoti_debug.base.lazy.dataclass import dataclass
from aoti_debug.package.recording.values import unravel
from aoti_debug.runs.diagnosis.dataflow import model_name
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.runs.rundir.timeline import Argument, Launch
from aoti_debug.triage.kernel_source import result_slices
from aoti_debug.triage.nonfinite import matrix_products

if TYPE_CHECKING:
    from torch import Tensor

_MOST = 6  # operands in one sentence


@dataclass(frozen=True)
class OperandValues:
    """The values that an element was computed from, as texts; at most 6 of each.

    Attributes:
        read: "buf0 = 0", "row 3 of x (16 elements, 1 +Inf)": what the kernel's arithmetic or the operator reads.
        guessed: the same of operands whose element is taken to be at the same coordinates.
    """

    read: tuple[str, ...]
    guessed: tuple[str, ...]


def operand_values(
    run: RunDir,
    launch: Launch,
    argument: Argument,
    before: Mapping[str, Tensor],
    shape: tuple[int, ...],
    element: int,
    read: Mapping[str, Tensor],
) -> OperandValues:
    """The operand values of an element of a launch's result.

    Args:
        before: the tensors before the launch, by parameter.
        shape: the shape of the result.
        element: the row-major index in the result.
        read: the values known to have been read for the element, by parameter: 0-d, or a row.
    """
    result_slice = result_slices.launch_slices(launch, run.manifest).get(argument.spec.param)
    known: dict[str, None] = {}
    guessed: dict[str, None] = {}
    for other in launch.args:
        tensor = before.get(other.spec.param or other.name)
        if tensor is None or (result_slice is not None and other.spec.param not in result_slice.sources):
            continue
        name = model_name(run.manifest, other)
        values = read.get(other.spec.param)
        factor = matrix_products.factor(launch, other, name, tensor, shape, element)
        if values is not None:
            known[f"a row of {name} {row(values)}" if values.dim() else f"{name} = {spell(float(values))}"] = None
        elif factor is not None:
            known[f"{factor[0]} {row(factor[1])}"] = None
        elif operand := _operand(name, tensor, shape, element):
            guessed[operand] = None
    return OperandValues(tuple(known)[:_MOST], tuple(guessed)[:_MOST])


def _operand(name: str, tensor: Tensor, shape: tuple[int, ...], element: int) -> str:
    at = unravel(element, shape)
    value = _corresponding_value(tensor, shape, at)
    if value is not None:
        return f"{name} = {spell(value)}"
    if tensor.dim() == 0 or tensor.numel() == 0:
        return ""
    reduced = _reduced_values(tensor, shape, at)
    return "" if reduced is None else f"a row of {name} {row(reduced)}"


def _corresponding_value(tensor: Tensor, shape: tuple[int, ...], at: tuple[int, ...]) -> float | None:
    """The value at the same coordinates; None unless the tensor has the result's shape or is broadcast to it."""
    if tensor.dim() > len(shape):
        return None
    own = at[len(at) - tensor.dim() :]
    sizes = shape[len(shape) - tensor.dim() :]
    if any(mine not in (1, size) for mine, size in zip(tensor.shape, sizes, strict=True)):
        return None
    return float(tensor[tuple(0 if mine == 1 else i for mine, i in zip(tensor.shape, own, strict=True))])


def _reduced_values(tensor: Tensor, shape: tuple[int, ...], at: tuple[int, ...]) -> Tensor | None:
    """The values that were reduced to the element; None unless the result's shape is the tensor's without a dimension,
    or with 1 for it."""
    sizes = tuple(tensor.shape)
    if len(sizes) == len(shape) and all(b in (1, a) for a, b in zip(sizes, shape, strict=True)):
        return tensor[tuple(i if b == a else slice(None) for a, b, i in zip(sizes, shape, at, strict=True))].reshape(-1)
    for axis in reversed(range(len(sizes))):
        if sizes[:axis] + sizes[axis + 1 :] == shape:
            row_at = (*at[:axis], slice(None), *at[axis:])
            return tensor[row_at]
    return tensor.reshape(-1) if math.prod(shape) == 1 else None


def row(values: Tensor) -> str:
    """ "(16 elements, 1 +Inf, 3 zeros, finite from -2 to 5)"."""
    if str(values.dtype) == "torch.bool":
        return f"({wording.count(values.numel(), 'element')}, {int(values.sum())} true)"
    flat = values.reshape(-1).double()
    if flat.numel() and bool((flat == -math.inf).all()):
        return f"({wording.count(flat.numel(), 'element')}, all -Inf)"
    counts = {
        "NaN": int(flat.isnan().sum()),
        "+Inf": int((flat == math.inf).sum()),
        "-Inf": int((flat == -math.inf).sum()),
        "zero": int((flat == 0).sum()),
    }
    parts = [
        wording.count(count, name) if name == "zero" else f"{count} {name}" for name, count in counts.items() if count
    ]
    finite = flat[flat.isfinite()]
    if finite.numel():
        parts.append(f"finite from {spell(float(finite.min()))} to {spell(float(finite.max()))}")
    return f"({', '.join([wording.count(flat.numel(), 'element'), *parts])})"


def spell(value: float) -> str:
    """ "1.5", "NaN", "-Inf"."""
    if math.isnan(value):
        return "NaN"
    return f"{value:.6g}" if math.isfinite(value) else "+Inf" if value > 0 else "-Inf"
