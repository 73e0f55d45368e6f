"""Computes a generated kernel's statements again on a few elements, and keeps every operation with its operands.

Values are float64 tensors, rounded after each operation to what the kernel computes in. What is not understood is
unknown, and so is all that is made of it.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aoti_debug import dtypes
from aoti_debug.triage.kernel_source.statements import Statement

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Operation:
    """
    Attributes:
        name: "div", "sum", "to float16".
        operands: 0-d, or 1-d with one entry an element of the row.
        exact: the result before it was rounded to the dtype.
    """

    statement: Statement
    name: str
    operands: tuple[Tensor, ...]
    exact: Tensor
    result: Tensor
    dtype: str  # that the result was rounded to

    @property
    def reduces(self) -> bool:
        return self.name in REDUCTIONS and self.operands[0].dim() == 1


E4M3_LIMIT = 464.0  # what is larger rounds to more than 448, the largest
REDUCTIONS = frozenset({"sum", "prod", "max", "min"})
_DTYPES = {  # by what kernels call them
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
_NAMES = {  # what kernels call it -> what torch calls it
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
_FOLDS = {"sum": "sum", "max2": "max", "min2": "min", "prod": "prod"}
_KEEPS = frozenset({"broadcast_to", "same", "reshape", "trans", "view", "expand_dims"})
_PLAIN = frozenset({"maximum", "minimum", "isnan", "isinf", "abs", "neg"})  # make nothing that is not finite


class _UnknownError(Exception):
    """A value that the kernel's text does not tell."""


_NOT_UNDERSTOOD = (_UnknownError, RuntimeError, TypeError, IndexError)  # or operands that do not fit each other


