"""libdevice by symbol: every one that Triton declares is known or refused by name, and as accurate as is said."""

from __future__ import annotations

import importlib
import inspect
import math
import re
from collections.abc import Callable

import numpy
import pytest
import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

from aoti_debug.repro.templates.interpreter import NotInterpretableError, interpret
from aoti_debug.repro.templates.interpreter_libdevice import asm_function, library_function
from aoti_debug.repro.templates.interpreter_values import Array
from tests.repro import interpreter_inductor_kernels

DECLARED = inspect.getsource(importlib.import_module("triton.language.extra.cuda.libdevice"))
SYMBOLS = sorted(set(re.findall(r'"(__nv_\w+)"', DECLARED)))
# Double-precision arithmetic that rounds up, down or towards zero, and the upper half of a reciprocal.
REFUSED = re.compile(r"__nv_(d(add|sub|mul|div|rcp|sqrt)|fma)_r[zud]|__nv_rcp64h")

FLOATS = numpy.concatenate(
    [numpy.linspace(-20, 20, 401), numpy.logspace(-30, 30, 121), [0.0, -0.0, math.inf, -math.inf, math.nan]]
).astype(numpy.float32)
SPECIAL_FUNCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    **{f"__nv_{name}f": getattr(torch, name) for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh", "exp", "exp2")},
    **{f"__nv_{name}f": getattr(torch, name) for name in ("log", "log2", "log10", "log1p", "expm1", "sqrt", "rsqrt")},
    **{f"__nv_{name}f": getattr(torch, name) for name in ("asin", "acos", "atan", "asinh", "acosh", "atanh")},
    **{f"__nv_{name}f": getattr(torch, name) for name in ("floor", "ceil", "trunc", "erf", "erfc", "erfinv", "lgamma")},
    "__nv_erfcxf": torch.special.erfcx,
    "__nv_nearbyintf": torch.round,
    "__nv_j0f": torch.special.bessel_j0,
    "__nv_y1f": torch.special.bessel_y1,
    "__nv_cyl_bessel_i0f": torch.special.i0,
    "__nv_normcdff": lambda x: torch.special.log_ndtr(x).exp(),  # ndtr loses the small ones
    "__nv_fast_expf": torch.exp,
}


def int32(values: list[int]) -> Array:
    return numpy.array(values, numpy.int32)


def uint64(values: list[int]) -> Array:
    return numpy.array(values, numpy.uint64)


def float32(values: list[float]) -> Array:
    return numpy.array(values, numpy.float32)


def test_every_declared_symbol_is_known_or_refused_by_name() -> None:
    assert len(SYMBOLS) > 250
    for symbol in SYMBOLS:
        if REFUSED.fullmatch(symbol):
            with pytest.raises(NotInterpretableError, match=r"is not known"):
                library_function(symbol)
        else:
            assert callable(library_function(symbol))


def test_an_unknown_symbol_is_named() -> None:
    with pytest.raises(NotInterpretableError, match="the libdevice function __nv_frobnicatef is not known"):
        library_function("__nv_frobnicatef")


@pytest.mark.parametrize("symbol", SPECIAL_FUNCTIONS)
def test_float32_functions_are_the_rounded_double_ones(symbol: str) -> None:
    with numpy.errstate(all="ignore"):
        got = library_function(symbol)(FLOATS)
    exact = SPECIAL_FUNCTIONS[symbol](torch.from_numpy(FLOATS).double()).numpy()
    assert got.dtype == numpy.float32
    with numpy.errstate(all="ignore"):
        nearest = exact.astype(numpy.float32)
        error = numpy.abs(got.astype(numpy.float64) - exact) / numpy.spacing(numpy.abs(nearest)).astype(numpy.float64)
    finite = numpy.isfinite(nearest) & numpy.isfinite(got)
    assert numpy.nanmax(numpy.where(finite, error, 0.0)) <= 0.51
    assert numpy.array_equal(got[~finite], nearest[~finite], equal_nan=True)


@pytest.mark.parametrize(
    ("symbol", "operands", "expected"),
    [
        ("__nv_roundf", [0.5, -0.5, 2.5, -1.4, 8388609.0], [1.0, -1.0, 3.0, -1.0, 8388609.0]),
        ("__nv_tgammaf", [5.0, 0.5, -0.5, -1.0], [24.0, math.sqrt(math.pi), -2 * math.sqrt(math.pi), math.nan]),
        ("__nv_saturatef", [-1.0, 0.25, 7.0, math.nan], [0.0, 0.25, 1.0, 0.0]),
        ("__nv_sinpif", [0.5, 1e6 + 0.5], [1.0, 1.0]),
        ("__nv_logbf", [8.5, 0.75, 0.0, math.inf], [3.0, -1.0, -math.inf, math.inf]),
        ("__nv_rcbrtf", [8.0, -27.0], [0.5, -1 / 3]),
    ],
)
def test_functions_of_one_float(symbol: str, operands: list[float], expected: list[float]) -> None:
    got = library_function(symbol)(numpy.array(operands, dtype=numpy.float32))
    numpy.testing.assert_allclose(got, expected, rtol=1e-7)


