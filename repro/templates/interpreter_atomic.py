"""Atomic operations on arrays of elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
from triton.runtime import interpreter as triton_interpreter

from .interpreter_formats import Array, decode, encode, is_encoded

Combine = Callable[[Array, Array], Array]

_OPERATION = triton_interpreter._ir.ATOMIC_OP
_COMBINE: dict[Any, Combine] = {
    _OPERATION.ADD: numpy.add,
    _OPERATION.FADD: numpy.add,
    _OPERATION.MIN: numpy.minimum,
    _OPERATION.UMIN: numpy.minimum,
    _OPERATION.MAX: numpy.maximum,
    _OPERATION.UMAX: numpy.maximum,
    _OPERATION.AND: numpy.bitwise_and,
    _OPERATION.OR: numpy.bitwise_or,
    _OPERATION.XOR: numpy.bitwise_xor,
    _OPERATION.XCHG: lambda _, value: value,
}
_UNSIGNED = (_OPERATION.UMIN, _OPERATION.UMAX)


def atomic_function(operation: Any, dtype: Any) -> Combine:
    """Returns the function of an atomic operation on elements of a Triton type, as memory holds them."""
    combine = _COMBINE[operation]
    if operation == _OPERATION.XCHG:
        return combine
    if is_encoded(dtype):
        return lambda old, value: encode(combine(decode(old, dtype), decode(value, dtype)), dtype)
    if operation in _UNSIGNED:
        return lambda old, value: _as_unsigned(combine, old, value)
    return combine


def _as_unsigned(combine: Combine, old: Array, value: Array) -> Array:
    unsigned = f"uint{8 * old.itemsize}"
    return combine(old.view(unsigned), value.view(unsigned)).view(old.dtype)
