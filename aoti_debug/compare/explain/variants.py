"""Wrong results of an operator, as wrong kernels compute them: swapped operands, a term left out. Runs in a child."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

from aoti_debug.base.frozen import dataclass
from aoti_debug.compare.evaluate.functions import NotEvaluableError
from aoti_debug.compare.evaluate.rounding_errors import bound_of
from aoti_debug.package.program_graphs import Node

Compute = Callable[[list[Any], dict[str, Any]], Any]
"""Computes the operator for other arguments."""

_SWAPPABLE = ("sub", "div", "pow", "lt", "le", "gt", "ge", "remainder", "floor_divide", "mm", "where")
_BINARY = ("add", "sub", "mul", "div", "maximum", "minimum")
_REDUCTIONS = ("sum", "mean", "amax", "amin", "argmax", "argmin", "var", "var_mean", "prod", "any")
_WRAPPING = ("add", "sub", "mul", "neg", "abs", "bitwise_not", "bitwise_left_shift", "pow", "square")
_SHORTER = (1, 16)
_MOVES = (
    *(
        "view",
        "reshape",
        "_unsafe_view",
        "permute",
        "transpose",
        "t",
        "expand",
        "slice",
        "select",
        "unsqueeze",
        "squeeze",
    ),
    *("clone", "alias", "flip", "cat", "stack", "gather", "index", "embedding", "index_select", "repeat", "as_strided"),
    *("split", "split_with_sizes", "unbind", "diagonal", "roll", "constant_pad_nd", "copy_", "full", "iota"),
)
_INSTEAD = {
    "add": ("sub",),
    "sub": ("add",),
    "maximum": ("minimum",),
    "minimum": ("maximum",),
    "exp": ("exp2", "expm1"),
    "sigmoid": ("tanh",),
    "tanh": ("sigmoid",),
    "erf": ("tanh",),
    "rsqrt": ("reciprocal", "sqrt"),
    "sqrt": ("rsqrt",),
    "relu": ("abs", "neg"),
    "sin": ("cos",),
    "cos": ("sin",),
    "gt": ("ge", "lt"),
    "lt": ("le", "gt"),
    "ge": ("gt", "lt"),
    "le": ("lt", "gt"),
    "eq": ("ne",),
    "ne": ("eq",),
    "amax": ("amin",),
    "amin": ("amax",),
    "logical_and": ("logical_or",),
    "logical_or": ("logical_and",),
    "logical_xor": ("logical_or",),
    "bitwise_and": ("bitwise_or",),
    "bitwise_or": ("bitwise_and", "bitwise_xor"),
    "bitwise_xor": ("bitwise_or",),
}


@dataclass(frozen=True)
class Variant:
    """A result that an operator gives if it is computed wrongly in one way.

    Attributes:
        how: "with its operands swapped".
    """

    how: str
    value: Any


def computes(node: Node) -> bool:
    """True for an operator that computes new numbers, and does not only move them."""
    return _name(node) not in _MOVES


def reduces(node: Node) -> bool:
    """True for an operator that a kernel computes in a loop of its own."""
    return _name(node) in _REDUCTIONS


def _name(node: Node) -> str:
    return node.target.split(".")[1] if node.target.count(".") > 1 else node.target


def variants(node: Node, args: list[Any], kwargs: dict[str, Any], compute: Compute) -> Iterator[Variant]:
    """Yields what an operator gives when it is computed wrongly; ways that cannot be computed are left out."""
    for how, make in _ways(node, args, kwargs, compute):
        try:
            yield Variant(how, make())
        except (NotEvaluableError, RuntimeError, TypeError, ValueError, IndexError):
            continue


def _ways(
    node: Node, args: list[Any], kwargs: dict[str, Any], compute: Compute
) -> Iterator[tuple[str, Callable[[], Any]]]:
    import torch

    name = _name(node)
    first: Any = args[0] if args else None
    is_tensor = isinstance(first, torch.Tensor)
    if bound_of(node.target) is not None:
        yield "as 0", lambda: compute(args, kwargs) * 0
    for other in _INSTEAD.get(name, ()):
        yield f"as {other}", functools.partial(getattr(torch, other), *args, **kwargs)
    if name in _SWAPPABLE and len(args) >= 2:
        swapped = [args[0], args[2], args[1]] if name == "where" else [args[1], args[0], *args[2:]]
        yield "with its operands swapped", lambda: compute(swapped, kwargs)
    if name in _BINARY and len(args) == 2:
        for kept, word in ((args[0], "second"), (args[1], "first")):
            yield f"without its {word} operand", functools.partial(_like, kept, args, kwargs, compute)
    if (
        is_tensor
        and len(node.inputs) == 1
        and len(node.types) == 1
        and first.dtype.is_floating_point
        and name not in _REDUCTIONS
    ):
        yield "left out", functools.partial(_like, first, args, kwargs, compute)
    if is_tensor and name in _REDUCTIONS:
        yield from _shorter(name, args, kwargs, compute)
    if name in ("addmm", "baddbmm") and is_tensor:
        for beta, alpha, how in ((0, 1, "without its bias"), (1, 2, "with its product twice")):
            scaled = {**kwargs, "beta": beta, "alpha": alpha}
            yield how, functools.partial(compute, args, scaled)
    if name == "var_mean":
        yield from _wrong_variances(args, kwargs, compute)
    if name == "convert_element_type" and is_tensor and first.dtype.is_floating_point:
        yield "rounded to nearest", lambda: compute([first.round(), *args[1:]], kwargs)
        yield "rounded down", lambda: compute([first.floor(), *args[1:]], kwargs)
        yield "rounded half up", lambda: compute([first + 0.5, *args[1:]], kwargs)
    if name == "embedding":
        yield "of the next row", lambda: compute([first, (args[1] + 1).clamp(0, first.shape[0] - 1), *args[2:]], kwargs)
    if name == "cat":
        yield "in reverse order", lambda: compute([list(first)[::-1], *args[1:]], kwargs)
    if name in ("mul", "add", "sub") and any(t is not None and t.dtype == "int64" for t in node.types):
        yield "in 32 bits", lambda: compute(args, kwargs).to(torch.int32).to(torch.int64)
    if name in _WRAPPING:
        yield "without wrapping around", functools.partial(_unwrapped, args, kwargs, compute)
    if kwargs.get("alpha", 1) != 1:
        yield "without its factor", lambda: compute(args, {**kwargs, "alpha": 1})
    yield from _rounded_otherwise(name, args, kwargs, compute)
    if name == "remainder" and len(args) == 2 and isinstance(args[1], int):
        yield f"by {args[1] + 1}", lambda: compute([first, args[1] + 1], kwargs)


_FLOOR_AND_TRUNC = {"floor": "trunc", "trunc": "floor"}


def _rounded_otherwise(
    name: str, args: list[Any], kwargs: dict[str, Any], compute: Compute
) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yields what other rules of rounding, and of NaN, give."""
    import torch

    first, *others = args
    if name == "round" and not others and not kwargs:
        yield "with halves rounded up", lambda: torch.floor(first + 0.5)
        yield "with halves rounded away from zero", lambda: torch.trunc(first + torch.copysign(first * 0 + 0.5, first))
        yield "towards zero", lambda: torch.trunc(first)
    mode = kwargs.get("rounding_mode")
    if name == "div" and mode in _FLOOR_AND_TRUNC:
        step = getattr(torch, mode)
        other = _FLOOR_AND_TRUNC[mode]
        yield f"with its quotient rounded before its {mode}", lambda: step(torch.div(*args))
        yield f"rounded as by {other}", lambda: compute(args, {**kwargs, "rounding_mode": other})
    if name in ("remainder", "fmod") and len(args) == 2:
        other = {"remainder": "fmod", "fmod": "remainder"}[name]
        yield f"as {other}", lambda: getattr(torch, other)(*args)
    if name in ("maximum", "minimum") and len(args) == 2:
        choose = torch.gt if name == "maximum" else torch.lt
        yield "without NaN of its first operand", lambda: torch.where(choose(*args), *args)
        yield "without NaN of its second operand", lambda: torch.where(choose(args[1], first), args[1], first)
        yield "without NaN", lambda: (torch.fmax if name == "maximum" else torch.fmin)(*args)
    if name == "cumsum":
        yield "without the element itself", lambda: compute(args, kwargs) - first