def test_predicates_and_conversions() -> None:
    x = numpy.array([1.5, -0.0, math.nan, -math.inf, 2.5, -3e9], dtype=numpy.float32)
    assert library_function("__nv_isnanf")(x).tolist() == [False, False, True, False, False, False]
    assert library_function("__nv_isinff")(x).tolist() == [False, False, False, True, False, False]
    assert library_function("__nv_signbitf")(x[:2]).tolist() == [False, True]
    assert library_function("__nv_ilogbf")(x[[0, 1, 4]]).tolist() == [0, -(2**31), 1]
    assert library_function("__nv_llrintf")(x[[0, 4, 5]]).tolist() == [2, 2, -3000000000]
    assert library_function("__nv_float2int_rn")(x).tolist() == [2, 0, 0, -(2**31), 2, -(2**31)]
    assert library_function("__nv_float2uint_rz")(x[[0, 5]]).tolist() == [1, 0]
    assert library_function("__nv_float_as_int")(x[:1]).tolist() == [0x3FC00000]


def test_directed_rounding_of_float32() -> None:
    one, three = float32([1.0]), float32([3.0])
    third = {name: library_function(f"__nv_fdiv_{name}")(one, three).item() for name in ("rn", "rz", "ru", "rd")}
    assert third["rd"] == third["rz"] < 1 / 3 < third["ru"] == third["rn"]
    assert library_function("__nv_fdiv_rz")(-one, three).item() == -third["rz"]


def test_functions_of_integers() -> None:
    x = numpy.array([1, -1, 0, 0x00F0], dtype=numpy.int32)
    assert library_function("__nv_popc")(x).tolist() == [1, 32, 0, 4]
    assert library_function("__nv_clz")(x).tolist() == [31, 0, 32, 24]
    assert library_function("__nv_ffs")(x).tolist() == [1, 1, 0, 5]
    assert library_function("__nv_brev")(x).tolist() == [-(2**31), -1, 0, 0x0F000000]
    assert library_function("__nv_mulhi")(x, int32([5, 5, 5, 2**28])).tolist() == [0, -1, 0, 15]
    assert library_function("__nv_umul64hi")(uint64([2**63]), uint64([6])).tolist() == [3]
    assert library_function("__nv_byte_perm")(int32([0x03020100]), int32([0x07060504]), int32([0x7531])).tolist() == [
        0x07050301
    ]
    assert library_function("__nv_rhadd")(int32([2**31 - 1]), int32([2**31 - 2])).tolist() == [2**31 - 1]
    assert library_function("__nv_sad")(*(int32([n]) for n in (3, 8, 100))).tolist() == [105]
    high, low = (library_function(f"__nv_double2{part}int") for part in ("hi", "lo"))
    x64 = numpy.array([math.pi, -1e300])
    assert library_function("__nv_hiloint2double")(high(x64), low(x64)).tolist() == x64.tolist()


def test_fused_multiply_add_rounds_once() -> None:
    x = float32([1 + 2**-12])
    assert library_function("__nv_fmaf")(x, x, float32([-1 - 2**-11])).item() == 2**-24


def test_instructions_that_are_known() -> None:
    x = float32([0.5, 2.0])
    assert asm_function("ex2.approx.ftz.f32 $0, $1;")(x).tolist() == [numpy.float32(2**0.5), 4.0]
    assert asm_function("tanh.approx.f32 $0, $1;")(x).dtype == numpy.float32
    for asm in ("mul.hi.u32 $0, $1, $2;", "add.f32 $0, $2, $1;", "mov.b32 $0, $1; add.f32 $0, $0, $1;"):
        with pytest.raises(NotInterpretableError, match=re.escape(asm)):
            asm_function(asm)


@triton.jit
def many(x, n, target, BLOCK: tl.constexpr):  # noqa: N803
    i = tl.arange(0, BLOCK)
    value = tl.load(x + i)
    whole = tl.load(n + i)
    result = libdevice.pow(tl.abs(value), 1.5) + libdevice.atan2(value, 2.0) + libdevice.fmod(value, 0.75)
    result += libdevice.ldexp(value, whole) + libdevice.copysign(1.0, value) + libdevice.hypot(value, 3.0)
    result += tl.where(libdevice.isnan(value).to(tl.int1), 1.0, 0.0) + libdevice.nextafter(value, 9.0)
    result += interpreter_inductor_kernels.libdevice.tanh(value)  # type: ignore[attr-defined]
    tl.store(target + i, result + libdevice.lgamma(tl.abs(value)))


@triton.jit
def beyond(x, target, BLOCK: tl.constexpr):  # noqa: N803
    i = tl.arange(0, BLOCK)
    tl.store(target + i, libdevice.rcp64h(tl.load(x + i)))


def test_a_kernel_calls_libdevice_by_name_and_by_module() -> None:
    x, n, target = torch.linspace(-3, 3, 32), torch.arange(32, dtype=torch.int32) % 5, torch.zeros(32)
    seen = interpret(many, (1, 1, 1), {"x": x, "n": n, "target": target}, {"BLOCK": 32})
    d = x.double()
    expected = d.abs() ** 1.5 + torch.atan2(d, torch.tensor(2.0)) + torch.fmod(d, 0.75)
    expected += torch.ldexp(d, n) + torch.copysign(torch.ones(32), d) + torch.hypot(d, torch.tensor(3.0).double()) + d
    expected += torch.lgamma(d.abs()) + torch.tanh(d)
    assert seen.lines() == []
    torch.testing.assert_close(target, expected.float(), rtol=1e-5, atol=1e-5)


def test_an_unknown_function_is_named_with_the_kernels_line() -> None:
    x = torch.ones(8, dtype=torch.float64)
    with pytest.raises(
        NotInterpretableError, match=r"__nv_rcp64h is not known\n .*: tl\.store\(target \+ i, libdevice"
    ):
        interpret(beyond, (1, 1, 1), {"x": x, "target": torch.ones(8, dtype=torch.float64)}, {"BLOCK": 8})
