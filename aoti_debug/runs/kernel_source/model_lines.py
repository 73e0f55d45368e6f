"""Finds the model line, among those fused into one kernel, of an operation or an access."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from aoti_debug.package.manifest import ModelLine
from aoti_debug.runs.rundir.launch import Launch

_SUBSCRIPT = re.compile(r"[\w)\]]\[([^\[\]]*(?:\[[^\[\]]*\][^\[\]]*)*)\]")
_INDEXED_CALLS = re.compile(
    r"\b(?:gather|embedding\w*|emb|index_\w+|take\w*|scatter\w*|masked_scatter\w*|lookup)\(((?:[^()]|\([^()]*\))*)"
)
_NAME = re.compile(r"(?<![\w.])[A-Za-z_]\w*")
_NO_TENSORS = frozenset({"self", "None", "True", "False", "torch", "dim", "int", "len", "range", "slice"})
_OPERATORS: dict[str, tuple[type[ast.operator], ...]] = {
    "add": (ast.Add,),
    "sub": (ast.Sub,),
    "mul": (ast.Mult, ast.Pow),
    "div": (ast.Div,),
    "reciprocal": (ast.Div, ast.Pow),
    "rsqrt": (ast.Div, ast.Pow),
    "pow": (ast.Pow,),
}
_LIKELY = ("softmax", "std", "var", "log", "rsqrt", "sqrt", "acos", "asin", "atanh", "reciprocal", "div", "pow", "exp")
_CALLS: dict[str, tuple[str, ...]] = {  # the operation itself, then those that contain it
    "add": ("add",),
    "sub": ("sub", "softmax"),
    "mul": ("mul", "square", "pow", "norm"),
    "div": ("div", "mean", "softmax", "norm", "var", "std"),
    "sum": ("sum", "mean", "norm", "var", "std"),
    "sqrt": ("sqrt", "norm", "std", "dist"),
    "rsqrt": ("rsqrt", "norm"),
    "exp": ("exp", "softmax", "sigmoid", "silu"),
}


def access_line(launch: Launch) -> ModelLine | None:
    """The line that reads or writes by an index; the first line if none does so visibly, None if no line is known."""
    frames = launch.site.provenance.source
    return next((frame for frame in frames if indices(frame.text)), frames[0] if frames else None)


def indices(text: str) -> Sequence[str]:
    """The names that a line of Python uses as indices, in order."""
    inside = [m.group(1) for m in _SUBSCRIPT.finditer(text)] + [m.group(1) for m in _INDEXED_CALLS.finditer(text)]
    names = (name for part in inside for name in _NAME.findall(part))
    return tuple(dict.fromkeys(name for name in names if name not in _NO_TENSORS))


def operation_line(launch: Launch, operation: str) -> ModelLine | None:
    """The line that contains an operation; None if no line or several lines do.

    Args:
        operation: "div", "softmax".
    """
    frames = launch.site.provenance.source
    scores = [_score(frame.text, operation) for frame in frames]
    best = max(scores, default=0)
    if best == 0 or scores.count(best) > 1:
        return None
    return frames[scores.index(best)]


def kernel_name_line(launch: Launch) -> ModelLine | None:
    """The line of the operation in a kernel's name that most likely produces non-finite values.

    None if the name has no such operation, or no single line contains it.
    """
    likely = (operation for operation in _LIKELY if operation in launch.kernel)
    return next((frame for operation in likely if (frame := operation_line(launch, operation)) is not None), None)


def _score(text: str, operation: str) -> int:
    """The certainty (0 to 3) that a line contains an operation: named itself, or as part of a larger one."""
    operators, called = _words(text)
    if operators & set(_OPERATORS.get(operation, ())):
        return 3
    names = _CALLS.get(operation, (operation,))
    if any(names[0] == name.strip("_") for name in called):
        return 3
    if any(names[0] in name for name in called):
        return 2
    return int(any(word in name for word in names[1:] for name in called))


def _words(text: str) -> tuple[set[type[ast.operator]], set[str]]:
    """The operators in a line of Python, and the names of what it calls. A line may be a part of a statement."""
    for complete in (text, text + " pass", text.rstrip(" ,([{"), text.lstrip(" )]}")):
        try:
            tree = ast.parse(complete.strip())
        except (SyntaxError, ValueError, MemoryError, RecursionError):  # the last two: nested too deeply
            continue
        operators = {type(node.op) for node in ast.walk(tree) if isinstance(node, ast.BinOp | ast.AugAssign)}
        calls = {ast.unparse(node.func).rpartition(".")[2] for node in ast.walk(tree) if isinstance(node, ast.Call)}
        return operators, calls
    return set(), {text}
