"""The statements of a C++ kernel as Inductor writes it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from aoti_debug.triage.kernel_source import cpp_expression
from aoti_debug.triage.kernel_source.statements import Statement

_INFINITY = re.compile(r"(-?)\s*(?:static_cast<[\w:]+>\()?(-?)std::numeric_limits<[^<>]*(?:\(\))?>::infinity\(\)")
_COMPARES = re.compile(r"[\w)\]]\s(?:==|!=|<=|>=|<|>|&&|\|\|)\s[\w(]|\bisnan\(|\bisinf\(|\.isnan\(|\.isinf\(")
_ASSIGNS = re.compile(r"(?:[\w:<>,\s\[\]]*?[\s*&])?(\w+)\s*=(?!=)\s*(.*)\Z", re.DOTALL)
_ELEMENT = re.compile(r"(\w+)\[.*?\]\s*=(?!=)\s*(.*)\Z", re.DOTALL)
_STORE = re.compile(r"(\w+)\.store\((\w+)\b", re.DOTALL)
_ATOMIC = re.compile(r"atomic_add\w*(?:<[^()]*>)?\(&?(\w+)\b(.*)\Z", re.DOTALL)
_CALL = re.compile(r"[\w:]+(?:<.*?>)?\((.*)\)\Z", re.DOTALL)
_WORD = re.compile(r"(?<![\w.:])[A-Za-z_]\w*(?!\w*::)")
_LAMBDA = re.compile(r"\[[&=]?\]\s*(?:\([^()]*\)\s*)?\Z")
_HEAD = re.compile(r"(?:\)|\belse|\A)\s*\Z")  # before the brace of a block; `for (…)`, `if (…)`
_NEGATES = re.compile(r"\.neg\(\)|\babs\(|\bfabs\(|\.abs\(\)|= -tmp\w")


def statements(source: str, name: str) -> Iterator[Statement]:
    """Those of the function `name`; none where it is not there."""
    head = re.search(rf"\b{re.escape(name)}\s*\([^()]*\)\s*\{{", source)
    if head is None:
        return
    for text, at, tail in _block(source, head.end(), tail=False):
        found = _statement(text, source.count("\n", 0, at) + 1)
        if found is not None:
            yield replace(found, tail=tail)


def _block(source: str, begin: int, *, tail: bool) -> Iterator[tuple[str, int, bool]]:
    """(statement, offset, tail) of the block whose `{` stands before `begin`: those of inner blocks and lambdas where
    they stand; a lambda's text is part of its statement, too."""
    start = at = begin
    depth = 0
    while at < len(source):
        match source[at]:
            case "(":
                depth += 1
            case ")":
                depth -= 1
            case "}":
                return
            case "{":
                before = source[start:at]
                end = _closing(source, at)
                if _LAMBDA.search(before):
                    yield from _block(source, at + 1, tail=tail)
                elif depth == 0 and _HEAD.search(before):
                    yield from _block(source, at + 1, tail=tail or "C10_UNLIKELY(" in before)
                    start = end + 1
                at = end
            case ";" if depth == 0:
                text = source[start:at]
                yield text.strip(), start + len(text) - len(text.lstrip()), tail
                start = at + 1
        at += 1


def _closing(source: str, opening: int) -> int:
    """Where the brace at `opening` is closed."""
    depth = 0
    for at in range(opening, len(source)):
        depth += {"{": 1, "}": -1}.get(source[at], 0)
        if depth == 0:
            return at
    return len(source)


def _statement(text: str, line: int) -> Statement | None:
    text = re.sub(r"#pragma[^\n]*\n", "", text).strip()
    if text.startswith(("return ", "inductor_cpu_integer_div", "inductor_cpu_throw")):
        return None
    if found := _STORE.search(text):
        return _made((found.group(2),), found.group(1), text, line, store=True)
    if found := _ATOMIC.match(text):
        return _made((found.group(1),), found.group(2), text, line, store=True)
    if found := _ELEMENT.match(text):
        return _made((found.group(1),), found.group(2), text, line, store=True)
    if found := _ASSIGNS.match(text):
        return _made((found.group(1),), found.group(2), text, line, store=False)
    if found := _CALL.match(text):
        words = tuple(dict.fromkeys(_WORD.findall(found.group(1))))
        return _made(words, found.group(1), text, line, store=True) if words else None
    return None


def _made(targets: tuple[str, ...], value: str, text: str, line: int, *, store: bool) -> Statement:
    compares = "[&]" not in value and " ? " not in value and _COMPARES.search(value) is not None
    whole = value
    if " ? " in value and "[&]" not in value:
        value = value.partition(" ? ")[2]
    begins = all(target.startswith("tmp_acc") for target in targets)
    signs = {-1 if (m.group(1) or m.group(2)) else 1 for m in _INFINITY.finditer(value)}
    return Statement(
        targets=targets,
        store=store,
        names=frozenset() if compares else frozenset(_WORD.findall(value)),
        infinities=frozenset() if begins or compares else frozenset(signs),
        flips=_NEGATES.search(f"= {value}") is not None,
        value=cpp_expression.to_python(whole),
        text=" ".join(text.split()),
        line=line,
    )
