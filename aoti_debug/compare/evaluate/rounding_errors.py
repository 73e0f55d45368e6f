"""The errors that rounding may make: bounds of functions, in ULP of the result; an evaluation that rounds otherwise.

The bounds hold for float32, in which kernels also compute float16 and bfloat16. What Inductor generates is measured by
`benchmarks/comparison/function_bounds.py`; where that misses its bound, this is what a correct implementation needs.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from aoti_debug.base.frozen import dataclass
from aoti_debug.compare.evaluate.arithmetic import LARGE, Narrow, split, unit
from aoti_debug.package.program_graphs import Node, operator_name

if TYPE_CHECKING:
    import torch

_BYTES = 8 << 20  # bytes of a tensor that are looked at together
_PART = 1 << 20  # elements
_UNITS: Mapping[str, float] = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float64": 2.0**-52, "complex128": 2.0**-52}
_UNIT = 2.0**-23  # of any other dtype


def terms_of(node: Node, args: list[Any]) -> int:
    """The length of the longest sum that an operator computes: how far rounding can add up."""
    import torch

    tensors = [item for item in args if isinstance(item, torch.Tensor)]
    if not tensors:
        return 1
    name = operator_name(node.target)
    sizes = [int(size) for t in node.types[:1] if t is not None for size in t.shape if size.isdigit()]
    outputs = functools.reduce(lambda a, b: a * b, sizes, 1)
    if name in ("addmm", "baddbmm", "mm", "bmm", "linear", "addmv", "mv", "dot"):
        terms = tensors[1 if name in ("addmm", "baddbmm", "addmv") else 0].shape[-1]
    elif "convolution" in name and len(tensors) > 1:
        terms = tensors[1].numel() // max(tensors[1].shape[0], 1)
    elif "attention" in name and len(tensors) > 1:
        terms = tensors[0].shape[-1] + tensors[1].shape[-2]
    else:
        terms = max(t.numel() for t in tensors) // max(outputs, 1)
    return int(terms)


def largest_of(args: list[Any]) -> float:
    """The product of the largest finite magnitudes of the tensors that an operator reads, those below 1 as 1."""
    import torch

    largest = 1.0
    for item in args:
        if isinstance(item, torch.Tensor | Narrow) and item.dtype == torch.float64:
            parts = item.pieces(0, _BYTES) if isinstance(item, Narrow) else split(item, _BYTES)
            found = [float(torch.nan_to_num(part.abs(), 0.0, 0.0).amax()) for part in parts if part.numel()]
            largest *= max([1.0, *found])
    return largest


_LIBRARIES = "glibc: at most 2 ULP; SLEEF u10: 1 ULP"
_ATEN = "code of ATen that kernels contain (ATen/native/Math.h), measured"


@dataclass(frozen=True, kw_only=True)
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
    FunctionBound(name="acos", cpu=3, cuda=2, source=_LIBRARIES),
    FunctionBound(name="acosh", cpu=3, cuda=4, source=_LIBRARIES),
    FunctionBound(name="asin", cpu=3, cuda=3, source=_LIBRARIES),
    FunctionBound(name="asinh", cpu=3, cuda=3, source="Inductor's own formula in vectors, measured; glibc: 2 ULP"),
    FunctionBound(name="atan", cpu=3, cuda=3, source=_LIBRARIES),
    FunctionBound(name="atan2", cpu=3, cuda=3, source=_LIBRARIES),
    FunctionBound(name="atanh", cpu=3, cuda=3, source=_LIBRARIES, summand=2),
    FunctionBound(name="cos", cpu=4, cuda=2, source="SLEEF u35: 3.5 ULP"),
    FunctionBound(name="cosh", cpu=3, cuda=2, source=_LIBRARIES),
    FunctionBound(
        name="digamma", cpu=4, cuda=4, source=f"{_ATEN}; near its zeros sums cancel", cpu_argument=8, cuda_argument=8
    ),
    FunctionBound(name="erf", cpu=3, cuda=2, source="glibc: 1 ULP", summand=12),
    FunctionBound(name="erfc", cpu=4, cuda=4, source="glibc: 3 ULP; SLEEF u15: 1.5 ULP"),
    FunctionBound(name="erfinv", cpu=8, cuda=3, source=f"{_ATEN}: 7 ULP up to 0.9999"),
    FunctionBound(
        name="exp",
        cpu=3,
        cuda=2,
        source=f"{_LIBRARIES}; Triton: ex2.approx of x · log2(e), PTX ISA: 2 ULP",
        cuda_argument=1,
    ),
    FunctionBound(name="exp2", cpu=3, cuda=3, source=_LIBRARIES),
    FunctionBound(name="expm1", cpu=3, cuda=2, source=_LIBRARIES, summand=2),
    FunctionBound(name="hypot", cpu=3, cuda=3, source="SLEEF u05 and glibc: 1 ULP"),
    FunctionBound(name="i0", cpu=8, cuda=8, source=_ATEN),
    FunctionBound(name="i0e", cpu=16, cuda=16, source=_ATEN),
    FunctionBound(name="i1", cpu=16, cuda=16, source=_ATEN),
    FunctionBound(name="i1e", cpu=16, cuda=16, source=_ATEN),
    FunctionBound(
        name="lgamma", cpu=4, cuda=6, source="SLEEF u10: 1 ULP; glibc: 4 ULP", cpu_argument=2, cuda_argument=4
    ),
    FunctionBound(name="log", cpu=3, cuda=2, source=_LIBRARIES),
    FunctionBound(name="log10", cpu=3, cuda=3, source=_LIBRARIES),
    FunctionBound(name="log1p", cpu=3, cuda=2, source=_LIBRARIES),
    FunctionBound(name="log2", cpu=3, cuda=2, source=_LIBRARIES),
    FunctionBound(name="ndtri", cpu=6, cuda=6, source=_ATEN),
    FunctionBound(
        name="pow",
        cpu=3,
        cuda=24,
        source=f"{_LIBRARIES}; libdevice's powf in Triton kernels: 23 ULP, measured",
        misreads_subnormals=True,
    ),
    FunctionBound(name="reciprocal", cpu=1, cuda=2, source="IEEE 754; Triton: div.full, PTX ISA: 2 ULP"),
    FunctionBound(name="rsqrt", cpu=3, cuda=2, source="a root and a quotient: 1.5 ULP"),
    FunctionBound(
        name="sigmoid",
        cpu=4,
        cuda=4,
        source="1 / (1 + exp(-x)), measured; exp(-x) overflows first",
        cuda_argument=1,
        flushes=True,
    ),
    FunctionBound(name="sin", cpu=4, cuda=2, source="SLEEF u35: 3.5 ULP"),
    FunctionBound(name="sinh", cpu=3, cuda=3, source=_LIBRARIES),
    FunctionBound(name="sqrt", cpu=1, cuda=1, source="IEEE 754"),
    FunctionBound(name="tan", cpu=3, cuda=4, source=_LIBRARIES),
    FunctionBound(name="tanh", cpu=3, cuda=2, source=_LIBRARIES),
)
FUNCTION_BOUNDS = {bound.name: bound for bound in _ALL}


def bound_of(target: str) -> FunctionBound | None:
    """The bound of an operator ("aten.tanh.default", "aten.special_i0e.default"); None if it approximates nothing."""
    namespace, name, *_ = (*target.split("."), "")
    return FUNCTION_BOUNDS.get(name.removeprefix("special_")) if namespace in ("aten", "prims") else None


class RoundingNoise:
    """The errors of one evaluation; the same seed makes the same ones.

    Args:
        units: how far a number is moved at most, in distances of neighbouring numbers of its dtype in the program.
    """

    def __init__(self, seed: int, units: float) -> None:
        import torch

        self._generator = torch.Generator().manual_seed(seed)
        self._units = units

    def begun(self, value: Any) -> Any:
        """An input or a weight, moved by the rounding of the kernel that reads it."""
        return moved(value, self._generator, self._units)

    def arguments(self, node: Node, args: list[Any], terms: int) -> list[Any]:
        """The arguments of an operator that adds so many terms, as far as rounding in sums moves them."""
        if terms <= 1 or node.mutates:
            return args
        scale = 1 + math.sqrt(terms) / 4
        return [self._moved(item, _UNIT * self._units * scale) for item in args]

    def result(self, node: Node, args: Sequence[Any], result: Any) -> Any:
        """The result of an operator, moved; in place where it overwrites an argument. A view stays what it is."""
        import torch

        if isinstance(result, list | tuple):
            return type(result)(self.result(node, args, item) for item in result)
        if not isinstance(result, torch.Tensor) or not _has_numbers(result):
            return result
        dtype = next((type_.dtype for type_ in node.types[:1] if type_ is not None), "")
        bound = bound_of(node.target)
        least = 0.0 if bound is None else bound.on(str(result.device)) * _UNIT
        step = max(self._units * _UNITS.get(dtype, _UNIT), least if dtype == "float32" else 0.0)
        held = {tensor.untyped_storage().data_ptr() for tensor in _tensors(args)}
        if result.untyped_storage().data_ptr() in held:
            return result.mul_(self._factors(result, step)) if node.mutates else result
        return self._moved(result, step)

    def _moved(self, value: Any, step: float) -> Any:
        import torch

        if not isinstance(value, torch.Tensor) or not _has_numbers(value):
            return value
        return value * self._factors(value, step)

    def _factors(self, value: torch.Tensor, step: float) -> torch.Tensor:
        import torch

        drawn = torch.rand(value.shape, generator=self._generator, dtype=torch.float64)
        return drawn.mul_(2).sub_(1).mul_(step).add_(1).to(value.device)


_REDUCES = frozenset({"sum", "mean", "var", "var_mean", "std", "std_mean", "prod", "linalg_vector_norm"})


def approximated(node: Node, result: Any, generator: torch.Generator) -> Any:
    """The result of a function that kernels approximate, moved by its bound, or of a reduction, moved by its rounding.

    All that reads the result of a reduction has the same error: in a mean of what is left it does not average out. The
    result of any other operator is what it is.
    """
    import torch

    if isinstance(result, list | tuple):
        return type(result)([approximated(node, item, generator) for item in result])
    if not isinstance(result, torch.Tensor) or not result.is_floating_point():
        return result
    bound = bound_of(node.target)
    if bound is not None:
        step = _UNIT * bound.on(str(result.device))
    elif operator_name(node.target) in _REDUCES:
        dtype = next((type_.dtype for type_ in node.types[:1] if type_ is not None), "")
        step = min(_UNIT, _UNITS.get(dtype, _UNIT))
    else:
        return result
    signs = torch.randint(0, 2, result.shape, generator=generator).to(result.device, result.dtype) * 2 - 1
    return result * (1 + signs * step)


def moved(value: Any, generator: torch.Generator, units: float) -> Any:
    """An input in float64, every number moved up or down by so many units of the kernel's arithmetic.

    A large one is moved when it is read; what is no tensor of floating real numbers stays what it is.
    """
    import torch

    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return value
    upwards = torch.empty(value.shape, dtype=torch.bool)
    for part in upwards.view(-1).split(_PART):  # the generator makes integers of 64 bits
        part.copy_(torch.randint(0, 2, part.shape, generator=generator))
    narrow = Narrow(value, torch.float64, upwards.to(value.device), units * unit(value.dtype))
    return narrow if value.nbytes >= LARGE else narrow.wide()


def _has_numbers(value: torch.Tensor) -> bool:
    return bool(value.is_floating_point() or value.is_complex())


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    import torch

    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _tensors(item)
