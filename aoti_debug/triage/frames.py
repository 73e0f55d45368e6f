"""Which of the model's lines that were fused into one kernel does an operation come from."""

from __future__ import annotations

import ast

from aoti_debug.launches import Launch
from aoti_debug.manifest import Frame

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
_CALLS: dict[str, tuple[str, ...]] = {  # the operation itself, then what is made of it
    "add": ("add",),
    "sub": ("sub", "softmax"),
    "mul": ("mul", "square", "pow", "norm"),
    "div": ("div", "mean", "softmax", "norm", "var", "std"),
    "sum": ("sum", "mean", "norm", "var", "std"),
    "sqrt": ("sqrt", "norm", "std", "dist"),
    "rsqrt": ("rsqrt", "norm"),
    "exp": ("exp", "softmax", "sigmoid", "silu"),
}


def of_operation(launch: Launch, operation: str) -> Frame | None:
    """The line that the operation is written in; None where no line, or more than one as well, is.

    Args:
        operation: "div", "softmax".
    """
    frames = launch.site.provenance.source
    scores = [_score(frame.text, operation) for frame in frames]
    best = max(scores, default=0)
    if best == 0 or scores.count(best) > 1:
        return None
    return frames[scores.index(best)]


def of_name(launch: Launch) -> Frame | None:
    """The line of the operation in a kernel's name that is the likeliest to make what is not finite; None where no
    single line has it."""
    likely = (operation for operation in _LIKELY if operation in launch.kernel)
    return next((frame for operation in likely if (frame := of_operation(launch, operation)) is not None), None)


def _score(text: str, operation: str) -> int:
    """How surely a line does an operation: it names it, or something that is made of it."""
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
        except SyntaxError:
            continue
        operators = {type(node.op) for node in ast.walk(tree) if isinstance(node, ast.BinOp | ast.AugAssign)}
        calls = {ast.unparse(node.func).rpartition(".")[2] for node in ast.walk(tree) if isinstance(node, ast.Call)}
        return operators, calls
    return set(), {text}
