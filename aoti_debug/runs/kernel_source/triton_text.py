"""The statements of a Triton kernel, from its Python source."""

from __future__ import annotations

import ast
import base64
import hashlib
import re
from collections.abc import Iterator
from pathlib import PurePath

from aoti_debug.package.manifest import Kernel
from aoti_debug.runs.kernel_source.arithmetic import Statement

_STORES = ("tl.store", "tl.atomic_add", "tl.atomic_max", "tl.atomic_min", "tl.atomic_xchg")
_MODULES = frozenset({"tl", "tl_math", "libdevice", "triton_helpers", "math"})
_MASK_NAME = re.compile(r"(?:[xyzr]\w*)?mask\d*\Z")


def statements(source: str, parameters: frozenset[str]) -> tuple[Statement, ...]:
    """The statements of the last function with all of `parameters`; none if the source is not understood."""
    try:
        tree = ast.parse(source)
        for function in reversed([node for node in tree.body if isinstance(node, ast.FunctionDef)]):
            if parameters <= {argument.arg for argument in function.args.args}:
                return tuple(_block(function.body))
    except (SyntaxError, ValueError, MemoryError, RecursionError):  # the last two: nested too deeply
        return ()
    return ()


def line_of(kernel: Kernel, file: str, line: int) -> str:
    """The line of a kernel's source that debug information names; "" if it is not known to be of this source.

    torch names the file by a hash of the source (PyCodeCache in torch/_inductor/codecache.py).

    Args:
        file: that Triton compiled; it need not exist.
    """
    digest = hashlib.sha256(kernel.source.strip().encode()).digest()
    name = f"c{base64.b32encode(digest)[:51].decode().lower()}"
    lines = kernel.source.splitlines()
    index = line - kernel.first_line
    if not kernel.first_line or PurePath(file).stem != name or not 0 <= index < len(lines):
        return ""
    return lines[index].strip()


def pointers_of(line: str, parameters: frozenset[str]) -> frozenset[str]:
    """Those of the parameters that a line loads from or stores to; none if the line is no whole statement."""
    try:
        calls = [node for node in ast.walk(ast.parse(line.strip())) if isinstance(node, ast.Call) and node.args]
    except (SyntaxError, ValueError, MemoryError, RecursionError):  # the last two: nested too deeply
        return frozenset()
    pointers = (call.args[0] for call in calls if ast.unparse(call.func) in ("tl.load", *_STORES))
    return frozenset(n.id for p in pointers for n in ast.walk(p) if isinstance(n, ast.Name) and n.id in parameters)


def _block(body: list[ast.stmt]) -> Iterator[Statement]:
    for node in body:
        match node:
            case ast.Assign(targets=targets, value=value):
                yield _statement(node, _target_names(targets), value)
            case ast.AugAssign(target=target, value=value):
                names = _target_names([target])
                yield _statement(node, names, value, frozenset(names))
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                yield _statement(node, _target_names([target]), value)
            case ast.Expr(value=ast.Call() as call) if ast.unparse(call.func) in _STORES and len(call.args) > 1:
                pointers = sorted({n.id for n in ast.walk(call.args[0]) if isinstance(n, ast.Name)})
                yield _statement(node, tuple(pointers), call.args[1], store=True)
            case ast.For() | ast.While():
                yield from _block(node.body)
            case ast.If():
                yield from _block(node.body)
                yield from _block(node.orelse)


def _target_names(targets: list[ast.expr]) -> tuple[str, ...]:
    return tuple(n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name))


def _statement(
    node: ast.stmt,
    targets: tuple[str, ...],
    value: ast.expr,
    more: frozenset[str] = frozenset(),
    *,
    store: bool = False,
) -> Statement:
    parts = _Value()
    parts.visit(value)
    initialises = all(target.startswith("_") for target in targets)
    return Statement(
        targets=targets,
        store=store,
        names=frozenset(parts.names) | more,
        infinities=frozenset() if initialises else frozenset(parts.infinities),
        negates=parts.negates,
        value=ast.unparse(value),
        text=ast.unparse(node),
        line=node.lineno,
    )


class _Value(ast.NodeVisitor):
    """Collects the names and infinite constants that the value of an expression may come from."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.infinities: set[int] = set()
        self.negates = False

    def visit_Name(self, node: ast.Name) -> None:
        self.names.add(node.id)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if not (isinstance(node.value, ast.Name) and node.value.id in _MODULES):
            self.visit(node.value)

    def visit_Compare(self, node: ast.Compare) -> None:
        return  # a truth value

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.USub):
            self._negated(node.operand)
        else:
            self.visit(node.operand)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        self.visit(node.left)
        if isinstance(node.op, ast.Sub):
            self._subtracted(node.right)
        else:
            self.visit(node.right)

    def _negated(self, node: ast.expr) -> None:
        """Visits a negated operand; a variable may hold a constant of another statement."""
        self._subtracted(node)
        self.negates |= not isinstance(node, ast.Constant | ast.Call)

    def _subtracted(self, node: ast.expr) -> None:
        parts = _Value()
        parts.visit(node)
        self.names |= parts.names
        self.infinities |= {-sign for sign in parts.infinities}
        self.negates |= parts.negates

    def visit_Subscript(self, node: ast.Subscript) -> None:
        self.visit(node.value)

    def visit_Call(self, node: ast.Call) -> None:
        called = ast.unparse(node.func)
        if sign := _infinite(node):
            self.infinities.add(sign)
            return
        if called.endswith((".isnan", ".isinf", ".program_id", ".arange", ".device_assert")):
            return
        if called == "tl.load":
            self._load(node)
        elif called == "tl.where" and len(node.args) == 3:
            self._where(node)
        else:
            self.negates |= called.endswith(("abs", "fabs"))
            self.generic_visit(node)

    def _load(self, node: ast.Call) -> None:
        named = [keyword.value for keyword in node.keywords if keyword.arg in ("pointer", "other")]
        for value in (*node.args[:1], *named):
            self.visit(value)

    def _where(self, node: ast.Call) -> None:
        """Visits both branches, but not an infinity that only pads a block beyond the tensor's end."""
        condition, *values = node.args
        masks = [n.id for n in ast.walk(condition) if isinstance(n, ast.Name)]
        padding = bool(masks) and all(_MASK_NAME.match(name) for name in masks)
        for value in values:
            if not (padding and isinstance(value, ast.Call) and _infinite(value)):
                self.visit(value)


def _infinite(node: ast.Call) -> int:
    """The sign of `float("-inf")`; 0 for another call."""
    match node:
        case ast.Call(func=ast.Name(id="float"), args=[ast.Constant(value=str() as text)]):
            return {"inf": 1, "+inf": 1, "-inf": -1}.get(text, 0)
    return 0
