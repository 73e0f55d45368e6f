"""Evaluates symbolic sizes: expressions as Inductor and torch.export write them.

"16", "s77", "2*s77 + 1", "((s77//2))", "Max(1, u0)", "ModularIndexing(s0, 4, 8)"
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

_LARGEST_POWER = 64


class Symbols:
    """The known values of symbols; symbols that a scope does not know are looked up in the outer one."""

    def __init__(self, outer: Symbols | None = None, known: Mapping[str, int] | None = None) -> None:
        self._values: dict[str, int] = dict(known or {})
        self._outer = outer

    def bind(self, symbol: str, value: int) -> None:
        """Sets the value of a symbol that has none yet; other expressions are ignored."""
        if is_symbol(symbol) and self._find(symbol) is None:
            self._values[symbol] = value

    def known(self) -> dict[str, int]:
        """The values of all symbols, by name."""
        return {**({} if self._outer is None else self._outer.known()), **self._values}

    def value(self, expression: str) -> int | None:
        """Evaluates an expression; None if a symbol or the form of the expression is unknown."""
        if expression.isdigit():
            return int(expression)
        tree = _parse(expression)
        return None if tree is None else self._evaluate(tree)

    def _find(self, symbol: str) -> int | None:
        value = self._values.get(symbol)
        return self._outer._find(symbol) if value is None and self._outer is not None else value

    def _evaluate(self, node: ast.expr) -> int | None:
        match node:
            case ast.Constant(value=int(value)):
                return value
            case ast.Name(id=name):
                return self._find(name)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return self._apply(operator.neg, [operand])
            case ast.BinOp(left=left, op=op, right=right):
                return self._apply(_OPERATORS.get(type(op)), [left, right])
            case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
                return self._apply(_FUNCTIONS.get(name), arguments)
        return None

    def _apply(self, function: Callable[..., int] | None, operands: Sequence[ast.expr]) -> int | None:
        values = [self._evaluate(operand) for operand in operands]
        if function is None or None in values:
            return None
        try:
            return function(*values)
        except (ArithmeticError, TypeError):  # a division by zero; another number of arguments
            return None


def is_symbol(expression: str) -> bool:
    """True if an expression is a single symbol: "s77", "u0"."""
    return expression.isidentifier()


def is_size(symbol: str) -> bool:
    """True if a symbol is a size: "s77" is known from an input's shape, "u0" (unbacked) only when the model runs."""
    return symbol[:1] in ("s", "u") and symbol[1:].isdigit()


def _power(base: int, exponent: int) -> int:
    if not 0 <= exponent <= _LARGEST_POWER:
        raise ArithmeticError(f"{base}**{exponent} is no size")
    return int(base**exponent)


_OPERATORS: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: _power,
}
_FUNCTIONS: Mapping[str, Callable[..., int]] = {
    "Max": max,
    "Min": min,
    "FloorDiv": operator.floordiv,
    "CleanDiv": operator.floordiv,
    "CeilDiv": lambda x, by: -(-x // by),
    "Mod": operator.mod,
    "PythonMod": operator.mod,
    "ModularIndexing": lambda x, by, modulus: x // by % modulus,
    "Identity": lambda x: x,
}


@lru_cache(maxsize=4096)
def _parse(expression: str) -> ast.expr | None:
    try:
        return ast.parse(expression, mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):  # the last two: nested too deeply
        return None