class Arithmetic:
    """
    Args:
        memory: what the pointers' memory holds, as far as it matters: 0-d or 1-d float64, or bool.
        stored: the dtype that each pointer's memory has: "float16".
        numbers: what the other parameters are.
        dtype: what the kernel computes in: "float32", "float64".
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
        for statement in statements:
            if not statement.tail:
                self._take(statement)

    def _take(self, statement: Statement) -> None:
        self._statement = statement
        if statement.store:
            self._store(statement)
            return
        if len(statement.targets) != 1:
            self._several(statement)
            return
        (target,) = statement.targets
        pointer = self._pointer(statement.names)
        if pointer and "load(" not in statement.value:
            self._aliases[target] = pointer
            return
        try:
            value = self._accumulated(target, statement) if target.startswith("tmp_acc") else self._of(statement.value)
        except _NOT_UNDERSTOOD:
            value = None
        self._variables[target] = value

    def _store(self, statement: Statement) -> None:
        owner = self._pointer(statement.targets) or statement.targets[0]
        try:
            self.memory[owner] = self._fit(owner, self._of(statement.value))
        except _NOT_UNDERSTOOD:
            self.memory[owner] = None

    def _pointer(self, names: Iterable[str]) -> str:
        """The parameter that one of the names is, or points into; "" where none does."""
        owners = (self._aliases.get(name, name) for name in sorted(names))
        return next((owner for owner in owners if owner in self._stored), "")

    def _several(self, statement: Statement) -> None:
        """`a, b = f(c)`: known for the pair that a softmax is computed from."""
        try:
            values = self._pair(ast.parse(statement.value, mode="eval").body) if statement.value else None
        except _NOT_UNDERSTOOD:
            values = None
        for i, target in enumerate(statement.targets):
            self._variables[target] = values[i] if values is not None and i < len(values) else None

    def _pair(self, node: ast.expr) -> tuple[Tensor, Tensor] | None:
        """Maximum and sum of exponentials, as Inductor's helpers combine them."""
        if not isinstance(node, ast.Call):
            return None
        name = ast.unparse(node.func).rpartition(".")[2]
        if name == "online_softmax_combine":
            rows = self._value(node.args[2])
            return rows, rows.new_ones(()).expand_as(rows)
        if name == "online_softmax_reduce":
            import torch

            rows = self._value(node.args[0])
            largest = self._fold("max", rows)
            delta = torch.where(torch.isinf(largest) & (largest < 0), torch.zeros_like(rows), rows - largest)
            return largest, self._round(torch.exp(delta).sum())
        return None

    def _accumulated(self, target: str, statement: Statement) -> Tensor:
        """`tmp_acc0 = tmp_acc0 + x`: over the whole row."""
        node = ast.parse(statement.value, mode="eval").body if statement.value else None
        match node:
            case ast.BinOp(left=ast.Name(id=name), op=ast.Add() | ast.Mult() as op, right=right) if name == target:
                return self._onto(target, "sum" if isinstance(op, ast.Add) else "prod", self._value(right))
            case ast.Call(func=ast.Name(id=called), args=[ast.Name(id=name), right]) if name == target:
                kind = {"maximum": "max", "minimum": "min"}.get(_NAMES.get(called, ""))
                if kind is not None:
                    return self._onto(target, kind, self._value(right))
        return self._of(statement.value)

    def _onto(self, target: str, kind: str, values: Tensor) -> Tensor:
        begun = self._variables.get(target)
        if begun is None:
            raise _UnknownError
        folded = self._fold(kind, values)
        joined = {"sum": "add", "prod": "mul", "max": "maximum", "min": "minimum"}[kind]
        return self._round(_torch(joined)(begun, folded))

    def _fold(self, kind: str, values: Tensor) -> Tensor:
        if values.dim() == 0:
            return values
        return self._keep(kind, (values,), _torch({"max": "amax", "min": "amin"}.get(kind, kind))(values))

    def _of(self, text: str) -> Tensor:
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
                return self._both(_LOGICAL[type(op)], left, right)
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARE:
                result: Tensor = _torch(_COMPARE[type(op)])(self._value(left), self._value(right))
                return result
            case ast.Subscript(value=value):
                return self._value(value)
            case ast.Call():
                return self._called(node)
        raise _UnknownError

    def _named(self, name: str) -> Tensor:
        if name in ("inf", "nan"):
            return _number(float(name))
        if name.removesuffix("mask").rstrip("_") in ("x", "y", "z", "r0", "r1", "r"):
            return _number(True)
        value = self._variables.get(name)
        if value is None:
            raise _UnknownError
        return value

    def _both(self, name: str, left: ast.expr, right: ast.expr) -> Tensor:
        result: Tensor = _torch(name)(self._value(left), self._value(right))
        return result

    def _called(self, node: ast.Call) -> Tensor:
        of_value = isinstance(node.func, ast.Attribute) and not (
            isinstance(node.func.value, ast.Name) and node.func.value.id not in self._variables
        )
        name = ast.unparse(node.func).rpartition(".")[2]
        args = [node.func.value, *node.args] if of_value and isinstance(node.func, ast.Attribute) else list(node.args)
        if name == "load":
            return self._load(node)
        if name == "float" and isinstance(node.args[0], ast.Constant):
            return _number(float(str(node.args[0].value)))
        if name == "full":
            return self._value(node.args[1])
        if name == "zeros":
            return _number(0.0)
        if name in _KEEPS:
            return self._value(args[0])
        if name == "to" or name.startswith("to_"):
            kind = ast.unparse(args[1]).rpartition(".")[2] if name == "to" else name.removeprefix("to_")
            return self._convert(self._value(args[0]), kind)
        if name in ("where", "blendv"):
            condition, chosen, other = args if name == "where" else (args[2], args[1], args[0])
            return self._chosen(self._value(condition), chosen, other)
        if name in _FOLDS and (name != "sum" or len(args) > 1):
            return self._fold(_FOLDS[name], self._value(args[0]))
        if name in _NAMES:
            return self._apply(_NAMES[name], *(self._value(arg) for arg in args[:2]))
        raise _UnknownError

    def _load(self, node: ast.Call) -> Tensor:
        """Elements that a mask of the model hides (a padding) are not where the shapes say: they are not known."""
        if len(node.args) > 1 and "tmp" in ast.unparse(node.args[1]):
            raise _UnknownError
        for name in (n.id for n in ast.walk(node.args[0]) if isinstance(n, ast.Name)):
            owner = self._aliases.get(name, name)
            if owner in self.memory:
                value = self.memory[owner]
                if value is not None:
                    return value
        raise _UnknownError

    def _chosen(self, condition: Tensor, chosen: ast.expr, other: ast.expr) -> Tensor:
        if condition.dim() == 0:
            return self._value(chosen if bool(condition) else other)
        result: Tensor = _torch("where")(condition.bool(), self._value(chosen), self._value(other))
        return result

    def _convert(self, value: Tensor, kind: str) -> Tensor:
        if kind in _DTYPES:
            return self._fitted(value, _DTYPES[kind])
        if "int" in kind:
            return value.trunc() if bool(value.isfinite().all()) else self._unknown()
        if kind in ("bool", "int1"):
            return value != 0
        raise _UnknownError

    def _unknown(self) -> Tensor:
        raise _UnknownError

    def _fit(self, pointer: str, value: Tensor) -> Tensor:
        dtype = self._stored.get(pointer, "")
        return self._fitted(value, dtype) if dtype in _DTYPES.values() else value

    def _fitted(self, value: Tensor, dtype: str) -> Tensor:
        result = rounded(value, dtype)
        assert self._statement is not None
        self.operations.append(Operation(self._statement, f"to {dtype}", (value,), value, result, dtype))
        return result

    def _apply(self, name: str, *operands: Tensor) -> Tensor:
        function = _torch(name)
        numbers = [operand.double() for operand in operands]
        exact = function(*numbers)
        return exact if name in _PLAIN else self._keep(name, tuple(numbers), exact)

    def _keep(self, name: str, operands: tuple[Tensor, ...], exact: Tensor) -> Tensor:
        result = self._round(exact)
        assert self._statement is not None
        self.operations.append(Operation(self._statement, name, operands, exact, result, self._dtype))
        return result

    def _round(self, value: Tensor) -> Tensor:
        return rounded(value, self._dtype)


def rounded(value: Tensor, dtype: str) -> Tensor:
    """The value as a dtype holds it, in float64.

    What is too large for float8_e4m3fn, which has no infinity, is NaN here; some conversions take its largest value.
    """
    import torch

    held = value.double().to(getattr(torch, dtype)).double()
    if dtype == "float8_e4m3fn":
        return torch.where(value.abs() > E4M3_LIMIT, torch.full_like(held, math.nan), held)
    return held


def _number(value: bool | float) -> Tensor:
    import torch

    return torch.tensor(value, dtype=torch.bool if isinstance(value, bool) else torch.float64)


def _torch(name: str) -> Callable[..., Any]:
    import torch

    function: Callable[..., Any] = getattr(torch, name)
    return function
