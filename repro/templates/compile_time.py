"""Functions that Triton evaluates while it compiles a kernel; in Triton's interpreter they are plain functions."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl


def constexpr_next_power_of_2(n: Any, *, _semantic: object = None) -> Any:
    """The next power of two of a constant."""
    return tl.constexpr(triton.next_power_of_2(_value(n)))


def if_mask(mask: Any, val: Any, *, _semantic: object = None) -> Any:
    """`val` where there is a mask, and None where there is none: a load takes no `other` without a mask."""
    return tl.constexpr(None) if _value(mask) is None else val


def _value(constant: Any) -> Any:
    return constant.value if isinstance(constant, tl.constexpr) else constant


_FUNCTIONS: tuple[Any, ...] = (constexpr_next_power_of_2, if_mask)
for _function in _FUNCTIONS:
    _function.__triton_builtin__ = True  # what Triton calls while it compiles
