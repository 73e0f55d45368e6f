"""NVIDIA's libdevice by symbol name, and the few PTX instructions that Inductor writes by hand.

Accuracy: a float32 function is computed in double precision and rounded once, so it is within 0.51 ULP of the true
value, except the gamma and Bessel functions (1 ULP). A float64 function is numpy's or torch's: within 4 ULP, 16 ULP for
the gamma and Bessel functions and the inverse error functions. libdevice itself is within 0 to 8 ULP, so last bits
differ from a GPU's. Subnormal numbers are kept, also where the GPU flushes them to zero (`__nv_fast_…`, `.ftz`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy
import torch
from triton.runtime import interpreter as triton_interpreter

from .interpreter_values import Array, to_integers
from .kernel import NotInterpretableError

Function = Callable[..., Array]

_SQRT_HALF = numpy.sqrt(0.5)


def _unsigned(x: Array) -> Array:
    bits: Array = numpy.ascontiguousarray(x).view(f"uint{8 * x.itemsize}")
    return bits


def _bit_count(x: Array) -> Array:
    """bool [..., bits], the least significant first."""
    positions = numpy.arange(8 * x.itemsize, dtype=_unsigned(x).dtype)
    bits: Array = (_unsigned(x)[..., None] >> positions & 1).astype(bool)
    return bits


def _popc(x: Array) -> Array:
    count: Array = _bit_count(x).sum(axis=-1).astype(numpy.int32)
    return count


def _ffs(x: Array) -> Array:
    return numpy.where(x == 0, 0, _bit_count(x).argmax(axis=-1) + 1).astype(numpy.int32)


def _clz(x: Array) -> Array:
    return numpy.where(x == 0, 8 * x.itemsize, _bit_count(x)[..., ::-1].argmax(axis=-1)).astype(numpy.int32)


def _brev(x: Array) -> Array:
    unsigned = _unsigned(x).dtype
    weights = numpy.array([1 << shift for shift in reversed(range(8 * x.itemsize))], dtype=unsigned)
    reversed_bits: Array = (_bit_count(x) * weights).sum(axis=-1, dtype=unsigned).view(x.dtype)
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


def fused(x: Array, y: Array, z: Array) -> Array:
    """x * y + z. Rounded once where Triton's interpreter can do so; else float32 by way of double, float64 twice."""
    if x.dtype in (numpy.float32, numpy.float64):
        native = getattr(triton_interpreter._interpreter, f"fma_fp{8 * x.itemsize}", None)
        if native is not None:
            values: Array = native(*map(numpy.array, numpy.broadcast_arrays(x, y, z)))
            return values
    return (x.astype(numpy.float64) * y + z).astype(x.dtype)


def _torch(function: Callable[..., torch.Tensor]) -> Function:
    def computed(*operands: Array) -> Array:
        values: Array = function(*(torch.from_numpy(numpy.array(operand)) for operand in operands)).numpy()
        return values

    return computed


_erfc = _torch(torch.special.erfc)
_normcdfinv = _torch(torch.special.ndtri)


def _tgamma(x: Array) -> Array:
    """By the logarithm, with the sign of the reflection; exact for small integers."""
    sign = numpy.where((x < 0) & (numpy.floor(x) % 2 != 0), -1.0, 1.0)
    value = sign * numpy.exp(_torch(torch.special.gammaln)(x))
    whole = (x == numpy.floor(x)) & (x > 0) & (x < 24)
    value = numpy.where(whole, numpy.round(value), value)
    value = numpy.where(x == 0, numpy.copysign(numpy.inf, x), value)
    undefined = ((x < 0) & (x == numpy.floor(x))) | (x == -numpy.inf)
    return numpy.where(undefined, numpy.nan, value)


def _round(x: Array) -> Array:
    """To nearest, ties away from zero."""
    below = numpy.trunc(x)
    return numpy.where(numpy.abs(x - below) >= 0.5, below + numpy.copysign(1.0, x), numpy.copysign(below, x))


def _powi(x: Array, n: Array) -> Array:
    return numpy.power(x, n.astype(numpy.float64))


def _logb(x: Array) -> Array:
    exponent = numpy.frexp(x)[1] - 1.0
    special = numpy.where(x == 0, -numpy.inf, numpy.abs(x))
    return numpy.where((x == 0) | ~numpy.isfinite(x), special, exponent)


def _ilogb(x: Array) -> Array:
    exponent = numpy.frexp(x)[1] - 1
    special = numpy.where(numpy.isinf(x), 2**31 - 1, -(2**31))
    return numpy.where((x == 0) | ~numpy.isfinite(x), special, exponent).astype(numpy.int32)


def _fdim(x: Array, y: Array) -> Array:
    return numpy.where(numpy.isnan(x) | numpy.isnan(y), numpy.nan, numpy.maximum(x - y, 0.0))


