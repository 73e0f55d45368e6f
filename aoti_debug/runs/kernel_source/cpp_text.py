"""The statements of a C++ kernel as Inductor writes it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from aoti_debug.instrument.wrapper.cpp_syntax.lexer import Token, closing, tokenize, without_comments
from aoti_debug.runs.kernel_source.arithmetic import Statement

_REDUCED = re.compile(r"at::vec::vec_reduce_all<[^()]*?>\(\s*\[\][^{]*\{[^{}]*\},\s*(\w+)\)", re.DOTALL)
_LOADS = (
    re.compile(r"at::vec::\w+<[^<>]*>::(?:loadu|from)\((\w+)\b(?=.*(?:static_cast|\+)).*\)\Z", re.DOTALL),
    re.compile(r"(\w+)\[.*\]\Z", re.DOTALL),
)
_REWRITES = (
    (re.compile(r"static_cast<std::make_unsigned_t<(\w+)>>\("), r"to_\1("),  # of signed operands, from torch 2.15 on
    (re.compile(r"\b(float|double|u?int\d+_t)\("), r"to_\1("),  # of the result of scalar arithmetic
    (re.compile(r"(?:static_cast|c10::convert|at::vec::convert)<([\w:]+)[^<>]*>\("), r"to_\1("),
    (re.compile(r"at::vec::(?:VectorizedN|Vectorized|VecMask)<[^<>]*>\("), "same("),
    (re.compile(r"decltype\(\w+\)::"), ""),
    (re.compile(r"decltype\(\w+\)\("), "same("),
    (re.compile(r"\.template cast<[^<>]*>\(\)"), ""),  # of masks, before torch 2.15
    (re.compile(r"\binductor_vec_mask_cast<[^<>]*>\("), "same("),  # and from 2.15 on
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
_INFINITY = re.compile(r"(-?)\s*(?:static_cast<[\w:]+>\()?(-?)std::numeric_limits<[^<>]*(?:\(\))?>::infinity\(\)")
_COMPARES = re.compile(r"[\w)\]]\s(?:==|!=|<=|>=|<|>|&&|\|\|)\s[\w(]|\bisnan\(|\bisinf\(|\.isnan\(|\.isinf\(")
_ASSIGNS = re.compile(r"(?:[\w:<>,\s\[\]]*?[\s*&])?(\w+)\s*=(?!=)\s*(.*)\Z", re.DOTALL)
_ELEMENT = re.compile(r"(\w+)\[.*?\]\s*=(?!=)\s*(.*)\Z", re.DOTALL)
_STORE = re.compile(r"(\w+)\.store\((\w+)\b", re.DOTALL)
_ATOMIC = re.compile(r"atomic_add\w*(?:<[^()]*>)?\(&?(\w+)\b(.*)\Z", re.DOTALL)
_CALL = re.compile(r"[\w:]+(?:<.*?>)?\((.*)\)\Z", re.DOTALL)
_WORD = re.compile(r"(?<![\w.:])[A-Za-z_]\w*(?!\w*::)")
_LAMBDA = re.compile(r"\[[&=]?\]\s*(?:\([^()]*\)\s*)?\Z")
_BLOCK_HEAD = re.compile(r"(?:\)|\belse|\A|#pragma [^\n]*\n)\s*\Z")  # before a block's brace: `for (…)`
_NEGATES = re.compile(r"\.neg\(\)|\babs\(|\bfabs\(|\.abs\(\)|= -tmp\w")


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


def statements(source: str, name: str) -> Iterator[Statement]:
    """The statements of the function `name`; none if the source has no such function."""
    source = without_comments(source)
    head = re.search(rf"\b{re.escape(name)}\s*\([^()]*\)\s*\{{", source)
    if head is None:
        return
    tokens = tokenize(source, head.end() - 1)
    for text, at, tail in _block(source, tokens, 0, tail=False):
        statement = _statement(text, source.count("\n", 0, at) + 1)
        if statement is not None:
            yield replace(statement, tail=tail)


def _block(source: str, tokens: Sequence[Token], opening: int, *, tail: bool) -> Iterator[tuple[str, int, bool]]:
    """(statement, offset, tail) of the block that the token at index `opening` begins.

    Statements of inner blocks and lambdas come in source order; a lambda's text is also part of its statement.
    """
    start = tokens[opening].end
    end = closing(tokens, opening)
    at = opening + 1
    while at < end:
        token = tokens[at]
        match token.text:
            case "(":
                after = closing(tokens, at)
                yield from _lambdas(source, tokens, at + 1, after, start, tail=tail)
                at = after
            case "{":
                before, after = source[start : token.start], closing(tokens, at)
                if _LAMBDA.search(before):
                    yield from _block(source, tokens, at, tail=tail)
                elif _BLOCK_HEAD.search(before):
                    yield from _block(source, tokens, at, tail=tail or "C10_UNLIKELY(" in before)
                    start = tokens[after].end if after < end else len(source)
                at = after
            case ";":
                text = source[start : token.start]
                yield text.strip(), start + len(text) - len(text.lstrip()), tail
                start = token.end
        at += 1


def _lambdas(
    source: str, tokens: Sequence[Token], begin: int, end: int, start: int, *, tail: bool
) -> Iterator[tuple[str, int, bool]]:
    """(statement, offset, tail) of the lambdas among the arguments of a call: tokens [begin, end).

    Args:
        start: the offset of the statement that contains them.
    """
    at = begin
    while at < end:
        if tokens[at].text == "{":
            if _LAMBDA.search(source[start : tokens[at].start]):
                yield from _block(source, tokens, at, tail=tail)
            at = closing(tokens, at)
        at += 1


def _statement(text: str, line: int) -> Statement | None:
    text = re.sub(r"#pragma[^\n]*\n", "", text).strip()
    if text.startswith(("return ", "inductor_cpu_integer_div", "inductor_cpu_throw")):
        return None
    if match := _STORE.search(text):
        return _build((match.group(2),), match.group(1), text, line, store=True)
    if match := _ATOMIC.match(text):
        return _build((match.group(1),), match.group(2), text, line, store=True)
    if match := _ELEMENT.match(text):
        return _build((match.group(1),), match.group(2), text, line, store=True)
    if match := _ASSIGNS.match(text):
        return _build((match.group(1),), match.group(2), text, line, store=False)
    if match := _CALL.match(text):
        words = tuple(dict.fromkeys(_WORD.findall(match.group(1))))
        return _build(words, match.group(1), text, line, store=True) if words else None
    return None


def _build(targets: tuple[str, ...], value: str, text: str, line: int, *, store: bool) -> Statement:
    compares = "[&]" not in value and " ? " not in value and _COMPARES.search(value) is not None
    expression = value
    if " ? " in value and "[&]" not in value:
        value = value.partition(" ? ")[2]
    initialises = all(target.startswith("tmp_acc") for target in targets)
    signs = {-1 if (m.group(1) or m.group(2)) else 1 for m in _INFINITY.finditer(value)}
    return Statement(
        targets=targets,
        store=store,
        names=frozenset() if compares else frozenset(_WORD.findall(value)),
        infinities=frozenset() if initialises or compares else frozenset(signs),
        negates=_NEGATES.search(f"= {value}") is not None,
        value=to_python(expression),
        text=" ".join(text.split()),
        line=line,
    )
