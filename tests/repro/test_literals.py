from __future__ import annotations

import ast
import ctypes
import struct

import pytest

from aoti_debug.repro import literals


@pytest.mark.parametrize("value", [0, -1, 1 << 62, True, 0.1, 1e300, 5e-324, -0.0, float("inf"), float("-inf")])
def test_numbers_come_back(value: float) -> None:
    back = eval(literals.number(value), {"float": float})
    assert type(back) is type(value)
    assert struct.pack("<d", back) == struct.pack("<d", value)


def test_nan_comes_back() -> None:
    back = eval(literals.number(float("nan")), {"float": float})
    assert back != back


@pytest.mark.parametrize(
    "value", ["", "plain", "it's", 'say "x"', "both ' and \"", "back\\slash", "a\nb", "é\u2028", "\x00"]
)
def test_texts_come_back_on_one_line(value: str) -> None:
    literal = literals.text(value)
    assert ast.literal_eval(literal) == value
    assert len(literal.splitlines()) == 1


def test_plain_texts_are_double_quoted() -> None:
    assert literals.text("cpu") == '"cpu"'


@pytest.mark.parametrize("line", ["a\nb", "a\rimport os", "tab\tx", "\x00", "\u2028", "ends "])
def test_a_comment_stays_one_comment(line: str) -> None:
    text = literals.comment(line)
    assert text.startswith("#")
    assert ast.parse(text + "\nx = 1").body[0].lineno == 2


def test_identifiers_are_unique_and_legal() -> None:
    names = ["buf0", "lambda", "torch", "stride[0]", "stride_0_", "0x", "é", "buf0", ""]
    found = literals.identifiers(names)
    assert found["buf0"] == "buf0"
    assert found["lambda"] == "lambda_"
    assert found["torch"] == "torch_"
    assert len(set(found.values())) == len(set(names))
    assert all(value.isidentifier() and value.isascii() for value in found.values())


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ('"mean"', "mean"),
        (' "a\\"b\\\\" ', 'a"b\\'),
        ('"\\n"', "\n"),
        ("&var_0", None),
        ('"a" "b"', None),
        ("nullptr", None),
    ],
)
def test_c_strings(expression: str, value: str | None) -> None:
    assert literals.c_string(expression) == value


@pytest.mark.parametrize("ctype", sorted({*literals.CTYPES.values(), *literals.RECORDED_CTYPES.values()}))
def test_ctypes_has_the_types(ctype: str) -> None:
    assert hasattr(ctypes, ctype)
    made = eval(literals.ctypes_number(ctype, 1))
    assert type(made) is getattr(ctypes, ctype)
    assert made.value == 1


@pytest.mark.parametrize(
    ("ctype", "value", "text"),
    [
        ("c_int64", 16, "ctypes.c_int64(16)"),
        ("c_bool", 1, "ctypes.c_bool(True)"),
        ("c_float", 2, "ctypes.c_float(2.0)"),
        ("c_int32", True, "ctypes.c_int32(1)"),
    ],
)
def test_numbers_become_what_the_type_holds(ctype: str, value: float, text: str) -> None:
    assert literals.ctypes_number(ctype, value) == text
