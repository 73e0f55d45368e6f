"""Parses argument expressions of the generated C++: a tensor and its variable, a list, a number."""

from __future__ import annotations

import re

from aoti_debug.base.frozen import dataclass
from aoti_debug.instrument.wrapper.cpp_syntax.lexer import split_arguments, tokenize

_VIEW_WORDS = frozenset({"reinterpret_tensor_wrapper", "RAIIAtenTensorHandle"})
_WRAPPER_WORDS = _VIEW_WORDS | {"wrap_with_raii_handle_if_needed", "temporary_reference"}
_WRAPPED = re.compile(rf"({'|'.join(sorted(_WRAPPER_WORDS))})\s*\(")
_GET = re.compile(r"\s*\.\s*get\(\)\Z")
_OUTPUT_HANDLE = re.compile(r"&\s*output_handles\[(\d+)\]\Z")
_POINTER = re.compile(r"\(\s*(?P<ctype>(?:const\s+)?[\w:]+(?:<[\w:]+>)?\s*\*)\s*\)\s*(?P<value>.+)\Z", re.DOTALL)
_DATA_PTR = re.compile(r"\(?\s*(?P<tensor>.+?)\s*\.\s*data_ptr\(\)\s*\)?\Z", re.DOTALL)
_CAST = re.compile(r"\(\s*(?P<ctype>(?:const\s+)?[\w:]+)\s*\)\s*(?P<value>[^()]+)\Z")
_ARRAY = re.compile(r"std\s*::\s*array\b")
_ARRAY_CAST = re.compile(r"static_cast<[^<>()]*\*\s*>\((?P<array>.*)\)\Z", re.DOTALL)
_NAME = re.compile(r"[A-Za-z_]\w*\Z")
_NULL = frozenset({"nullptr", "NULL"})


class UnreadError(Exception):
    """A construct of a launch that is not read; its text says which."""


@dataclass(frozen=True)
class TensorExpression:
    """A tensor expression.

    Attributes:
        variable: the C++ variable that it refers to, without `_handle`: "buf3", "l_weight".
        is_view: True if the expression makes a view of that variable.
        key: equal for two expressions of one call that pass the same tensor.
    """

    variable: str
    is_view: bool
    key: str

    @property
    def name(self) -> str:
        """The variable, or "x_view" for a view of x."""
        return f"{self.variable}_view" if self.is_view else self.variable


@dataclass(frozen=True)
class Pointer:
    """`(const float*)(buf2.data_ptr())`: a pointer with the tensor that it comes from, and that tensor's text.

    Of a null pointer the tensor is None, and its text null; of a pointer from elsewhere None and "".
    """

    ctype: str
    tensor: TensorExpression | None
    tensor_text: str


def is_null(text: str) -> bool:
    """True if an expression is a null pointer constant."""
    return text in _NULL


def tensor(text: str) -> TensorExpression | None:
    """Parses a handle, a view, an `&x_handle` or a `&temporary_reference(x.get())`; None for other expressions."""
    if match := _OUTPUT_HANDLE.match(text):
        name = f"output{match.group(1)}"
        return TensorExpression(name, is_view=False, key=name)
    variable, is_view = text.removeprefix("&").strip(), False
    while not _NAME.match(variable):
        inner = _unwrapped(variable)
        if inner is None:
            return None
        variable, word = inner
        is_view |= word in _VIEW_WORDS
    if is_null(variable):
        return None
    if text.startswith("&"):
        variable = variable.removesuffix("_handle")
    return TensorExpression(variable, is_view, " ".join(text.split()) if is_view else variable)


def _unwrapped(text: str) -> tuple[str, str] | None:
    """Returns x and f of `f(x)` or `f(x, …)`, where f wraps a tensor, or x and "" of `x.get()`."""
    if match := _GET.search(text):
        return text[: match.start()].strip(), ""
    if match := _WRAPPED.match(text):
        tokens = tokenize(text, match.end() - 1)
        spans, end = split_arguments(tokens, 0)
        if spans and end == len(tokens) - 1:
            return text[spans[0].start : spans[0].end], match[1]
    return None


def pointer(text: str) -> Pointer | None:
    """Parses a C-style cast of a data pointer; None for other expressions."""
    match = _POINTER.match(text)
    if match is None:
        return None
    ctype = re.sub(r"\s+(?=\*)", "", match["ctype"])
    value = match["value"].strip()
    if is_null(value.strip("() ")):
        return Pointer(ctype, None, value.strip("() "))
    data = _DATA_PTR.match(value)
    source = tensor(data["tensor"]) if data else None
    return Pointer(ctype, source, data["tensor"] if data and source else "")


def cast(text: str) -> tuple[str, str] | None:
    """Returns (C type, value) of `(int)64`; None for other expressions."""
    match = _CAST.match(text)
    return (match["ctype"], match["value"].strip()) if match else None


def elements(text: str) -> tuple[str, ...] | None:
    """Returns the elements of `std::array<T, N>{...}.cbegin()` (or `.data()`, or that cast to a pointer).

    None for other expressions.
    """
    text = match["array"] if (match := _ARRAY_CAST.match(text)) else text
    if not _ARRAY.match(text):
        return None
    tokens = tokenize(text)
    opening = next((i for i, t in enumerate(tokens) if t.text == "{"), None)
    if opening is None:
        return None
    spans, end = split_arguments(tokens, opening)
    if "".join(t.text for t in tokens[end + 1 :]) not in (".cbegin()", ".data()", ".begin()"):
        return None
    return tuple(text[s.start : s.end] for s in spans)


def variable(text: str) -> str:
    """Returns the variable of `x` or `&x`; "" for other expressions."""
    bare = text.removeprefix("&").strip()
    return bare if _NAME.match(bare) else ""
