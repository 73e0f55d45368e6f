"""Lowerings of single operators that are wrong: `--import benchmarks.comparison.wrong_lowerings` plants one.

AOTI_WRONG_LOWERING names it.

Only the process that lowers has the variable; elsewhere the import does nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

VARIABLE = "AOTI_WRONG_LOWERING"
Lowering = Callable[..., Any]


def _aten(name: str) -> Lowering:
    """The right lowering of an operator: "mul.Tensor"."""
    import torch
    from torch._inductor.lowering import lowerings

    packet, overload = name.split(".")
    lowering: Lowering = lowerings[getattr(getattr(torch.ops.aten, packet), overload)]
    return lowering


def _one_short(right: Lowering) -> Lowering:
    """A reduction that leaves out the first element of its first dimension."""

    def wrong(x: Any, dims: Any = None, *args: Any, **kwargs: Any) -> Any:
        dim = dims[0] if isinstance(dims, list | tuple) and dims else dims if isinstance(dims, int) else 0
        size = x.get_size()[dim]
        return right(_aten("slice.Tensor")(x, dim, 1, size), dims, *args, **kwargs)

    return wrong


def _swapped(right: Lowering) -> Lowering:
    return lambda a, b, *rest, **kwargs: right(b, a, *rest, **kwargs)


def _first_only(right: Lowering) -> Lowering:
    return lambda a, b, **kwargs: right(a, 1.0 if a.get_dtype().is_floating_point else 1, **kwargs)


def _wrong_mask(right: Lowering) -> Lowering:
    return lambda condition, a, b: right(_aten("logical_not.default")(condition), a, b)


def _other(name: str) -> Callable[[Lowering], Lowering]:
    return lambda _: lambda x, *args, **kwargs: _aten(name)(x, *args, **kwargs)


def _scaled(factor: float) -> Callable[[Lowering], Lowering]:
    return lambda right: lambda *args, **kwargs: _aten("mul.Tensor")(right(*args, **kwargs), factor)


def _next_row(right: Lowering) -> Lowering:
    def wrong(table: Any, index: Any, *args: Any, **kwargs: Any) -> Any:
        last = table.get_size()[0] - 1
        following = _aten("clamp.default")(_aten("add.Tensor")(index, 1), 0, last)
        return right(table, following, *args, **kwargs)

    return wrong


def _reversed(right: Lowering) -> Lowering:
    def wrong(tensors: Any, dim: int = 0) -> Any:
        return right(list(tensors)[::-1], dim)

    return wrong


def _dropped_cast(right: Lowering) -> Lowering:
    """Rounds to the nearest integer, not to zero."""
    import torch

    def wrong(x: Any, dtype: Any) -> Any:
        if dtype in (torch.int32, torch.int64) and x.get_dtype().is_floating_point:
            return right(_aten("round.default")(x), dtype)
        return right(x, dtype)

    return wrong


def _overflowing(right: Lowering) -> Lowering:
    """Multiplies 64 bit integers in 32 bits."""
    import torch

    def wrong(a: Any, b: Any) -> Any:
        result = right(a, b)
        if result.get_dtype() != torch.int64:
            return result
        convert = _convert()
        return convert(convert(result, torch.int32), torch.int64)

    return wrong


def _convert() -> Lowering:
    import torch
    from torch._inductor.lowering import lowerings

    lowering: Lowering = lowerings[torch.ops.prims.convert_element_type.default]
    return lowering


WRONG: dict[str, tuple[str, str, Callable[[Lowering], Lowering]]] = {
    "relu for abs": ("wrong lowering", "aten.relu.default", _other("abs.default")),
    "sub swapped": ("swapped operands", "aten.sub.Tensor", _swapped),
    "div swapped": ("swapped operands", "aten.div.Tensor", _swapped),
    "mul drops a factor": ("wrong lowering", "aten.mul.Tensor", _first_only),
    "sum one short": ("off-by-one reduction", "aten.sum.dim_IntList", _one_short),
    "mean one short": ("off-by-one reduction", "aten.mean.dim", _one_short),
    "amax one short": ("off-by-one reduction", "aten.amax.default", _one_short),
    "where inverted": ("wrong mask", "aten.where.self", _wrong_mask),
    "exp for exp2": ("wrong lowering", "aten.exp.default", _other("exp2.default")),
    "tanh for sigmoid": ("wrong lowering", "aten.tanh.default", _other("sigmoid.default")),
    "erf for tanh": ("wrong lowering", "aten.erf.default", _other("tanh.default")),
    "rsqrt for reciprocal": ("wrong lowering", "aten.rsqrt.default", _other("reciprocal.default")),
    "rsqrt by a per cent": ("wrong lowering", "aten.rsqrt.default", _scaled(1.01)),
    "exp by three per cent": ("wrong lowering", "aten.exp.default", _scaled(1.03)),
    "sigmoid for tanh": ("wrong lowering", "aten.sigmoid.default", _other("tanh.default")),
    "embedding of the next row": ("wrong index", "aten.embedding.default", _next_row),
    "cat reversed": ("wrong offset", "aten.cat.default", _reversed),
    "rounded to nearest": ("dropped cast", "prims.convert_element_type.default", _dropped_cast),
    "32 bits": ("integer overflow", "aten.mul.Tensor", _overflowing),
}


def plant(name: str) -> None:
    import torch
    from torch._inductor import lowering

    _, operator, wrong = WRONG[name]
    namespace, packet, overload = operator.split(".")
    target = getattr(getattr(getattr(torch.ops, namespace), packet), overload)
    lowering.lowerings[target] = wrong(lowering.lowerings[target])


if os.environ.get(VARIABLE):
    plant(os.environ[VARIABLE])