def _unwrapped(args: list[Any], kwargs: dict[str, Any], compute: Compute) -> Any:
    """The result in int64, as C++ computes it if narrower integers are promoted.

    Raises:
        ValueError: it is the right one.
    """
    import torch

    right = compute(args, kwargs)
    if right.dtype.is_floating_point or right.dtype in (torch.bool, torch.int64) or right.is_complex():
        raise ValueError("not of narrow integers")
    wide = [arg.to(torch.int64) if isinstance(arg, torch.Tensor) else arg for arg in args]
    result = compute(wide, kwargs)
    if torch.equal(result, right.to(torch.int64)):
        raise ValueError("nothing wraps around")
    return result


def _like(value: Any, args: list[Any], kwargs: dict[str, Any], compute: Compute) -> Any:
    """A value in the shape of the right result."""
    import torch

    result = compute(args, kwargs)
    tensor = value if isinstance(value, torch.Tensor) else torch.as_tensor(value, device=result.device)
    return tensor.to(result.dtype).expand_as(result)


def _shorter(
    name: str, args: list[Any], kwargs: dict[str, Any], compute: Compute
) -> Iterator[tuple[str, Callable[[], Any]]]:
    first = args[0]
    given = args[1] if len(args) > 1 else kwargs.get("dim")
    dims = [given] if isinstance(given, int) else given if isinstance(given, list) and given else range(first.dim())
    for dim in dims:
        size = first.shape[dim]
        for count in (c for c in _SHORTER if c < size):
            for begin, where in ((count, "first"), (0, "last")):

                def make(dim: int = dim, begin: int = begin, kept: int = size - count, size: int = size) -> Any:
                    result = compute([first.narrow(dim, begin, kept), *args[1:]], kwargs)
                    return result * (kept / size) if name == "mean" else result

                yield f"without the {where} {count} of dimension {dim}", make


def _wrong_variances(
    args: list[Any], kwargs: dict[str, Any], compute: Compute
) -> Iterator[tuple[str, Callable[[], Any]]]:
    import torch

    given = args[1] if len(args) > 1 else kwargs.get("dim")
    keepdim = bool(kwargs.get("keepdim", False))

    def added() -> Any:
        _, mean = compute(args, {**kwargs, "keepdim": True})
        _, plain = compute(args, kwargs)
        return [torch.mean((args[0] + mean).square(), given, keepdim), plain]

    def replaced(function: Callable[[Any, Any], Any]) -> Callable[[], Any]:
        return lambda: list(function(*compute(args, kwargs)))

    yield "with the mean added", added
    yield "with a quotient swapped", replaced(lambda variance, mean: (variance.reciprocal(), mean))
    yield "with a quotient swapped", replaced(lambda variance, mean: (variance, mean.reciprocal()))
    yield (
        "with the mean left out",
        lambda: [
            torch.mean(args[0].square(), given, keepdim),
            compute(args, kwargs)[1],
        ],
    )
