"""Explains a non-finite element of a matrix product by the row and the column that it was computed from."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from aoti_debug.base import wording
from aoti_debug.package.argument_values import Number, unravel
from aoti_debug.runs.diagnosis.special_values import Special
from aoti_debug.runs.kernel_source.placement import LaunchTensors
from aoti_debug.runs.rundir.launch import Argument, Launch
from aoti_debug.triage.nonfinite.causes import overflow_text

if TYPE_CHECKING:
    from torch import Tensor

_PRODUCTS = {  # operator: (left, right)
    "mm": ("self", "mat2"),
    "addmm": ("mat1", "mat2"),
    "bmm": ("self", "mat2"),
    "baddbmm": ("batch1", "batch2"),
    "mv": ("self", "vec"),
    "addmv": ("mat", "vec"),
    "_scaled_mm": ("self", "mat2"),
}


def factor(
    launch: Launch, argument: Argument, name: str, tensor: Tensor, shape: tuple[int, ...], element: int
) -> tuple[str, Tensor] | None:
    """(words, values) of the row or column of an operand, called `name`, that goes into an element: "row 3 of x".

    None if the launch is no matrix product or the argument none of its factors.
    """
    names = _PRODUCTS.get(_operator_name(launch))
    if names is None or argument.spec.param not in names:
        return None
    at = unravel(element, shape)
    if argument.spec.param == names[0]:
        return f"row {at[len(tensor.shape) - 2]} of {name}", _left(tensor, at)
    if tensor.dim() == 1:
        return name, tensor
    return f"column {at[-1]} of {name}", _right(tensor, at)


def cause(launch: Launch, argument: Argument, arguments: LaunchTensors, element: int, special: Special) -> str:
    """The reason why an element of a matrix product is not finite, as a sentence; "" if its numbers prove none."""
    names = _PRODUCTS.get(_operator_name(launch))
    result = next((t for t in arguments.after.values()), None)
    if names is None or result is None or any(name not in arguments.before for name in names):
        return ""
    at = unravel(element, tuple(result.shape))
    left = _left(arguments.before[names[0]].double(), at)
    right = arguments.before[names[1]].double()
    right = right if right.dim() == 1 else _right(right, at)
    if left.shape != right.shape:
        return ""
    products = left * right
    undefined = products.isnan() & ~left.isnan() & ~right.isnan()
    if special is Special.NAN and bool(undefined.any()):
        k = int(undefined.nonzero()[0])
        return f"term {k} of the sum of products is {_spell(float(left[k]))} * {_spell(float(right[k]))}"
    if special is Special.NAN and bool((products == math.inf).any()) and bool((products == -math.inf).any()):
        return "the sum of products adds +Inf and -Inf"
    exact = float(products.sum()) * _scalar(launch, "alpha") + _bias(launch, arguments, names, result, at)
    dtype = argument.layout.dtype if argument.layout else ""
    if special is not Special.NAN and math.isfinite(exact) and _overflows(exact, dtype):
        return overflow_text(
            f"the sum of {wording.pluralize(products.numel(), 'product')} is {exact:.6g} in float64", dtype
        )
    return ""


def _overflows(exact: float, dtype: str) -> bool:
    import torch

    return bool(torch.tensor(exact, dtype=torch.float64).to(getattr(torch, dtype)).isinf())


def _bias(
    launch: Launch, arguments: LaunchTensors, names: tuple[str, str], result: Tensor, at: tuple[int, ...]
) -> float:
    bias = arguments.before.get("self") if "self" not in names else None
    if bias is None:
        return 0.0
    return float(bias.broadcast_to(result.shape)[at]) * _scalar(launch, "beta")


def _scalar(launch: Launch, name: str) -> float:
    argument = launch.argument(name)
    return float(argument.after.value) if argument is not None and isinstance(argument.after, Number) else 1.0


def _operator_name(launch: Launch) -> str:
    match = re.match(r"aten\.(\w+)", launch.site.op)
    return match.group(1) if match else ""


def _left(tensor: Tensor, at: tuple[int, ...]) -> Tensor:
    return tensor[at[: tensor.dim() - 1]]


def _right(tensor: Tensor, at: tuple[int, ...]) -> Tensor:
    column = (*at[: tensor.dim() - 2], slice(None), at[-1])
    return tensor[column]


def _spell(value: float) -> str:
    return f"{value:.6g}" if math.isfinite(value) else "+Inf" if value > 0 else "-Inf"