def _remainder(x: Array, y: Array) -> Array:
    """IEEE: x minus the nearest multiple of y."""
    rest = numpy.fmod(x, y)
    half = numpy.abs(y) / 2
    odd = numpy.fmod(numpy.trunc((x - rest) / y), 2) != 0
    over = (numpy.abs(rest) > half) | ((numpy.abs(rest) == half) & odd)
    return numpy.where(over, rest - numpy.copysign(y, rest), rest)


def _norm(*x: Array) -> Array:
    length: Array = numpy.sqrt(sum((value * value for value in x[1:]), x[0] * x[0]))
    return length


def _bessel_n(first: Function, second: Function) -> Function:
    """Order n by upward recurrence from orders 0 and 1."""

    def computed(n: Array, x: Array) -> Array:
        orders = [first(x), second(x)]
        for order in range(1, max(2, int(n.max(initial=0)))):
            orders.append(2.0 * order / x * orders[order] - orders[order - 1])
        result = numpy.full(x.shape, numpy.nan)
        for order, values in enumerate(orders):
            result = numpy.where(n == order, values, result)
        return result

    return computed


def _saturate(x: Array) -> Array:
    return numpy.where(numpy.isnan(x), 0.0, numpy.clip(x, 0.0, 1.0))


_j0, _j1 = _torch(torch.special.bessel_j0), _torch(torch.special.bessel_j1)
_y0, _y1 = _torch(torch.special.bessel_y0), _torch(torch.special.bessel_y1)

