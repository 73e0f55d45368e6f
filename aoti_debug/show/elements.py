"""Decodes the elements of a small tensor into Python numbers; torch is imported only for rare dtypes."""

from __future__ import annotations

from typing import Any

from aoti_debug import dtypes


def decode(data: bytes, dtype: str) -> list[Any]:
    """The numbers in `data`: whole elements, row-major, little-endian."""
    values: list[Any] = _array(data, dtype).tolist()
    return values


def _array(data: bytes, dtype: str) -> Any:
    import numpy as np

    info = dtypes.of_name(dtype)
    if info and info.numpy:
        return np.frombuffer(data, dtype=info.numpy)
    if dtype == "bfloat16":
        return (np.frombuffer(data, dtype="<u2").astype("<u4") << 16).view("<f4")
    if dtype == "complex32":
        return np.frombuffer(data, dtype="<f2").astype("<f4").view("<c8")
    import torch

    return torch.frombuffer(bytearray(data), dtype=getattr(torch, dtype)).to(torch.float64)


def format_element(value: Any, dtype: str) -> str:
    """The number with 12 digits for dtypes of double precision, 6 for others."""
    if isinstance(value, (bool, int)):
        return str(value)
    digits = 12 if dtype in ("float64", "complex128") else 6
    if isinstance(value, complex):
        return f"{value.real:.{digits}g}{value.imag:+.{digits}g}j"
    return f"{value:.{digits}g}"
