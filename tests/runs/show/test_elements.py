from __future__ import annotations

import math
from typing import Any

import pytest

from aoti_debug.runs.show.elements import decode, format_element

torch = pytest.importorskip("torch")

REAL = ["float16", "bfloat16", "float32", "float64", "float8_e5m2", "float8_e4m3fn", "float8_e4m3fnuz"]
INTEGER = ["uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"]


def raw(value: Any) -> bytes:
    return bytes(value.contiguous().flatten().view(torch.uint8).tolist())


@pytest.mark.parametrize("dtype", [*REAL, *INTEGER, "bool"])
def test_elements_are_torchs(dtype: str) -> None:
    value = torch.tensor([0.0, 1.0, 3.5, 100.0]).to(getattr(torch, dtype))
    assert decode(raw(value), dtype) == value.to(torch.float64).tolist()


@pytest.mark.parametrize("dtype", ["complex32", "complex64", "complex128"])
def test_complex_elements(dtype: str) -> None:
    parts = torch.tensor([[1.5, -2.0], [0.0, 4.0]])
    real = {"complex32": torch.float16, "complex64": torch.float32, "complex128": torch.float64}[dtype]
    assert decode(raw(parts.to(real)), dtype) == [1.5 - 2j, 4j]


def test_what_is_not_a_number() -> None:
    (value,) = decode(raw(torch.tensor([math.nan], dtype=torch.bfloat16)), "bfloat16")
    assert math.isnan(value)


@pytest.mark.parametrize(
    ("value", "dtype", "spelled"),
    [
        (0.1234567891, "float32", "0.123457"),
        (0.1234567891, "float64", "0.1234567891"),
        (2**53 + 1, "int64", "9007199254740993"),
        (True, "bool", "True"),
        (1.5 - 2j, "complex64", "1.5-2j"),
        (math.inf, "float32", "inf"),
    ],
)
def test_spelling(value: Any, dtype: str, spelled: str) -> None:
    assert format_element(value, dtype) == spelled
