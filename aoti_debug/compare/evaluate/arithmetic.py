"""The arithmetics that a region is evaluated in, and how each of them stores a value."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

_HALF = ("float16", "bfloat16")


class Arithmetic(str, Enum):
    """The arithmetic of the operators of a region."""

    EAGER = "eager"  # as the program says: every operator rounds to its own dtype
    KERNEL = "kernel"  # float32 within the region for float16 and bfloat16, as in a fused kernel; TF32 where allowed
    DOUBLE = "float64"


_WIDER: Mapping[Arithmetic, Mapping[str, str]] = {
    Arithmetic.EAGER: {},
    Arithmetic.KERNEL: dict.fromkeys(_HALF, "float32"),
    Arithmetic.DOUBLE: {**dict.fromkeys((*_HALF, "float32"), "float64"), "complex64": "complex128"},
}


def wider(dtype: str, arithmetic: Arithmetic) -> str:
    """The dtype that stands for another one within a region: "float64" for "bfloat16"."""
    return _WIDER[arithmetic].get(dtype, dtype)


def unit(dtype: torch.dtype) -> float:
    """The relative distance of neighbouring numbers in the arithmetic that kernels use for a dtype."""
    import torch

    return 2.0**-52 if dtype == torch.float64 else 2.0**-23
