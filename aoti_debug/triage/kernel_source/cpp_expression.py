"""Translates expressions of Inductor's C++ kernels to Python's syntax, so that one evaluator serves both languages."""

from __future__ import annotations

import ast
import re

_REDUCED = re.compile(r"at::vec::vec_reduce_all<[^()]*?>\(\s*\[\][^{]*\{[^{}]*\},\s*(\w+)\)", re.DOTALL)
_LOADS = (
    re.compile(r"at::vec::\w+<[^<>]*>::(?:loadu|from)\((\w+)\b(?=.*(?:static_cast|\+)).*\)\Z", re.DOTALL),
    re.compile(r"(\w+)\[.*\]\Z", re.DOTALL),
)
_REWRITES = (
    (re.compile(r"(?:static_cast|c10::convert|at::vec::convert)<([\w:]+)[^<>]*>\("), r"to_\1("),
    (re.compile(r"at::vec::(?:VectorizedN|Vectorized|VecMask)<[^<>]*>\("), "same("),
    (re.compile(r"decltype\(\w+\)::"), ""),
    (re.compile(r"decltype\(\w+\)\("), "same("),
    (re.compile(r"\.template cast<[^<>]*>\(\)"), ""),
    (re.compile(r"std::numeric_limits<[^<>]*>::infinity\(\)"), "inf"),
    (re.compile(r"std::numeric_limits<[^<>]*>::quiet_NaN\(\)"), "nan"),
    (re.compile(r"(?<=\d)L+\b"), ""),
    (re.compile(r"&&"), "&"),
    (re.compile(r"\|\|"), "|"),
    (re.compile(r"!(?!=)"), "~"),
    (re.compile(r"&(?=\w+helper)"), ""),
    (re.compile(r"\b(?:std|at::vec|at|c10)::"), ""),
    (re.compile(r"::"), "__"),
)


def to_python(text: str) -> str:
    """Translates a C++ expression: "load(in_ptr0)", "to_float(x)", "where(condition, a, b)"; "" if it has no such form.

    A load keeps its pointer only, not the index.
    """
    text = _REDUCED.sub(r"\1", " ".join(text.split()))
    if "[&]" in text or "[](" in text:
        return ""
    for load in _LOADS:
        if match := load.match(text):
            return f"load({match.group(1)})"
    condition, question, rest = text.partition(" ? ")
    if question:
        chosen, _, other = rest.partition(" : ")
        text = f"where({condition}, {chosen}, {other})"
    for pattern, replacement in _REWRITES:
        text = pattern.sub(replacement, text)
    try:
        return ast.unparse(ast.parse(text.strip(), mode="eval"))
    except (SyntaxError, ValueError, MemoryError, RecursionError):  # the last two: nested too deeply
        return ""
