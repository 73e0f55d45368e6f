"""Rewrites a kernel's Python as the compiler reads it: `not`, `and`, `or` and comparisons work element by element."""

from __future__ import annotations

import ast
import builtins
import inspect
import textwrap
from collections.abc import Callable
from functools import reduce
from types import CodeType, FunctionType
from typing import Any

import triton.language as tl

from .kernel import NotInterpretableError

PREFIX = "_interpreted_"


def rewrite(python: FunctionType) -> CodeType:
    """Compiles the function with its line numbers, without its decorators; it needs `rewrite_namespace` as globals.

    Raises:
        NotInterpretableError: the source cannot be read.
    """
    try:
        lines, first = inspect.getsourcelines(python)
    except OSError as error:
        raise NotInterpretableError(f"the source of {python.__name__} cannot be read: {error}") from error
    tree = ast.parse(textwrap.dedent("".join(lines)))
    definition = tree.body[0]
    assert isinstance(definition, ast.FunctionDef)
    definition.decorator_list = []
    tree = ast.fix_missing_locations(_Rewriter().visit(tree))
    return compile(ast.increment_lineno(tree, first - 1), python.__code__.co_filename, "exec")


def rewrite_namespace(semantic: Any) -> dict[str, Any]:
    """The functions that rewritten code calls, and the built-in functions that differ in a kernel."""
    functions: dict[str, Any] = {
        "value": lambda value: semantic.to_tensor(value, check_type=False),
        "not": _not,
        "and": _and,
        "or": _or,
        "chain": _chain,
    }
    smaller, larger = _extreme(builtins.min, "minimum"), _extreme(builtins.max, "maximum")
    return {**{PREFIX + name: function for name, function in functions.items()}, "min": smaller, "max": larger}


def _call(name: str, *arguments: ast.expr) -> ast.Call:
    return ast.Call(func=ast.Name(id=PREFIX + name, ctx=ast.Load()), args=list(arguments), keywords=[])


def _later(body: ast.expr, *parameters: str) -> ast.Lambda:
    taken = [ast.arg(arg=name) for name in parameters]
    arguments = ast.arguments(posonlyargs=[], args=taken, kwonlyargs=[], kw_defaults=[], defaults=[])
    return ast.Lambda(args=arguments, body=body)


class _Rewriter(ast.NodeTransformer):
    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        """A number that is assigned becomes a tensor, as the compiler makes it one."""
        self.generic_visit(node)
        node.value = _call("value", node.value)
        return node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        return ast.copy_location(_call("not", node.operand), node) if isinstance(node.op, ast.Not) else node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        name = "and" if isinstance(node.op, ast.And) else "or"
        return ast.copy_location(reduce(lambda one, other: _call(name, one, _later(other)), node.values), node)

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        """`a < b < c`"""
        self.generic_visit(node)
        if len(node.ops) == 1:
            return node
        x, y = ast.Name(id="x", ctx=ast.Load()), ast.Name(id="y", ctx=ast.Load())
        comparisons = [_later(ast.Compare(left=x, ops=[op], comparators=[y]), "x", "y") for op in node.ops]
        operands = [_later(operand) for operand in node.comparators]
        pairs = [part for pair in zip(comparisons, operands, strict=True) for part in pair]
        return ast.copy_location(_call("chain", node.left, *pairs), node)


def _not(value: Any) -> Any:
    return value.__not__() if isinstance(value, tl.tensor) else not value


def _and(one: Any, other: Callable[[], Any]) -> Any:
    return one.logical_and(other()) if isinstance(one, tl.tensor) else one and other()


def _or(one: Any, other: Callable[[], Any]) -> Any:
    return one.logical_or(other()) if isinstance(one, tl.tensor) else one or other()


def _chain(left: Any, *pairs: Any) -> Any:
    """`pairs` are a comparison, what to compare with, and so on."""
    result: Any = True
    for compare, operand in zip(pairs[::2], pairs[1::2], strict=True):
        if not isinstance(result, tl.tensor) and not result:
            return result
        right = operand()
        holds = compare(left, right)
        result = result.logical_and(holds) if isinstance(result, tl.tensor) else holds
        left = right
    return result


def _extreme(plain: Callable[..., Any], name: str) -> Callable[..., Any]:
    def extreme(*values: Any, **named: Any) -> Any:
        if any(isinstance(value, tl.tensor) for value in values):
            return reduce(getattr(tl, name), values)
        return plain(*values, **named)

    return extreme
