"""Bounds of functions that kernels approximate, in ULP of the result: what a correct kernel may be off, in one table.

They hold for float32, in which kernels also compute float16 and bfloat16. `benchmarks/comparison/function_bounds.py`
measures what Inductor generates; where that misses its bound, the bound is what a correct implementation needs.
"""

from __future__ import annotations

from aoti_debug.base.frozen import dataclass

_LIBRARIES = "glibc: at most 2 ULP; SLEEF u10: 1 ULP"
_ATEN = "code of ATen that kernels contain (ATen/native/Math.h), measured"


@dataclass(frozen=True)
class FunctionBound:
    """The largest error of a correct implementation of a function.

    Attributes:
        name: as in the names of operators: "tanh" of "aten.tanh.default".
        cpu: in a C++ kernel, in ULP of the result; with vectors or without: a kernel may compute its last elements so.
        cuda: in a Triton kernel; measured, and at least what the CUDA Programming Guide says.
        source: where the bounds come from.
        cpu_argument, cuda_argument: how far the argument may be off besides, in ULP of the argument: for a function
            with zeros between the numbers of a dtype, or one whose argument is multiplied before it is used.
        summand: how far a result that is computed from this one, by more than a product, may be off besides, in ULP: in
            vectors Inductor computes the function with an absolute error. That hides in 1 + erf(x), and not in erf(x).
        flushes: True if a subnormal result may be 0 on a CPU too; on a GPU any may, and so may a subnormal argument be.
        misreads_subnormals: True if a Triton kernel may take a subnormal argument for any number up to the smallest
            normal one, and not only for 0.
    """

    name: str
    cpu: float
    cuda: float
    source: str
    cpu_argument: float = 0.0
    cuda_argument: float = 0.0
    summand: float = 0.0
    flushes: bool = False
    misreads_subnormals: bool = False

    def on(self, device: str) -> float:
        """The bound on a device, "cpu" or "cuda:0", in ULP of the result."""
        return self.cpu if device.startswith("cpu") else self.cuda

    def summand_on(self, device: str) -> float:
        """The error that a sum of its result may have besides on a device, in ULP of the sum."""
        return self.summand if device.startswith("cpu") else 0.0

    def argument_on(self, device: str) -> float:
        """The error that the argument may have on a device, in ULP of the argument."""
        return self.cpu_argument if device.startswith("cpu") else self.cuda_argument


_ALL = (
    FunctionBound("acos", 3, 2, _LIBRARIES),
    FunctionBound("acosh", 3, 4, _LIBRARIES),
    FunctionBound("asin", 3, 3, _LIBRARIES),
    FunctionBound("asinh", 3, 3, "Inductor's own formula in vectors, measured; glibc: 2 ULP"),
    FunctionBound("atan", 3, 3, _LIBRARIES),
    FunctionBound("atan2", 3, 3, _LIBRARIES),
    FunctionBound("atanh", 3, 3, _LIBRARIES, summand=2),
    FunctionBound("cos", 4, 2, "SLEEF u35: 3.5 ULP"),
    FunctionBound("cosh", 3, 2, _LIBRARIES),
    FunctionBound("digamma", 4, 4, f"{_ATEN}; near its zeros sums cancel", cpu_argument=8, cuda_argument=8),
    FunctionBound("erf", 3, 2, "glibc: 1 ULP", summand=12),
    FunctionBound("erfc", 4, 4, "glibc: 3 ULP; SLEEF u15: 1.5 ULP"),
    FunctionBound("erfinv", 8, 3, f"{_ATEN}: 7 ULP up to 0.9999"),
    FunctionBound("exp", 3, 2, f"{_LIBRARIES}; Triton: ex2.approx of x · log2(e), PTX ISA: 2 ULP", cuda_argument=1),
    FunctionBound("exp2", 3, 3, _LIBRARIES),
    FunctionBound("expm1", 3, 2, _LIBRARIES, summand=2),
    FunctionBound("hypot", 3, 3, "SLEEF u05 and glibc: 1 ULP"),
    FunctionBound("i0", 8, 8, _ATEN),
    FunctionBound("i0e", 16, 16, _ATEN),
    FunctionBound("i1", 16, 16, _ATEN),
    FunctionBound("i1e", 16, 16, _ATEN),
    FunctionBound("lgamma", 4, 6, "SLEEF u10: 1 ULP; glibc: 4 ULP", cpu_argument=2, cuda_argument=4),
    FunctionBound("log", 3, 2, _LIBRARIES),
    FunctionBound("log10", 3, 3, _LIBRARIES),
    FunctionBound("log1p", 3, 2, _LIBRARIES),
    FunctionBound("log2", 3, 2, _LIBRARIES),
    FunctionBound("ndtri", 6, 6, _ATEN),
    FunctionBound(
        "pow", 3, 24, f"{_LIBRARIES}; libdevice's powf in Triton kernels: 23 ULP, measured", misreads_subnormals=True
    ),
    FunctionBound("reciprocal", 1, 2, "IEEE 754; Triton: div.full, PTX ISA: 2 ULP"),
    FunctionBound("rsqrt", 3, 2, "a root and a quotient: 1.5 ULP"),
    FunctionBound(
        "sigmoid", 4, 4, "1 / (1 + exp(-x)), measured; exp(-x) overflows first", cuda_argument=1, flushes=True
    ),
    FunctionBound("sin", 4, 2, "SLEEF u35: 3.5 ULP"),
    FunctionBound("sinh", 3, 3, _LIBRARIES),
    FunctionBound("sqrt", 1, 1, "IEEE 754"),
    FunctionBound("tan", 3, 4, _LIBRARIES),
    FunctionBound("tanh", 3, 2, _LIBRARIES),
)
FUNCTION_BOUNDS = {bound.name: bound for bound in _ALL}


def bound_of(target: str) -> FunctionBound | None:
    """The bound of an operator ("aten.tanh.default", "aten.special_i0e.default"); None if it approximates nothing."""
    namespace, name, *_ = (*target.split("."), "")
    return FUNCTION_BOUNDS.get(name.removeprefix("special_")) if namespace in ("aten", "prims") else None
