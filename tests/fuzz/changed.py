"""Strategies that change valid contents: bytes, JSON and text."""

from __future__ import annotations

import json
import re
from typing import Any

from hypothesis import strategies as st

from tests.fuzz.readers import Reader

_NUMBERS = (
    0,
    1,
    2,
    7,
    0x7F,
    0x80,
    0xFF,
    0xFFFF,
    0x7FFFFFFF,
    0x80000000,
    0xFFFFFFFF,
    1 << 40,
    (1 << 63) - 1,
    (1 << 64) - 1,
)
_STRANGE = (
    *("", "0", "-1", "nan", "inf", "1e999", "..", "/", "../x", "/etc/passwd", "a" * 300, "x\n error", "\x1b[31m"),
    *("(", ")", "{", "}", "[", "]", "<", ">", ",", ";", "'", '"', "\\", "/*", "*/", "//", 'R"(', "0x", "::", "?", ":"),
    *("*", "+", "-", "=", "if", "for", "while", "lambda", "\0", "\ud800", "é", "\u202e", "(" * 200, "-" * 200),
    *("[" * 50, "a." * 100, "1" * 5000, "int64_t", "AtenTensorHandle", "{}", "%s", "\n", "\t", "    ", "\r", "#"),
)
_TOKEN = re.compile(r"\w+|\s+|[^\w\s]")
_LEAVES = (
    st.none()
    | st.booleans()
    | st.sampled_from((*_NUMBERS, -1, -(1 << 40), 10**400, 1.5, 1e308))
    | st.sampled_from(_STRANGE)
)
_VALUES = st.recursive(
    _LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_STRANGE), inner, max_size=3),
    max_leaves=5,
)
_WHOLE = (b"", b"[]", b"null", b"{}", b"[" * 100_000, b'{"a":' * 50_000, b"\xff\xfe", b"\0" * 64, b"NaN", b'"\\ud800"')


@st.composite
def _bytes(draw: st.DrawFn, sample: bytes) -> bytes:
    data = bytearray(sample)
    for _ in range(draw(st.integers(1, 6))):
        size = len(data)
        at = draw(st.integers(0, max(size - 1, 0)))
        kind = draw(st.integers(0, 5))
        if kind == 0:
            data[at : at + 1] = bytes([draw(st.integers(0, 255))])
        elif kind == 1:
            width = draw(st.sampled_from((1, 2, 4, 8)))
            number = draw(st.sampled_from(_NUMBERS)) & ((1 << (8 * width)) - 1)
            aligned = at // width * width
            data[aligned : aligned + width] = number.to_bytes(width, "little")
        elif kind == 2:
            del data[at:]
        elif kind == 3:
            data[at:at] = draw(st.binary(max_size=16))
        elif kind == 4:
            del data[at : at + draw(st.integers(1, 64))]
        else:
            data[at:at] = data[at : at + draw(st.integers(1, 256))]
    return bytes(data)


@st.composite
def _text(draw: st.DrawFn, sample: bytes) -> bytes:
    tokens = _TOKEN.findall(sample.decode("utf-8", "replace"))
    for _ in range(draw(st.integers(1, 6))):
        at = draw(st.integers(0, max(len(tokens) - 1, 0)))
        kind = draw(st.integers(0, 4))
        if kind == 0:
            tokens[at : at + 1] = [draw(st.sampled_from(_STRANGE))]
        elif kind == 1:
            del tokens[at : at + draw(st.integers(1, 20))]
        elif kind == 2:
            tokens[at:at] = tokens[at : at + draw(st.integers(1, 30))]
        elif kind == 3 and tokens:
            other = draw(st.integers(0, len(tokens) - 1))
            tokens[at], tokens[other] = tokens[other], tokens[at]
        else:
            del tokens[at:]
    return "".join(tokens).encode("utf-8", "replace")


@st.composite
def _json(draw: st.DrawFn, sample: bytes) -> bytes:
    data = json.loads(sample)
    for _ in range(draw(st.integers(1, 4))):
        places = list(_places(data))
        if not places:
            return json.dumps(draw(_VALUES)).encode()
        parent, key = draw(st.sampled_from(places))
        kind = draw(st.integers(0, 3))
        if kind == 0:
            del parent[key]
        elif kind == 1 and isinstance(parent, dict):
            parent[draw(st.sampled_from(_STRANGE))] = parent[key]
        else:
            parent[key] = draw(_VALUES)
    return json.dumps(data).encode()


def _places(data: Any) -> list[tuple[Any, Any]]:
    found: list[tuple[Any, Any]] = []
    inner = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in inner:
        found.append((data, key))
        found += _places(value)
    return found


_FORMS = {"bytes": _bytes, "text": _text, "json": _json}


def contents(reader: Reader) -> st.SearchStrategy[bytes]:
    """Contents for a reader that are nearly valid, and a few that are far from it."""
    samples = st.sampled_from(list(reader.samples()))
    nearly = samples.flatmap(_FORMS[reader.form])
    if reader.form == "json":
        nearly |= samples.flatmap(_text)
    return nearly | st.sampled_from(_WHOLE)
