"""The elements of a small tensor as Python numbers and as text."""

from __future__ import annotations

from typing import Any

from aoti_debug.runs.rundir.formats import stored_tensor


def decode(data: bytes, dtype: str) -> list[Any]:
    """The numbers in `data`: whole elements, row-major, little-endian.

    Raises:
        TypeError: the elements of the dtype cannot be read as numbers, or it is not known.
    """
    values: list[Any] = stored_tensor.numbers(data, dtype).tolist()
    return values


def format_element(value: Any, dtype: str) -> str:
    """The number with 12 digits for dtypes of double precision, 6 for others."""
    if isinstance(value, (bool, int)):
        return str(value)
    digits = 12 if dtype in ("float64", "complex128") else 6
    if isinstance(value, complex):
        return f"{value.real:.{digits}g}{value.imag:+.{digits}g}j"
    return f"{value:.{digits}g}"
