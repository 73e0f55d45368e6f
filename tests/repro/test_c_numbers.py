from __future__ import annotations

import ctypes

import pytest

from aoti_debug.repro import c_numbers


@pytest.mark.parametrize("ctype", sorted({*c_numbers.CTYPES.values(), *c_numbers.RECORDED.values()}))
def test_ctypes_has_the_types(ctype: str) -> None:
    assert hasattr(ctypes, ctype)
    made = eval(c_numbers.source(ctype, 1))
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
def test_values_become_what_the_type_holds(ctype: str, value: float, text: str) -> None:
    assert c_numbers.source(ctype, value) == text
