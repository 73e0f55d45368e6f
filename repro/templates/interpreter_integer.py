"""libdevice's functions of integers, by symbol name without `__nv_`. All are exact."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy

Array = numpy.ndarray[Any, Any]


def _unsigned(x: Array) -> Array:
    bits: Array = numpy.ascontiguousarray(x).view(f"uint{8 * x.itemsize}")
    return bits


def _bits(x: Array) -> Array:
    """bool [..., bits], the least significant first."""
    positions = numpy.arange(8 * x.itemsize, dtype=_unsigned(x).dtype)
    bits: Array = (_unsigned(x)[..., None] >> positions & 1).astype(bool)
    return bits


def _popc(x: Array) -> Array:
    count: Array = _bits(x).sum(axis=-1).astype(numpy.int32)
    return count


def _ffs(x: Array) -> Array:
    return numpy.where(x == 0, 0, _bits(x).argmax(axis=-1) + 1).astype(numpy.int32)


def _clz(x: Array) -> Array:
    return numpy.where(x == 0, 8 * x.itemsize, _bits(x)[..., ::-1].argmax(axis=-1)).astype(numpy.int32)


def _brev(x: Array) -> Array:
    unsigned = _unsigned(x).dtype
    weights = numpy.array([1 << shift for shift in reversed(range(8 * x.itemsize))], dtype=unsigned)
    reversed_bits: Array = (_bits(x) * weights).sum(axis=-1, dtype=unsigned).view(x.dtype)
    return reversed_bits


def _byte_perm(x: Array, y: Array, selector: Array) -> Array:
    """Each byte of the result is one of the eight of y:x, chosen by a hexadecimal digit of the selector."""
    both = numpy.concatenate([_unsigned(value)[..., None].view(numpy.uint8) for value in (x, y)], axis=-1)
    digits = numpy.stack([_unsigned(selector) >> numpy.uint32(4 * i) & numpy.uint32(7) for i in range(4)], axis=-1)
    picked = numpy.take_along_axis(both, digits.astype(numpy.int64), axis=-1)
    return numpy.ascontiguousarray(picked).view(x.dtype)[..., 0]


def _mulhi(x: Array, y: Array) -> Array:
    """The upper half of the exact product."""
    bits = 8 * x.itemsize
    upper: Array = (x.astype(object) * y.astype(object) >> bits).astype(x.dtype)
    return upper


def _mul24(x: Array, y: Array) -> Array:
    """The lower 32 bits of the product of the lower 24."""
    spare = numpy.array(8, dtype=x.dtype)
    wide = numpy.int64 if x.dtype.kind == "i" else numpy.uint64
    product: Array = ((x << spare >> spare).astype(wide) * (y << spare >> spare).astype(wide)).astype(x.dtype)
    return product


def _mean(x: Array, y: Array, more: int) -> Array:
    """(x + y + more) / 2 without overflow."""
    mean: Array = (x.astype(numpy.int64) + y.astype(numpy.int64) + more >> 1).astype(x.dtype)
    return mean


def _sad(x: Array, y: Array, z: Array) -> Array:
    """|x - y| + z"""
    distance = numpy.abs(x.astype(numpy.int64) - y.astype(numpy.int64))
    return (distance + z.astype(numpy.int64)).astype(z.dtype)


def _words(x: Array) -> Array:
    """int32 [..., 2]: the low and the high half of doubles."""
    return numpy.ascontiguousarray(x)[..., None].view(numpy.int32)


def _from_words(high: Array, low: Array) -> Array:
    return numpy.ascontiguousarray(numpy.stack([low, high], axis=-1)).view(numpy.float64)[..., 0]


INTEGER: dict[str, Callable[..., Array]] = {
    **dict.fromkeys(("abs", "llabs"), numpy.abs),
    **dict.fromkeys(("popc", "popcll"), _popc),
    **dict.fromkeys(("ffs", "ffsll"), _ffs),
    **dict.fromkeys(("clz", "clzll"), _clz),
    **dict.fromkeys(("brev", "brevll"), _brev),
    **dict.fromkeys(("mulhi", "umulhi", "mul64hi", "umul64hi"), _mulhi),
    **dict.fromkeys(("mul24", "umul24"), _mul24),
    **dict.fromkeys(("hadd", "uhadd"), lambda x, y: _mean(x, y, 0)),
    **dict.fromkeys(("rhadd", "urhadd"), lambda x, y: _mean(x, y, 1)),
    **dict.fromkeys(("sad", "usad"), _sad),
    "byte_perm": _byte_perm,
    "double2loint": lambda x: _words(x)[..., 0],
    "double2hiint": lambda x: _words(x)[..., 1],
    "hiloint2double": _from_words,
}
