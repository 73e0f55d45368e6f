"""A C++ kernel's source with checked pointers in place of plain ones. Every line stays where it was."""

from __future__ import annotations

import re

OPENING, CLOSING = "([{<", ")]}>"
_TYPE = r"(?:const\s+)?[\w:]+(?:<[^<>]*>)?(?:\s+const)?"
_POINTER = re.compile(rf"^\s*({_TYPE})\s*\*\s*(?:__restrict__\s*|const\s+)?(\w+)\s*$")
_DIVISION = re.compile(r"(?<![\w:.])(floor_divide_integral|remainder_integral|mod)\(| / ")
_INCLUDE = re.compile(r"(?m)^[ \t]*#[ \t]*include\b[^\n]*$")
_PREFIX = "cpp_prefix.h"


class NotCheckableError(Exception):
    """The source is of no form that is known here."""


def checked_source(source: str, kernel: str, header: str) -> str:
    """Returns the text to compile: what it includes, then the pointers, then the kernel with line numbers of its own.

    The checks in headers stay theirs: only those of the kernel are counted.

    Args:
        header: the text of checked_pointer.h.

    Raises:
        NotCheckableError: there is no function `kernel` with plain pointers.
    """
    text = _with_parameters(_INCLUDE.sub("", source), kernel)
    text = _with_divisions(_with_vectors(text))
    others = [line.strip() for line in _INCLUDE.findall(source) if _PREFIX not in line]
    included = "\n".join(["#include <torch/csrc/inductor/cpp_prefix.h>", *others])
    return f'{included}\n#line 1 "checked_pointer.h"\n{header}\n#line 1 "SOURCE"\n{text}'


def parameters_of(source: str, kernel: str) -> list[str]:
    """The names of the kernel's parameters, in order.

    Raises:
        NotCheckableError: there is no such function.
    """
    begin, end = _parameters(source, kernel)
    names = [re.search(r"(\w+)\s*$", parameter) for parameter in _split(source[begin:end])]
    return [name[1] for name in names if name is not None]


def _parameters(source: str, kernel: str) -> tuple[int, int]:
    """The positions at which the parameters of the kernel's definition begin and end."""
    for found in re.finditer(rf"\b{re.escape(kernel)}\s*\(", source):
        end = _closing(source, found.end() - 1)
        if source[end + 1 :].lstrip().startswith("{"):
            return found.end(), end
    raise NotCheckableError(f"its source defines no function {kernel}")


def _with_parameters(source: str, kernel: str) -> str:
    begin, end = _parameters(source, kernel)
    declared = source[:begin]
    if re.search(rf"\b{re.escape(kernel)}\s*\([^;{{]*\)\s*;", declared):
        raise NotCheckableError(f"its source declares {kernel} before it defines it")
    made = []
    for parameter in _split(source[begin:end]):
        pointer = _POINTER.match(parameter)
        if "*" in parameter and pointer is None:
            raise NotCheckableError(f"its parameter {parameter.strip()} is no plain pointer")
        lines = "\n" * parameter.count("\n")
        made.append(parameter if pointer is None else f"{lines}::replay::Pointer<{pointer[1].strip()}> {pointer[2]}")
    return source[:begin] + ",".join(made) + source[end:]


def _with_vectors(text: str) -> str:
    """Loads and stores of vectors by functions that see both the vector and the pointer."""
    text = re.sub(r"\bat::vec::transpose_mxn\b", "transpose_mxn", text)
    at = 0
    while (found := re.compile(r"(::|\.template\s+|\.)(loadu|store|from)\b").search(text, at)) is not None:
        at = found.end()
        if found[1] == "::" and found[2] in ("loadu", "from"):
            begin = _type_before(text, found.start())
            if begin == found.start():
                continue
            name = "loadu" if found[2] == "loadu" else "mask_from"
            head = f"::replay::{name}<{text[begin : found.start()]}>"
            text, at = text[:begin] + head + text[found.end() :], begin + len(head)
        elif found[1] == "." and found[2] == "store":
            text, at = _method(text, found, "store", "")
        elif found[1].startswith(".template") and found[2] == "loadu":
            end = _closing(text, found.end())
            text, at = _method(text, found, "masked_loadu", text[found.end() : end + 1])
    return text


