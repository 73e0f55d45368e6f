"""Reads the configuration of a Triton kernel from its source: the arguments of Inductor's heuristics decorator."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from aoti_debug.base.frozen import dataclass

_MODULE = "triton_heuristics"
_CONSTEXPR = "constexpr"


class KernelSource(str):
    """The source of an expression that is not a literal: "tl.float32"."""

    __slots__ = ()


@dataclass(frozen=True)
class Heuristic:
    """The decorator of a kernel.

    Attributes:
        name: "pointwise", "persistent_reduction", "user_autotune", …
        arguments: its keyword arguments; expressions that are not literals are `KernelSource`: "ReductionHint.INNER".
        parameters: the constexpr parameters of the kernel whose value is not in the source: "XBLOCK".
    """

    name: str
    arguments: Mapping[str, Any]
    parameters: tuple[str, ...]

    @property
    def size_hints(self) -> Mapping[str, int]:
        """The sizes that Inductor expected, powers of two, by axis: {"x": 4, "r0_": 8192}."""
        return {
            axis: hint for axis, hint in _mapping(self.arguments.get("size_hints")).items() if isinstance(hint, int)
        }

    @property
    def inductor_meta(self) -> Mapping[str, Any]:
        """The `inductor_meta` of the kernel."""
        return _mapping(self.arguments.get("inductor_meta"))

    @property
    def grid_type(self) -> str:
        """Inductor's name of the grid: "Grid1D"; "" if unknown."""
        return str(self.inductor_meta.get("grid_type", ""))


def read_heuristic(source: str) -> Heuristic | None:
    """Reads the heuristic of a kernel's source.

    Returns:
        None if the source is not Python, has no heuristic, or does not list its parameters.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, MemoryError, RecursionError):  # the last two: nested too deeply
        return None
    for function in (node for node in tree.body if isinstance(node, ast.FunctionDef)):
        for decorator in function.decorator_list:
            if isinstance(decorator, ast.Call) and ast.unparse(decorator.func).startswith(f"{_MODULE}."):
                return _read(function, decorator)
    return None


def is_literal(value: Any) -> bool:
    """True if a value of `Heuristic.arguments` is a literal, including the items of lists and dictionaries."""
    match value:
        case KernelSource():
            return False
        case dict():
            return all(is_literal(item) for pair in value.items() for item in pair)
        case list() | tuple():
            return all(is_literal(item) for item in value)
        case _:
            return True


def _read(function: ast.FunctionDef, decorator: ast.Call) -> Heuristic | None:
    arguments = {keyword.arg: _literal(keyword.value) for keyword in decorator.keywords if keyword.arg is not None}
    meta = _mapping(arguments.get("triton_meta"))
    signature, constants = meta.get("signature", {}), meta.get("constants", {})
    if not isinstance(signature, dict) or not isinstance(constants, dict):
        return None
    annotated = [a.arg for a in function.args.args if a.annotation and _CONSTEXPR in ast.unparse(a.annotation)]
    compiled_in = dict.fromkeys([name for name, kind in signature.items() if kind == _CONSTEXPR] + annotated)
    return Heuristic(
        name=ast.unparse(decorator.func).rpartition(".")[2],
        arguments=arguments,
        parameters=tuple(name for name in compiled_in if name not in constants),
    )


def _mapping(value: Any) -> Mapping[Any, Any]:
    return value if isinstance(value, dict) else {}


def _literal(node: ast.expr) -> Any:
    """Evaluates a literal; parts that are not literals become `KernelSource`."""
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError):
        pass  # it, or a part of it, is not a literal
    match node:
        case ast.Dict(keys=keys, values=values) if None not in keys:
            pairs = zip(keys, values, strict=True)
            return {_key(key): _literal(value) for key, value in pairs if key is not None}
        case ast.List(elts=items):
            return [_literal(item) for item in items]
        case ast.Tuple(elts=items):
            return tuple(_literal(item) for item in items)
        case _:
            return KernelSource(ast.unparse(node))


def _key(node: ast.expr) -> Any:
    """Evaluates a key of a dictionary; one that is not a constant becomes `KernelSource`."""
    return node.value if isinstance(node, ast.Constant) else KernelSource(ast.unparse(node))
