"""Measures how far the functions of generated kernels are off, beside the bounds that comparisons allow.

usage: python -m benchmarks.comparison.function_bounds [--device cpu|cuda] [--step N] [--only FUNCTION ...]

One kernel with all functions is compiled by Inductor: on a CPU without vectors (cpp.simdlen 1) and with the widest ones
of this machine, on a GPU by Triton. Its float32 inputs are every N-th of all 2^32 bit patterns, so that every exponent,
subnormal numbers and both signs are among them, every 13th number of magnitude 0.5 to 2, the 8192 next to 1, and 2^18
whose logarithms are evenly spaced; its float16 and bfloat16 inputs are all there are. The reference is torch in
float64. Errors are in ULP of the result, of its dtype, where float64 rounds to a normal number, and where to a
subnormal one. "inf" stands for a number where an infinity should be, or the other way round.

Exit code 1: a function is off by more than its bound, and is none of those that are known to be.
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from aoti_debug.compare.evaluate.rounding_errors import FUNCTION_BOUNDS, FunctionBound
from aoti_debug.compare.measure.ulp import ulp
from benchmarks.markdown import table

Function = Callable[..., Tensor]
BINARY = ("atan2", "hypot", "pow")
# In C++, mostly with vectors, torch 2.13: comparisons call all but those wrong that overflow in eager as well.
KNOWN_DEFECTS = {
    "erf": "absolute error 5e-7: 0 for small arguments",
    "expm1": "exp(x) - 1: 0 for small arguments",
    "atanh": "log((1 + x) / (1 - x)) / 2: 0 for small arguments",
    "erfinv": "126 ULP at 1 - 2**-24, without vectors too",
    "acosh": "overflows from 1.8e19",
    "sinh": "overflows from 88.7",
    "cosh": "overflows from 88.7",
    "i0": "overflows from 88.7",
    "i1": "overflows from 88.7",
    "lgamma": "overflows from 4e36",
}
_MODES: dict[str, dict[str, dict[str, object]]] = {
    "cpu": {"scalar": {"cpp.simdlen": 1}, "vectors": {}},
    "cuda": {"triton": {}},
}


@dataclass(frozen=True)
class Measured:
    """The largest errors of a function in a kernel, in ULP of the dtype of its result.

    Attributes:
        at: the argument of the largest error of a normal result.
        beyond_argument: the largest error, but for what an argument that is off as the bound says may make.
        beyond_at: the arguments of that error.
    """

    normal: float
    subnormal: float
    at: float
    beyond_argument: float
    beyond_at: tuple[float, ...]


def main() -> int:
    options = _options()
    names = options.only or list(FUNCTION_BOUNDS)
    rows, failed = [], []
    measured = {
        (mode, dtype): _measured(names, options.device, config, dtype, options.step)
        for mode, config in _MODES[options.device].items()
        for dtype in (torch.float32, torch.float16, torch.bfloat16)
    }
    for name in names:
        bound = FUNCTION_BOUNDS[name]
        row = [name]
        for mode in _MODES[options.device]:
            single = measured[mode, torch.float32].get(name)
            row.append("-" if single is None else f"{_text(single.normal)} at {single.at:.4g}")
            row.append("-" if single is None else _text(single.subnormal))
            for dtype in (torch.float16, torch.bfloat16):
                half = measured[mode, dtype].get(name)
                row.append("-" if half is None else _text(max(half.normal, half.subnormal)))
            if single is not None and single.beyond_argument > bound.on(options.device):
                at = ", ".join(map(repr, single.beyond_at))
                failed.append((name, f"{name}, {mode}: {single.beyond_argument:.4g} ULP at {at}"))
        rows.append([*row, _bound_text(bound, options.device)])
    columns = [
        f"{mode} {what}" for mode in _MODES[options.device] for what in ("float32", "subnormal", "float16", "bfloat16")
    ]
    table(["function", *columns, "bound"], rows)
    known = KNOWN_DEFECTS if options.device == "cpu" else {}
    for name, text in failed:
        print(f"beyond its bound: {text}; known: {known.get(name, 'no')}")
    return int(any(name not in known for name, _ in failed))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=tuple(_MODES), default="cpu")
    parser.add_argument("--step", metavar="N", type=int, default=4099, help="of the bit patterns of float32")
    parser.add_argument("--only", nargs="+", metavar="FUNCTION", choices=tuple(FUNCTION_BOUNDS))
    return parser.parse_args()


def sweep(dtype: torch.dtype, step: int) -> Tensor:
    """Finite numbers of a dtype: all of 16 bits; of float32 every `step`-th, more of them from 0.5 to 2."""
    if dtype is not torch.float32:
        found = torch.arange(-(2**15), 2**15, dtype=torch.int64).to(torch.int16).view(dtype)
        return found[found.isfinite()]
    bits = torch.arange(-(2**31), 2**31, step, dtype=torch.int64)
    near_one = torch.arange(0x3F000000, 0x40000000, 13 * max(1, step // 4099), dtype=torch.int64)
    near_one = torch.cat([near_one, torch.arange(0x3F7FF000, 0x3F801000, dtype=torch.int64)])
    found = torch.cat([bits, near_one, near_one - 2**31]).to(torch.int32).view(torch.float32)
    spread = torch.logspace(-45, 38, 1 << 17, dtype=torch.float64).float()
    found = torch.cat([found, spread, -spread])
    return found[found.isfinite()]


def _second(x: Tensor, name: str) -> Tensor:
    """Second arguments of a function of two; of a power, exponents that make neither 0 nor infinity."""
    generator = torch.Generator().manual_seed(0)
    if name != "pow":
        return x[torch.randperm(x.numel(), generator=generator)]
    limits = torch.finfo(x.dtype)
    low, high = math.log2(limits.smallest_normal * limits.eps), math.log2(limits.max)
    wanted = low + (high - low) * torch.rand(x.numel(), generator=generator, dtype=torch.float64)
    exponents = (wanted / x.double().abs().log2()).to(x.dtype)
    return torch.where(exponents.isfinite(), exponents, 1.0)


def _function(name: str) -> Function:
    found: Function = getattr(torch, name, None) or getattr(torch.special, name)
    return (lambda a, b: found(a.abs(), b)) if name == "pow" else found


def _measured(
    names: list[str], device: str, config: Mapping[str, object], dtype: torch.dtype, step: int
) -> dict[str, Measured]:
    """The largest errors of the functions that a dtype has."""
    x = sweep(dtype, step)
    known = [name for name in names if _has(name, dtype)]
    seconds = [_second(x, name) for name in known if name in BINARY]
    functions = [_function(name) for name in known]

    def kernel(x: Tensor, *seconds: Tensor) -> list[Tensor]:
        others = iter(seconds)
        return [f(x, next(others)) if n in BINARY else f(x) for n, f in zip(known, functions, strict=True)]

    torch._dynamo.reset()
    compiled = torch.compile(kernel, options=dict(config))
    results = compiled(x.to(device), *(second.to(device) for second in seconds))
    others = iter(seconds)
    found = {}
    for name, function, result in zip(known, functions, results, strict=True):
        arguments = [x, next(others)] if name in BINARY else [x]
        found[name] = _errors(FUNCTION_BOUNDS[name], function, arguments, result.cpu(), device)
    return found


def _has(name: str, dtype: torch.dtype) -> bool:
    try:
        _function(name)(*[torch.ones(1, dtype=dtype)] * (2 if name in BINARY else 1))
    except NotImplementedError:
        return False
    return True


def _errors(bound: FunctionBound, function: Function, arguments: list[Tensor], result: Tensor, device: str) -> Measured:
    dtype = result.dtype
    wide = [argument.double() for argument in arguments]
    exact = function(*wide)
    limits = torch.finfo(dtype)
    counted = exact.isfinite() & exact.to(dtype).isfinite() & (exact.abs() > limits.smallest_normal * limits.eps / 2)
    difference = (result.double() - exact).abs().nan_to_num(math.inf, math.inf)
    step = ulp(exact, dtype)
    errors = torch.where(counted, difference / step, 0.0)
    is_normal = exact.to(dtype).abs() >= limits.smallest_normal
    normal = errors.where(is_normal, 0.0)
    worst = int(normal.argmax())
    moved = torch.zeros_like(exact)
    units = bound.argument_on(device)
    if units and dtype is torch.float32:
        off = [units * ulp(argument, dtype) for argument in wide]
        for sign in (1, -1):
            changed = function(*(a + sign * o for a, o in zip(wide, off, strict=True)))
            moved = moved.maximum((changed - exact).abs().nan_to_num(math.inf, math.inf))
    if device != "cpu":
        least = torch.finfo(torch.float32).smallest_normal
        taken = [0.0, least] if bound.misreads_subnormals else [0.0]  # what a subnormal argument may be taken for
        read = [[a, *(torch.where(a.abs() < least, a.sign() * other, a) for other in taken)] for a in wide]
        for others in itertools.product(*read):
            moved = moved.maximum((function(*others) - exact).abs().nan_to_num(math.inf, math.inf))
    allowed_zero = (bound.flushes or device != "cpu") & ~is_normal & (result == 0)
    beyond = torch.where(counted & ~allowed_zero & moved.isfinite(), (difference - moved) / step, 0.0)
    beyond = beyond.nan_to_num(math.inf, math.inf)
    furthest = int(beyond.argmax())
    return Measured(
        float(normal[worst]),
        float(errors.where(~is_normal, 0.0).max()),
        float(arguments[0][worst]),
        float(beyond[furthest]),
        tuple(float(argument[furthest]) for argument in arguments),
    )


def _text(error: float) -> str:
    return f"{error:.2f}" if error < 1000 else f"{error:.1e}"


def _bound_text(bound: FunctionBound, device: str) -> str:
    argument = bound.argument_on(device)
    return f"{bound.on(device):g}" + (f" and {argument:g} of the argument" if argument else "")


if __name__ == "__main__":
    sys.exit(main())