# By the name of the double-precision function. Operands: float64, or integers as they are.
REAL: dict[str, Function] = {
    **{name: getattr(numpy, f"arc{name[1:]}") for name in ("acos", "asin", "atan", "acosh", "asinh", "atanh", "atan2")},
    **{name: getattr(numpy, name) for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh", "exp", "exp2", "expm1")},
    **{name: getattr(numpy, name) for name in ("log", "log2", "log10", "log1p", "sqrt", "cbrt", "floor", "ceil")},
    **{name: getattr(numpy, name) for name in ("trunc", "rint", "fabs", "fmod", "hypot", "copysign")},
    **{name: getattr(numpy, name) for name in ("ldexp", "fmin", "fmax")},
    "pow": numpy.power,
    "powi": _powi,
    "exp10": lambda x: numpy.power(10.0, x),
    "rsqrt": lambda x: 1 / numpy.sqrt(x),
    "rcbrt": lambda x: 1 / numpy.cbrt(x),
    "rhypot": lambda x, y: 1 / numpy.hypot(x, y),
    "norm3d": _norm,
    "norm4d": _norm,
    "rnorm3d": lambda *x: 1 / _norm(*x),
    "rnorm4d": lambda *x: 1 / _norm(*x),
    "sinpi": lambda x: numpy.sin(numpy.pi * numpy.fmod(x, 2.0)),
    "cospi": lambda x: numpy.cos(numpy.pi * numpy.fmod(x, 2.0)),
    "nearbyint": numpy.rint,
    "round": _round,
    "scalbn": numpy.ldexp,
    "logb": _logb,
    "fdim": _fdim,
    "remainder": _remainder,
    "fdivide": numpy.divide,
    "saturate": _saturate,
    "erf": _torch(torch.special.erf),
    "erfc": _erfc,
    "erfcx": _torch(torch.special.erfcx),
    "erfinv": _torch(torch.special.erfinv),
    "erfcinv": lambda x: -_normcdfinv(x / 2) * _SQRT_HALF,
    "normcdf": lambda x: 0.5 * _erfc(-x * _SQRT_HALF),
    "normcdfinv": _normcdfinv,
    "lgamma": _torch(torch.special.gammaln),
    "tgamma": _tgamma,
    "j0": _j0,
    "j1": _j1,
    "y0": _y0,
    "y1": _y1,
    "jn": _bessel_n(_j0, _j1),
    "yn": _bessel_n(_y0, _y1),
    "cyl_bessel_i0": _torch(torch.special.i0),
    "cyl_bessel_i1": _torch(torch.special.i1),
}

# Of either precision, with a result that is no rounded double.
PREDICATES: dict[str, Function] = {
    "isnan": numpy.isnan,
    "isinf": numpy.isinf,
    "isfinite": numpy.isfinite,
    "finite": numpy.isfinite,
    "signbit": numpy.signbit,
    "ilogb": _ilogb,
    "llrint": lambda x: to_integers(numpy.rint(x), numpy.dtype(numpy.int64)),
    "llround": lambda x: to_integers(_round(x), numpy.dtype(numpy.int64)),
}

_ARITHMETIC: dict[str, Function] = {
    "add": numpy.add,
    "sub": numpy.subtract,
    "mul": numpy.multiply,
    "div": numpy.divide,
    "rcp": lambda x: 1 / x,
    "sqrt": numpy.sqrt,
    "rsqrt": lambda x: 1 / numpy.sqrt(x),
    "fma": lambda x, y, z: fused(x, y, z),
}
_BITS = {"float_as_int": "int32", "float_as_uint": "uint32", "int_as_float": "float32", "uint_as_float": "float32"}
_BITS |= {"double_as_longlong": "int64", "longlong_as_double": "float64"}
_TYPES = {"int": "int32", "uint": "uint32", "ll": "int64", "ull": "uint64", "float": "float32", "double": "float64"}


def library_function(symbol: str) -> Function:
    """Returns the function of a libdevice symbol, on arrays.

    Raises:
        NotInterpretableError: the symbol is not known.
    """
    name = symbol.removeprefix("__nv_").removeprefix("fast_")
    if name in INTEGER:
        return INTEGER[name]
    if name in _BITS:
        return lambda x: numpy.ascontiguousarray(x).view(_BITS[name])
    if name in ("nextafter", "nextafterf"):
        return numpy.nextafter
    for stem in (name, name[:-1]):
        if stem == "fma":
            return fused
        if stem in PREDICATES:
            return PREDICATES[stem]
        if stem in REAL:
            return _rounded(REAL[stem])
    conversion = re.fullmatch(r"(u?int|u?ll|float|double)2(u?int|u?ll|float|double)_(r[nzud])", name)
    if conversion:
        return _conversion(numpy.dtype(_TYPES[conversion[2]]), conversion[3])
    arithmetic = re.fullmatch(r"(fmaf?|[fd](?:add|sub|mul|div|rcp|sqrt|rsqrt))_(r[nzud])", name)
    if arithmetic:
        name, rounding = arithmetic.groups()
        stem = "fma" if name.startswith("fma") else name[1:]
        return _directed(_ARITHMETIC[stem], rounding, double=name.startswith("d") or name == "fma")
    raise NotInterpretableError(f"the libdevice function {symbol} is not known")


def asm_function(asm: str) -> Function:
    """Returns the function of one PTX instruction `name $0, $1, …;`, on float32 arrays.

    Raises:
        NotInterpretableError: it is another instruction, or several.
    """
    match = re.fullmatch(r"\s*([\w.]+)\s+\$0((?:\s*,\s*\$\d)+)\s*;?\s*", asm)
    operands = re.findall(r"\d", match[2]) if match else []
    parts = match[1].split(".") if match else [""]
    function = _INSTRUCTIONS.get(parts[0])
    known = parts[-1] == "f32" and set(parts[1:-1]) <= {"rn", "approx", "ftz", "full"}
    if function is None or not known or operands != [str(i + 1) for i in range(len(operands))]:
        raise NotInterpretableError(f"inline assembly is not known: {asm}")
    return _rounded(function)


_INSTRUCTIONS: dict[str, Function] = {
    **{name: REAL[name] for name in ("sin", "cos", "tanh", "sqrt", "rsqrt")},
    **{name: _ARITHMETIC[name] for name in ("add", "sub", "mul", "div", "rcp", "fma")},
    "ex2": numpy.exp2,
    "lg2": numpy.log2,
    "min": numpy.fmin,
    "max": numpy.fmax,
    "abs": numpy.fabs,
    "neg": numpy.negative,
}


def _rounded(function: Function) -> Function:
    """Computes floats in double precision; the result has the widest type of the float operands."""

    def computed(*operands: Array) -> Array:
        kept: Any = numpy.result_type(*(o.dtype for o in operands if o.dtype.kind == "f"))
        return function(*(o.astype(numpy.float64) if o.dtype.kind == "f" else o for o in operands)).astype(kept)

    return computed


def _directed(function: Function, rounding: str, *, double: bool) -> Function:
    """Arithmetic that rounds towards zero (rz), up (ru), down (rd) or to nearest (rn).

    Raises:
        NotInterpretableError: in double precision only to nearest is known.
    """
    if double:
        if rounding != "rn":
            raise NotInterpretableError(f"double-precision arithmetic rounded with {rounding} is not known")
        return function
    return lambda *operands: _float32(function(*(o.astype(numpy.float64) for o in operands)), rounding)


def _float32(exact: Array, rounding: str) -> Array:
    nearest = exact.astype(numpy.float32)
    if rounding == "rn":
        return nearest
    towards_zero = numpy.abs(nearest.astype(numpy.float64)) > numpy.abs(exact)
    wrong = {"rz": towards_zero, "ru": nearest < exact, "rd": nearest > exact}[rounding]
    target = numpy.float32({"rz": 0.0, "ru": numpy.inf, "rd": -numpy.inf}[rounding])
    return numpy.where(wrong, numpy.nextafter(nearest, target), nearest)


def _conversion(target: numpy.dtype[Any], rounding: str) -> Function:
    """From a float or an integer to another, rounded with `rounding`."""
    if target.kind in "iu":
        rounded = {"rn": numpy.rint, "rz": numpy.trunc, "ru": numpy.ceil, "rd": numpy.floor}[rounding]
        return lambda x: to_integers(rounded(x.astype(numpy.float64)), target)
    if target == numpy.float32 and rounding != "rn":
        return lambda x: _float32(x.astype(numpy.float64), rounding)
    return lambda x: x.astype(target)