def _with_divisions(text: str) -> str:
    """Divisors of integers by functions that see them: floor_divide_integral(a, b), remainder_integral(a, b), a / b."""
    at = 0
    while (found := _DIVISION.search(text, at)) is not None:
        at = found.end()
        if found[1]:
            end = _closing(text, found.end() - 1)
            parts = _split(text[found.end() : end])
            if len(parts) != 2 or not text[found.end() : end].strip():
                continue
            made = _checked_divisor(parts[0], parts[1], checks_both=found[1] == "floor_divide_integral")
            text = f"{text[: found.end()]}{parts[0]}, {made}{text[end:]}"
        else:
            begin, end = _expression_before(text, found.start()), _primary(text, found.end())
            if begin < found.start() and end > found.end():
                made = _checked_divisor(text[begin : found.start()], text[found.end() : end], checks_both=True)
                text, at = f"{text[: found.end()]}{made}{text[end:]}", found.end() + len(made)
    return text


def _checked_divisor(dividend: str, divisor: str, *, checks_both: bool) -> str:
    both = f"divisor_of({dividend.strip()}, {divisor.strip()})" if checks_both else f"divisor({divisor.strip()})"
    return f"::replay::{both}"


def _primary(text: str, begin: int) -> int:
    """The end of the variable, or of the vector that is made of one, that begins there; `begin` for anything else."""
    found = re.compile(r"tmp\d+\b(?![\w.(\[])|decltype(?=\(\w+\)::set\()").match(text, begin)
    if found is None or found[0] != "decltype":
        return begin if found is None else found.end()
    return _closing(text, text.index("(", _closing(text, found.end()))) + 1


def _method(text: str, found: re.Match[str], function: str, types: str) -> tuple[str, int]:
    """object.method<types>(…) as ::replay::function<types>(object, …); and where to go on."""
    bracket = found.end() + len(types)
    begin = _expression_before(text, found.start())
    if text[bracket : bracket + 1] != "(" or begin == found.start():
        return text, found.end()
    head = f"::replay::{function}{types}({text[begin : found.start()]}, "
    return text[:begin] + head + text[bracket + 1 :], begin + len(head)


def _type_before(text: str, end: int) -> int:
    """The position at which the type that ends there begins: names, ::, and <…>."""
    at = end
    while at > 0:
        if text[at - 1] == ">" or (text[at - 1] == ")" and re.search(r"\bdecltype$", text[: _opening(text, at - 1)])):
            at = _opening(text, at - 1)
        elif text[at - 1].isalnum() or text[at - 1] in "_:":
            at -= 1
        else:
            break
    return at


def _expression_before(text: str, end: int) -> int:
    """The position at which the primary expression that ends there begins: a name, a call, something in brackets."""
    at = end
    while at > 0:
        if text[at - 1] in ")]>":
            at = _opening(text, at - 1)
        elif text[at - 1].isalnum() or text[at - 1] in "_:.":
            at -= 1
        elif text.endswith(".template ", 0, at):
            at -= len("template ")
        else:
            break
    return at


def _closing(text: str, at: int) -> int:
    """The position of the bracket that closes the one opened there. Brackets of other kinds are skipped."""
    kind = OPENING.index(text[at])
    depth = 0
    for i in range(at, len(text)):
        depth += (text[i] == OPENING[kind]) - (text[i] == CLOSING[kind])
        if depth == 0:
            return i
    raise NotCheckableError("its brackets are not closed")


def _opening(text: str, at: int) -> int:
    """The position of the bracket that opens the one closed there."""
    kind = CLOSING.index(text[at])
    depth = 0
    for i in range(at, -1, -1):
        depth += (text[i] == CLOSING[kind]) - (text[i] == OPENING[kind])
        if depth == 0:
            return i
    raise NotCheckableError("its brackets are not opened")


def _split(text: str) -> list[str]:
    """At commas outside of brackets; [] for nothing."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in OPENING) - (letter in CLOSING)
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return parts if text.strip() else []
