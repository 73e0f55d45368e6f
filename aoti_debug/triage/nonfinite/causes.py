"""Which operation of a kernel made the first value that is not finite, and why, where the numbers prove it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from aoti_debug import dtypes
from aoti_debug.triage.kernel_source.arithmetic import Arithmetic, Operation
from aoti_debug.triage.kernel_source.placement import ArgumentLayouts, Placement, element_by_element, rows
from aoti_debug.triage.kernel_source.statements import Statement
from aoti_debug.triage.nonfinite.near_overflow import LARGEST
from aoti_debug.triage.nonfinite.observed import Special

if TYPE_CHECKING:
    from torch import Tensor

_TOLERANCE = {"float16": 1e-2, "bfloat16": 5e-2, "float8_e4m3fn": 0.2, "float8_e5m2": 0.3}
_SIGNS = {"add": "+", "sub": "-", "mul": "*", "div": "/"}


@dataclass(frozen=True)
class Cause:
    """
    Attributes:
        sentences: what happened, the cause first.
        operation: what the model calls it: "div", "softmax".
        read: what the kernel read for the element, by parameter: 0-d, or 1-d where it read a row.
    """

    sentences: tuple[str, ...]
    operation: str
    read: Mapping[str, Tensor]


@dataclass(frozen=True)
class KernelStatements:
    """A kernel: its statements, and those that lead to the result in question.

    Attributes:
        dtypes: of each pointer's memory: "float16".
        numbers: what the other parameters are.
    """

    statements: tuple[Statement, ...]
    leading: tuple[Statement, ...]
    dtypes: dict[str, str]
    numbers: Mapping[str, float]


def of_kernel(
    source: KernelStatements, arguments: ArgumentLayouts, result: str, element: int, special: Special
) -> Cause | None:
    """How an element came to be NaN or infinite; None where the numbers prove nothing.

    The kernel is computed again on the elements that belong to it. That counts only where what comes out is what the
    launch left, there and at other elements.

    Args:
        result: the parameter that is not finite at `element` (row-major).
    """
    for placement in _proposals(arguments, result, element):
        computed = _compute(source, placement)
        if _agrees(computed, placement, result, source.dtypes[result]) and _elsewhere(
            source, arguments, result, placement, special
        ):
            lines = {statement.line for statement in source.leading}
            found = [operation for operation in computed.operations if operation.statement.line in lines]
            return _cause(found, placement, special)
    return None


def _proposals(arguments: ArgumentLayouts, result: str, element: int) -> Iterator[Placement]:
    yield element_by_element(arguments, result, element)
    yield from rows(arguments, result, element)


def _compute(source: KernelStatements, placement: Placement) -> Arithmetic:
    wide = "float64" if "float64" in source.dtypes.values() else "float32"
    computed = Arithmetic(placement.before, source.dtypes, source.numbers, wide)
    computed.run(source.statements)
    return computed


def _agrees(computed: Arithmetic, placement: Placement, result: str, dtype: str) -> bool:
    import torch

    value, left = computed.memory.get(result), placement.after.get(result)
    if value is None or left is None or value.dtype is torch.bool:
        return False
    value, left = value.double(), left.double()
    if value.dim() and left.dim() and value.shape != left.shape:
        return False
    value, left = torch.broadcast_tensors(value, left)
    if dtype == "float8_e4m3fn":
        value = torch.where(value.isnan() & (left.abs() == LARGEST[dtype]), left, value)
    close = torch.isclose(value, left, rtol=_TOLERANCE.get(dtype, 1e-3), atol=1e-6, equal_nan=True)
    return bool(close.all())


def _elsewhere(
    source: KernelStatements, arguments: ArgumentLayouts, result: str, placement: Placement, special: Special
) -> bool:
    """Whether a row with a finite result comes out right, too, where the one in question has one element."""
    import torch

    if placement.lane is not None:
        return True
    finite = torch.isfinite(arguments.after[result].reshape(-1).double()).nonzero()
    if finite.numel() == 0:
        return True
    return any(
        other.lane is None
        and other.before.keys() == placement.before.keys()
        and _agrees(_compute(source, other), other, result, source.dtypes[result])
        for other in rows(arguments, result, int(finite[0]))
    )


def _cause(operations: Sequence[Operation], placement: Placement, special: Special) -> Cause | None:
    born = _born(operations, placement.lane, special) or _born(operations, None, special)
    if born is None:
        return None
    operation, at = born
    by_rows = any(operand.operands[0].dim() for operand in operations if operand.reduces)
    read = {name: t if by_rows or not t.dim() else t[placement.lane or 0] for name, t in placement.before.items()}
    masked = _masked_row(operations, operation)
    if masked:
        what = f"a row of {masked} elements is -Inf throughout, and softmax takes -Inf - -Inf of it"
        return Cause((f"{what}: {_where(operation)}",), "softmax", read)
    said = [f"{_history(operations, operation, at)}: {_where(operation)}"]
    if special is Special.NAN:
        for sign in (Special.PLUS, Special.MINUS):
            if _holds(operation, at, sign) and (earlier := _born(operations, at, sign)) is not None:
                said.append(f"the {sign.value} in it: {_history(operations, *earlier)}: {_where(earlier[0])}")
    maker = _maker(operations, operation, at) or operation
    return Cause(tuple(said), maker.name, read)


def _history(operations: Sequence[Operation], operation: Operation, at: int | None) -> str:
    """The operation in numbers; for a conversion, with what made the number: "300 * 300 = 90000, beyond …"."""
    maker = _maker(operations, operation, at)
    if maker is None:
        return _spelled(operation, at)
    said = _spelled(replace(maker, dtype=operation.dtype), at if maker.result.dim() else None)
    return said if "beyond" in said else _spelled(operation, at)


def _maker(operations: Sequence[Operation], operation: Operation, at: int | None) -> Operation | None:
    """What made the number that a conversion is given; None for other operations, and for a number that was read."""
    if not operation.name.startswith("to "):
        return None
    wanted = _at(operation.operands[0], at)
    before = operations[: operations.index(operation)]
    return next(
        (o for o in reversed(before) if not o.name.startswith("to ") and float(_at(o.result, at)) == float(wanted)),
        None,
    )


def _at(value: Tensor, at: int | None) -> Tensor:
    return value if value.dim() == 0 else value[at or 0]


def _born(operations: Sequence[Operation], lane: int | None, special: Special) -> tuple[Operation, int | None] | None:
    """The first operation that makes such a value of others, and its lane."""
    for operation in operations:
        result = operation.result
        bad = is_special(result, special)
        if result.dim() == 0:
            if bool(bad) and not _taints(operation, None, special):
                return operation, None
            continue
        lanes = [lane] if lane is not None else [int(i) for i in bad.nonzero().reshape(-1)[:1]]
        for at in lanes:
            if bool(bad[at]) and not _taints(operation, at, special):
                return operation, at
    return None


def is_special(value: Tensor, special: Special) -> Tensor:
    if special is Special.NAN:
        return value.isnan()
    return value == math.inf * special.sign


def _taints(operation: Operation, at: int | None, special: Special) -> bool:
    """Whether an operand is such already: NaN for NaN, anything that is not finite for an infinity."""
    for operand in operation.operands:
        seen = operand if operand.dim() == 0 or at is None or operation.reduces else operand[at]
        if bool(seen.isnan().any()) or (special is not Special.NAN and not bool(seen.isfinite().all())):
            return True
    return False


def _holds(operation: Operation, at: int | None, special: Special) -> bool:
    operands = (o if o.dim() == 0 or at is None else o[at] for o in operation.operands)
    return any(bool(is_special(operand, special).any()) for operand in operands)


def _masked_row(operations: Sequence[Operation], operation: Operation) -> int:
    """The length of the row whose maximum, -Inf, the operation subtracts; 0 where it does no such thing."""
    if operation.name != "sub":
        return 0
    for other in operations:
        if other.name == "max" and other.operands[0].dim() == 1 and bool((other.operands[0] == -math.inf).all()):
            return int(other.operands[0].numel())
    return 0


def _where(operation: Operation) -> str:
    return f"`{operation.statement.text}` (line {operation.statement.line} of the kernel)"


def _spelled(operation: Operation, at: int | None) -> str:
    if operation.reduces:
        return _reduced(operation)
    values = [float(_at(operand, at)) for operand in operation.operands]
    exact = float(_at(operation.exact, at))
    if operation.name.startswith("to "):
        return beyond(f"{values[0]:.6g}", operation.dtype)
    if operation.name in _SIGNS:
        text = f"{values[0]:.6g} {_SIGNS[operation.name]} {values[1]:.6g}"
    else:
        text = f"{operation.name}({', '.join(f'{value:.6g}' for value in values)})"
    if math.isfinite(exact):
        return beyond(f"{text} = {exact:.6g}", operation.dtype)
    return f"{text} {remark(operation.name, values, exact)}".strip()


def _reduced(operation: Operation) -> str:
    row = operation.operands[0]
    plus, minus = int((row == math.inf).sum()), int((row == -math.inf).sum())
    if plus or minus:
        return f"the {operation.name} of {row.numel()} elements, {plus} +Inf and {minus} -Inf among them"
    exact = float(operation.exact)
    return beyond(f"the {operation.name} of {row.numel()} elements is {exact:.6g}", operation.dtype)


def beyond(text: str, dtype: str) -> str:
    """ "70000 is beyond …"."""
    known = dtypes.of_name(dtype)
    if known is None or dtype not in LARGEST:
        return text
    without = "" if known.has_infinity else ", which has no infinity"
    return f"{text}, beyond the largest {dtype} ({LARGEST[dtype]:.6g}){without}"


def remark(name: str, values: Sequence[float], exact: float) -> str:
    """What is wrong with such operands."""
    first, *_ = values
    if name.startswith("log") and name != "log1p":
        return "is the logarithm of a negative number" if first < 0 else "is the logarithm of zero" if not first else ""
    if name == "log1p" and first <= -1:
        return "is the logarithm of a negative number" if first < -1 else "is the logarithm of zero"
    if name in ("sqrt", "rsqrt") and first < 0:
        return "is the root of a negative number"
    if name == "pow" and first < 0 and math.isnan(exact):
        return "is a broken power of a negative number"
    return "is NaN" if math.isnan(exact) else f"is {'+' if exact > 0 else '-'}Inf"
