"""Evaluates a generated kernel's statements on a few elements, and records every operation with its operands.

A statement, of Triton or C++, is reduced to the flow of values: it assigns a value computed from other names to one or
more variables, or stores a value to memory. Index arithmetic, masks and comparisons are left out: their results are
never NaN or infinite.

Values are float64 tensors, rounded after each operation to the kernel's compute dtype. A value whose expression is not
understood is unknown, and so is everything computed from it.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from aoti_debug.base import dtypes
from aoti_debug.base.frozen import dataclass

if TYPE_CHECKING:
    from torch import Tensor

E4M3_LIMIT = 464.0  # larger values round to more than 448, the largest
REDUCTIONS = frozenset({"sum", "prod", "max", "min"})
_DTYPES = {  # by their names in kernels
    spelled.replace("::", "__"): dtype.name
    for dtype in dtypes.DTYPES
    if dtype.kernel_names
    for spelled in (dtype.name, *dtype.kernel_names)
}
_BINARY: dict[type[ast.operator], str] = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div"}
_LOGICAL: dict[type[ast.operator], str] = {ast.BitAnd: "logical_and", ast.BitOr: "logical_or"}
_COMPARE: dict[type[ast.cmpop], str] = {
    ast.Eq: "eq",
    ast.NotEq: "ne",
    ast.Lt: "lt",
    ast.LtE: "le",
    ast.Gt: "gt",
    ast.GtE: "ge",
}
_SAME_NAMES = (
    *("log", "log2", "log10", "log1p", "exp", "exp2", "expm1", "sqrt", "rsqrt", "reciprocal", "pow", "abs", "neg"),
    *("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "sigmoid", "erf", "lgamma", "relu"),
    *("floor", "ceil", "trunc", "isnan", "isinf", "maximum", "minimum"),
)
_NAMES = {  # name in kernels -> name in torch
    **{name: name for name in _SAME_NAMES},
    "fabs": "abs",
    "sqrt_rn": "sqrt",
    "rcp": "reciprocal",
    "nearbyint": "round",
    "rint": "round",
    "div_rn": "div",
    "max_propagate_nan": "maximum",
    "min_propagate_nan": "minimum",
}
_REDUCTION_NAMES = {"sum": "sum", "max2": "max", "min2": "min", "prod": "prod"}
_IDENTITIES = frozenset({"broadcast_to", "same", "reshape", "trans", "view", "expand_dims"})
_EXACT = frozenset({"maximum", "minimum", "isnan", "isinf", "abs", "neg"})  # never produce a non-finite value


@dataclass(frozen=True)
class Statement:
    """An assignment or a store.

    Attributes:
        targets: the variables that get a value, or the pointer that is stored to.
        store: true if it writes to memory.
        names: the variables, and the pointers read, that the value is computed from.
        infinities: the signs (1, -1) of its infinite constants, without the initial values of reductions.
        negates: true if it may change the sign of a value.
        value: the stored or assigned expression in Python's syntax; "" if it has no such form.
        text: the source text, in one line.
        line: the line in the kernel's source, from 1.
        tail: true if it repeats another statement for the remaining elements that fill no vector.
    """

    targets: tuple[str, ...]
    store: bool
    names: frozenset[str]
    infinities: frozenset[int]
    negates: bool
    value: str
    text: str
    line: int
    tail: bool = False


@dataclass(frozen=True)
class Operation:
    """One evaluated operation.

    Attributes:
        name: "div", "sum", "to float16".
        operands: 0-d, or 1-d with one entry for each element of the row.
        exact: the result before it was rounded.
        result: the rounded result.
        dtype: the dtype that it was rounded to.
    """

    statement: Statement
    name: str
    operands: tuple[Tensor, ...]
    exact: Tensor
    result: Tensor
    dtype: str

    @property
    def reduces(self) -> bool:
        """True if it reduces a row to one value."""
        return self.name in REDUCTIONS and self.operands[0].dim() == 1


class _UnknownError(Exception):
    """A value that the kernel's text does not determine."""


_NOT_UNDERSTOOD = (_UnknownError, RuntimeError, TypeError, IndexError)  # or the operands' shapes do not match


