"""Finds the operation of a kernel, or the row and column of a matrix product, that produced a non-finite element."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from aoti_debug.base import dtypes, wording
from aoti_debug.base.dtypes import LARGEST
from aoti_debug.base.frozen import dataclass
from aoti_debug.package.argument_values import Number, unravel
from aoti_debug.runs.diagnosis.special_values import Special
from aoti_debug.runs.kernel_source.arithmetic import KernelEvaluator, Operation, Statement
from aoti_debug.runs.kernel_source.placement import LaunchTensors, Placement, element_by_element, rows
from aoti_debug.runs.rundir.launch import Argument, Launch

if TYPE_CHECKING:
    from torch import Tensor

_TOLERANCE = {"float16": 1e-2, "bfloat16": 5e-2, "float8_e4m3fn": 0.2, "float8_e5m2": 0.3}
_SIGNS = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
_PRODUCTS = {  # operator: (left, right)
    "mm": ("self", "mat2"),
    "addmm": ("mat1", "mat2"),
    "bmm": ("self", "mat2"),
    "baddbmm": ("batch1", "batch2"),
    "mv": ("self", "vec"),
    "addmv": ("mat", "vec"),
    "_scaled_mm": ("self", "mat2"),
}


@dataclass(frozen=True)
class Cause:
    """The proven cause of a non-finite element.

    Attributes:
        sentences: what happened, the cause first.
        operation: its name in the model: "div", "softmax".
        read: the values that the kernel read for the element, by parameter: 0-d, or 1-d if it read a row.
    """

    sentences: tuple[str, ...]
    operation: str
    read: Mapping[str, Tensor]


@dataclass(frozen=True)
class KernelStatements:
    """The statements of a kernel, and those of them that lead to the result in question.

    Attributes:
        statements: all statements, in order.
        leading: those that the result is evaluated from.
        dtypes: the dtype of each pointer's memory: "float16".
        numbers: the values of the other parameters.
    """

    statements: tuple[Statement, ...]
    leading: tuple[Statement, ...]
    dtypes: dict[str, str]
    numbers: Mapping[str, float]


def find_cause(
    source: KernelStatements, arguments: LaunchTensors, result: str, element: int, special: Special
) -> Cause | None:
    """The cause of a NaN or infinite element; None if the numbers prove none.

    The kernel is evaluated again on the operands of the element. The evaluation counts only if it gives what the
    launch wrote, at this element and at others.

    Args:
        result: the parameter that is not finite at `element` (row-major).
    """
    lines = {statement.line for statement in source.leading}
    elements = element_by_element(arguments, result, element)
    for placement in (elements, *rows(arguments, result, element)):
        evaluated = _evaluate(source, placement)
        leading = [operation for operation in evaluated.operations if operation.statement.line in lines]
        if placement is elements and _reduces_rows(leading):
            continue  # it would reduce elements that do not belong together
        if _matches_recorded(evaluated, placement, result, source.dtypes[result]) and _matches_finite_row(
            source, arguments, result, placement
        ):
            return _cause(leading, placement, special)
    return None


def _reduces_rows(operations: Iterable[Operation]) -> bool:
    return any(operation.operands[0].dim() for operation in operations if operation.reduces)


def _evaluate(source: KernelStatements, placement: Placement) -> KernelEvaluator:
    wide = "float64" if "float64" in source.dtypes.values() else "float32"
    evaluated = KernelEvaluator(placement.before, source.dtypes, source.numbers, wide)
    evaluated.run(source.statements)
    return evaluated


def _matches_recorded(evaluated: KernelEvaluator, placement: Placement, result: str, dtype: str) -> bool:
    import torch

    value, recorded = evaluated.memory.get(result), placement.after.get(result)
    if value is None or recorded is None or value.dtype is torch.bool:
        return False
    value, recorded = value.double(), recorded.double()
    if value.dim() and recorded.dim() and value.shape != recorded.shape:
        return False
    value, recorded = torch.broadcast_tensors(value, recorded)
    if dtype == "float8_e4m3fn":
        value = torch.where(value.isnan() & (recorded.abs() == LARGEST[dtype]), recorded, value)
    close = torch.isclose(value, recorded, rtol=_TOLERANCE.get(dtype, 1e-3), atol=1e-6, equal_nan=True)
    return bool(close.all())


def _matches_finite_row(source: KernelStatements, arguments: LaunchTensors, result: str, placement: Placement) -> bool:
    """True if the evaluation of a row with a finite result matches what was recorded, too.

    Needed only if the row in question has a single result, which proves little.
    """
    import torch

    if placement.lane is not None:
        return True
    finite = torch.isfinite(arguments.after[result].reshape(-1).double()).nonzero()
    if finite.numel() == 0:
        return True
    return any(
        other.lane is None
        and other.before.keys() == placement.before.keys()
        and _matches_recorded(_evaluate(source, other), other, result, source.dtypes[result])
        for other in rows(arguments, result, int(finite[0]))
    )


def _cause(operations: Sequence[Operation], placement: Placement, special: Special) -> Cause | None:
    producer = _first_producer(operations, placement.lane, special) or _first_producer(operations, None, special)
    if producer is None:
        return None
    operation, at = producer
    by_rows = _reduces_rows(operations)
    read = {name: t if by_rows or not t.dim() else t[placement.lane or 0] for name, t in placement.before.items()}
    masked = _masked_row_length(operations, operation)
    if masked:
        reason = f"all {masked} elements of a row are -Inf, and softmax computes -Inf - -Inf from them"
        return Cause((f"{reason}: {_location(operation)}",), "softmax", read)
    sentences = [f"{_computation(operations, operation, at)}: {_location(operation)}"]
    if special is Special.NAN:
        for sign in (Special.PLUS_INF, Special.MINUS_INF):
            if _has_operand(operation, at, sign) and (earlier := _first_producer(operations, at, sign)) is not None:
                sentences.append(
                    f"the {sign.value} in it comes from {_computation(operations, *earlier)}: {_location(earlier[0])}"
                )
    source = _converted(operations, operation, at) or operation
    return Cause(tuple(sentences), source.name, read)


def _computation(operations: Sequence[Operation], operation: Operation, at: int | None) -> str:
    """The operation in numbers; a conversion with the operation converted: "300 * 300 = 90000, beyond …"."""
    source = _converted(operations, operation, at)
    if source is None:
        return _equation(operation, at)
    equation = _equation(replace(source, dtype=operation.dtype), at if source.result.dim() else None)
    return equation if "beyond" in equation else _equation(operation, at)


def _converted(operations: Sequence[Operation], operation: Operation, at: int | None) -> Operation | None:
    """The operation whose result a conversion converts; None for other operations, and for a value that was read."""
    if not operation.name.startswith("to "):
        return None
    value = float(_at(operation.operands[0], at))
    before = operations[: operations.index(operation)]
    return next(
        (o for o in reversed(before) if not o.name.startswith("to ") and float(_at(o.result, at)) == value),
        None,
    )


def _at(value: Tensor, at: int | None) -> Tensor:
    return value if value.dim() == 0 else value[at or 0]


def _first_producer(
    operations: Sequence[Operation], lane: int | None, special: Special
) -> tuple[Operation, int | None] | None:
    """The first operation that produces such a value from operands without one, and its lane."""
    for operation in operations:
        result = operation.result
        specials = is_special(result, special)
        if result.dim() == 0:
            if bool(specials) and not _inherits(operation, None, special):
                return operation, None
            continue
        lanes = [lane] if lane is not None else [int(i) for i in specials.nonzero().reshape(-1)[:1]]
        for at in lanes:
            if bool(specials[at]) and not _inherits(operation, at, special):
                return operation, at
    return None


def is_special(value: Tensor, special: Special) -> Tensor:
    """The elements that are such a value, as a bool tensor."""
    if special is Special.NAN:
        return value.isnan()
    return value == math.inf * special.sign


def _inherits(operation: Operation, at: int | None, special: Special) -> bool:
    """True if an operand explains the value: NaN for NaN, any non-finite operand for an infinity."""
    for operand in operation.operands:
        value = operand if operand.dim() == 0 or at is None or operation.reduces else operand[at]
        if bool(value.isnan().any()) or (special is not Special.NAN and not bool(value.isfinite().all())):
            return True
    return False


def _has_operand(operation: Operation, at: int | None, special: Special) -> bool:
    operands = (o if o.dim() == 0 or at is None else o[at] for o in operation.operands)
    return any(bool(is_special(operand, special).any()) for operand in operands)


def _masked_row_length(operations: Sequence[Operation], operation: Operation) -> int:
    """The length of the row whose maximum, -Inf, the operation subtracts; 0 for other operations."""
    if operation.name != "sub":
        return 0
    for other in operations:
        if other.name == "max" and other.operands[0].dim() == 1 and bool((other.operands[0] == -math.inf).all()):
            return int(other.operands[0].numel())
    return 0


def _location(operation: Operation) -> str:
    return f"`{operation.statement.text}` (line {operation.statement.line} of the kernel)"


def _equation(operation: Operation, at: int | None) -> str:
    if operation.reduces:
        return _reduction_text(operation)
    values = [float(_at(operand, at)) for operand in operation.operands]
    exact = float(_at(operation.exact, at))
    if operation.name.startswith("to "):
        return overflow_text(f"{values[0]:.6g}", operation.dtype)
    if operation.name in _SIGNS:
        text = f"{values[0]:.6g} {_SIGNS[operation.name]} {values[1]:.6g}"
    else:
        text = f"{operation.name}({', '.join(f'{value:.6g}' for value in values)})"
    if math.isfinite(exact):
        return overflow_text(f"{text} = {exact:.6g}", operation.dtype)
    return f"{text} {domain_error(operation.name, values, exact)}".strip()


def _reduction_text(operation: Operation) -> str:
    row = operation.operands[0]
    plus, minus = int((row == math.inf).sum()), int((row == -math.inf).sum())
    if plus or minus:
        return f"the {operation.name} of {row.numel()} elements, {plus} +Inf and {minus} -Inf among them"
    exact = float(operation.exact)
    return reduced_text(f"the {operation.name} of {row.numel()} elements", exact, operation.dtype)


def reduced_text(text: str, exact: float, dtype: str) -> str:
    """ "the sum of 64 elements is 7e+38, beyond the largest float32 (3.4e+38)"; of a result within it, what may be."""
    found = f"{text} is {exact:.6g}"
    if dtype in LARGEST and abs(exact) <= LARGEST[dtype]:
        return f"{found}; on the way to it, a part may have gone beyond the largest {dtype} ({LARGEST[dtype]:.6g})"
    return overflow_text(found, dtype)


def overflow_text(text: str, dtype: str) -> str:
    """ "70000, beyond the largest float16 (65504)"; the text alone for dtypes without such a limit."""
    properties = dtypes.of_name(dtype)
    if properties is None or dtype not in LARGEST:
        return text
    no_infinity = "" if properties.has_infinity else ", which has no infinity"
    return f"{text}, beyond the largest {dtype} ({LARGEST[dtype]:.6g}){no_infinity}"


def domain_error(name: str, values: Sequence[float], exact: float) -> str:
    """The reason why an operation is not finite for its operands, as a predicate: "is the logarithm of zero"."""
    first, *_ = values
    if name.startswith("log") and name != "log1p":
        return "is the logarithm of a negative number" if first < 0 else "is the logarithm of zero" if not first else ""
    if name == "log1p" and first <= -1:
        return "is the logarithm of a negative number" if first < -1 else "is the logarithm of zero"
    if name in ("sqrt", "rsqrt") and first < 0:
        return "is the square root of a negative number"
    if name == "pow" and first < 0 and math.isnan(exact):
        return "is a fractional power of a negative number"
    return "is NaN" if math.isnan(exact) else f"is {'+' if exact > 0 else '-'}Inf"


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


def product_cause(launch: Launch, argument: Argument, arguments: LaunchTensors, element: int, special: Special) -> str:
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