class KernelEvaluator:
    """Evaluates statements, and keeps the variables, the memory and the recorded operations.

    Args:
        memory: the elements in question of each pointer's memory: 0-d or 1-d float64, or bool.
        stored: the dtype of each pointer's memory: "float16".
        numbers: the values of the other parameters.
        dtype: the kernel's compute dtype: "float32", "float64".
    """

    def __init__(
        self, memory: Mapping[str, Tensor], stored: Mapping[str, str], numbers: Mapping[str, float], dtype: str
    ) -> None:
        self.memory: dict[str, Tensor | None] = dict(memory)
        self.operations: list[Operation] = []
        self._stored = stored
        self._dtype = dtype
        self._variables: dict[str, Tensor | None] = {name: _number(value) for name, value in numbers.items()}
        self._aliases: dict[str, str] = {}
        self._statement: Statement | None = None

    def run(self, statements: Sequence[Statement]) -> None:
        """Evaluates the statements in order, without those of vector tails."""
        for statement in statements:
            if not statement.tail:
                self._execute(statement)

    def _execute(self, statement: Statement) -> None:
        self._statement = statement
        if statement.store:
            self._store(statement)
            return
        if len(statement.targets) != 1:
            self._unpack(statement)
            return
        (target,) = statement.targets
        pointer = self._pointer(statement.names)
        if pointer and "load(" not in statement.value:
            self._aliases[target] = pointer
            return
        try:
            value = (
                self._accumulate(target, statement) if target.startswith("tmp_acc") else self._evaluate(statement.value)
            )
        except _NOT_UNDERSTOOD:
            value = None
        self._variables[target] = value

    def _store(self, statement: Statement) -> None:
        owner = self._pointer(statement.targets) or statement.targets[0]
        try:
            self.memory[owner] = self._round_for_store(owner, self._evaluate(statement.value))
        except _NOT_UNDERSTOOD:
            self.memory[owner] = None

    def _pointer(self, names: Iterable[str]) -> str:
        """The parameter that one of the names is, or points into; "" where none does."""
        owners = (self._aliases.get(name, name) for name in sorted(names))
        return next((owner for owner in owners if owner in self._stored), "")

    def _unpack(self, statement: Statement) -> None:
        """Evaluates `a, b = f(c)`; only the (maximum, sum) pairs of an online softmax are understood."""
        try:
            values = self._softmax_pair(ast.parse(statement.value, mode="eval").body) if statement.value else None
        except _NOT_UNDERSTOOD:
            values = None
        for i, target in enumerate(statement.targets):
            self._variables[target] = values[i] if values is not None and i < len(values) else None

    def _softmax_pair(self, node: ast.expr) -> tuple[Tensor, Tensor] | None:
        """(maximum, sum of exponentials) as Inductor's helpers compute them; None for other calls."""
        if not isinstance(node, ast.Call):
            return None
        name = ast.unparse(node.func).rpartition(".")[2]
        if name == "online_softmax_combine":
            rows = self._value(node.args[2])
            return rows, rows.new_ones(()).expand_as(rows)
        if name == "online_softmax_reduce":
            import torch

            rows = self._value(node.args[0])
            largest = self._reduce("max", rows)
            delta = torch.where(torch.isinf(largest) & (largest < 0), torch.zeros_like(rows), rows - largest)
            return largest, self._round(torch.exp(delta).sum())
        return None

    def _accumulate(self, target: str, statement: Statement) -> Tensor:
        """Evaluates `tmp_acc0 = tmp_acc0 + x` over the whole row."""
        node = ast.parse(statement.value, mode="eval").body if statement.value else None
        match node:
            case ast.BinOp(left=ast.Name(id=name), op=ast.Add() | ast.Mult() as op, right=right) if name == target:
                return self._reduce_into(target, "sum" if isinstance(op, ast.Add) else "prod", self._value(right))
            case ast.Call(func=ast.Name(id=called), args=[ast.Name(id=name), right]) if name == target:
                kind = {"maximum": "max", "minimum": "min"}.get(_NAMES.get(called, ""))
                if kind is not None:
                    return self._reduce_into(target, kind, self._value(right))
        return self._evaluate(statement.value)

    def _reduce_into(self, target: str, kind: str, values: Tensor) -> Tensor:
        initial = self._variables.get(target)
        if initial is None:
            raise _UnknownError
        reduced = self._reduce(kind, values)
        combine = {"sum": "add", "prod": "mul", "max": "maximum", "min": "minimum"}[kind]
        return self._round(_torch_function(combine)(initial, reduced))

    def _reduce(self, kind: str, values: Tensor) -> Tensor:
        if values.dim() == 0:
            return values
        return self._record(kind, (values,), _torch_function({"max": "amax", "min": "amin"}.get(kind, kind))(values))

    def _evaluate(self, text: str) -> Tensor:
        if not text:
            raise _UnknownError
        return self._value(ast.parse(text, mode="eval").body)

    def _value(self, node: ast.expr) -> Tensor:
        match node:
            case ast.Constant(value=bool() | int() | float() as number):
                return _number(number)
            case ast.Name(id=name):
                return self._named(name)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return self._round(-self._value(operand))
            case ast.UnaryOp(op=ast.Invert() | ast.Not(), operand=operand):
                return ~self._value(operand).bool()
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
                return self._apply(_BINARY[type(op)], self._value(left), self._value(right))
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _LOGICAL:
                return self._logical(_LOGICAL[type(op)], left, right)
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARE:
                result: Tensor = _torch_function(_COMPARE[type(op)])(self._value(left), self._value(right))
                return result
            case ast.Subscript(value=value):
                return self._value(value)
            case ast.Call():
                return self._call(node)
        raise _UnknownError

    def _named(self, name: str) -> Tensor:
        if name in ("inf", "nan"):
            return _number(float(name))
        if name.removesuffix("mask").rstrip("_") in ("x", "y", "z", "r0", "r1", "r"):
            return _number(value=True)
        value = self._variables.get(name)
        if value is None:
            raise _UnknownError
        return value

    def _logical(self, name: str, left: ast.expr, right: ast.expr) -> Tensor:
        result: Tensor = _torch_function(name)(self._value(left), self._value(right))
        return result

    def _call(self, node: ast.Call) -> Tensor:
        is_method = isinstance(node.func, ast.Attribute) and not (
            isinstance(node.func.value, ast.Name) and node.func.value.id not in self._variables
        )
        name = ast.unparse(node.func).rpartition(".")[2]
        args = [node.func.value, *node.args] if is_method and isinstance(node.func, ast.Attribute) else list(node.args)
        if name == "load":
            return self._load(node)
        if name == "float" and isinstance(node.args[0], ast.Constant):
            return _number(float(str(node.args[0].value)))
        if name == "full":
            return self._value(node.args[1])
        if name == "zeros":
            return _number(0.0)
        if name in _IDENTITIES:
            return self._value(args[0])
        if name == "to" or name.startswith("to_"):
            kind = ast.unparse(args[1]).rpartition(".")[2] if name == "to" else name.removeprefix("to_")
            return self._convert(self._value(args[0]), kind)
        if name in ("where", "blendv"):
            condition, chosen, other = args if name == "where" else (args[2], args[1], args[0])
            return self._select(self._value(condition), chosen, other)
        if name in _REDUCTION_NAMES and (name != "sum" or len(args) > 1):
            return self._reduce(_REDUCTION_NAMES[name], self._value(args[0]))
        if name in _NAMES:
            return self._apply(_NAMES[name], *(self._value(arg) for arg in args[:2]))
        raise _UnknownError

    def _load(self, node: ast.Call) -> Tensor:
        """Reads the pointer's elements.

        A load under a mask of the model (a padding) is unknown: its elements do not lie where the shapes say.
        """
        if len(node.args) > 1 and "tmp" in ast.unparse(node.args[1]):
            raise _UnknownError
        for name in (n.id for n in ast.walk(node.args[0]) if isinstance(n, ast.Name)):
            owner = self._aliases.get(name, name)
            if owner in self.memory:
                value = self.memory[owner]
                if value is not None:
                    return value
        raise _UnknownError

    def _select(self, condition: Tensor, chosen: ast.expr, other: ast.expr) -> Tensor:
        if condition.dim() == 0:
            return self._value(chosen if bool(condition) else other)
        result: Tensor = _torch_function("where")(condition.bool(), self._value(chosen), self._value(other))
        return result

    def _convert(self, value: Tensor, kind: str) -> Tensor:
        if kind in _DTYPES:
            return self._round_to(value, _DTYPES[kind])
        if "int" in kind:
            return value.trunc() if bool(value.isfinite().all()) else self._unknown()
        if kind in ("bool", "int1"):
            return value != 0
        raise _UnknownError

    def _unknown(self) -> Tensor:
        raise _UnknownError

    def _round_for_store(self, pointer: str, value: Tensor) -> Tensor:
        dtype = self._stored.get(pointer, "")
        return self._round_to(value, dtype) if dtype in _DTYPES.values() else value

    def _round_to(self, value: Tensor, dtype: str) -> Tensor:
        result = round_to_dtype(value, dtype)
        assert self._statement is not None
        self.operations.append(Operation(self._statement, f"to {dtype}", (value,), value, result, dtype))
        return result

    def _apply(self, name: str, *operands: Tensor) -> Tensor:
        function = _torch_function(name)
        numbers = [operand.double() for operand in operands]
        exact = function(*numbers)
        return exact if name in _EXACT else self._record(name, tuple(numbers), exact)

    def _record(self, name: str, operands: tuple[Tensor, ...], exact: Tensor) -> Tensor:
        result = self._round(exact)
        assert self._statement is not None
        self.operations.append(Operation(self._statement, name, operands, exact, result, self._dtype))
        return result

    def _round(self, value: Tensor) -> Tensor:
        return round_to_dtype(value, self._dtype)


def round_to_dtype(value: Tensor, dtype: str) -> Tensor:
    """The value rounded to a dtype, in float64.

    A value too large for float8_e4m3fn, which has no infinity, becomes NaN; some conversions saturate instead.
    """
    import torch

    held = value.double().to(getattr(torch, dtype)).double()
    if dtype == "float8_e4m3fn":
        return torch.where(value.abs() > E4M3_LIMIT, torch.full_like(held, math.nan), held)
    return held


def _number(value: float) -> Tensor:  # a bool makes a tensor of bools
    import torch

    return torch.tensor(value, dtype=torch.bool if isinstance(value, bool) else torch.float64)


def _torch_function(name: str) -> Callable[..., Any]:
    import torch

    function: Callable[..., Any] = getattr(torch, name)
    return function
