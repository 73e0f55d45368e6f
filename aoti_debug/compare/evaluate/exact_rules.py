"""Results of eager that are not the exact ones of their operands, by IEEE 754 and the rules of integers. In a child.

A package that computes the same as eager is not right for that reason: both may call the same code, or leave to the
machine what C++ leaves undefined. Casts, comparisons and arithmetic of integers have an exact result, which is computed
here without torch's operator. What is found is a fact about the program and its inputs, whatever the package does.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from aoti_debug.base import dtypes, wording
from aoti_debug.base.frozen import dataclass
from aoti_debug.package.argument_values import unravel

if TYPE_CHECKING:
    import numpy as np
    import torch

_MAX_ELEMENTS = 1 << 22  # of a result; a larger one is not looked at
_CASTS = frozenset({"to", "_to_copy", "type_as", "copy", "convert_element_type"})
_COMPARISONS: Mapping[str, Callable[[Any, Any], Any]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}
_SIGNS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_SHIFTS = frozenset({"bitwise_left_shift", "bitwise_right_shift", "__lshift__", "__rshift__"})
_OF_INTEGERS = frozenset(
    {
        *("add", "sub", "rsub", "mul", "neg", "abs", "square", "pow", "sum", "prod", "cumsum", "cumprod"),
        *("dot", "mv", "mm", "bmm", "matmul", "addmm", "linear", "index_add", "scatter_add"),
    }
)
_UNDEFINED = "C++ leaves undefined what becomes of them, and another device or version may have other results"
_DIVISIONS = frozenset({"floor_divide", "remainder", "fmod", "div"})


@dataclass(frozen=True)
class Inexact:
    """The elements of an operator's result that are not what exact arithmetic gives.

    Attributes:
        seen: as a predicate of the operator: "wraps around in 3 of 40 elements, …".
        is_open: the exact result is another one, or there is none, so that eager's is no proof of the package's.
    """

    seen: str
    is_open: bool


def has_rule(target: str) -> bool:
    """True if some results of an operator have a rule here."""
    name = _name(target)
    return name in _CASTS | _COMPARISONS.keys() | _SHIFTS | _OF_INTEGERS | _DIVISIONS


def _name(target: str) -> str:
    """ "add" of aten.add.Tensor and of aten.add_.Tensor; "" of what is no operator of torch."""
    if not target.startswith(("aten.", "prims.")):
        return ""
    name = target.split(".")[1]
    return name.removesuffix("_") if not name.endswith("__") else name


def inexact(target: str, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> Inexact | None:
    """Find the elements of an operator's result that are not exact; None without any, or without a rule for it.

    Args:
        args, kwargs: as they were before the call.
    """
    import torch

    name = _name(target)
    tensors = [item for item in args if isinstance(item, torch.Tensor)]
    if not name or not tensors or not all(map(_is_plain, (*tensors, result))):
        return None
    with contextlib.suppress(RuntimeError, TypeError, ValueError, OverflowError, IndexError):
        if name == "copy":
            return _cast(tensors[1].expand_as(result), result)
        if name in _CASTS:
            return _cast(tensors[0], result)
        if name in _COMPARISONS and len(args) > 1:
            return _comparison(name, args[0], args[1], result)
        if name in _SHIFTS and len(args) > 1:
            return _shift(args[1], result)
        if not _is_integer(result.dtype) or not all(_is_integer(tensor.dtype) for tensor in tensors):
            return None
        if name in _DIVISIONS and len(args) > 1:
            return _division(name, args, kwargs, result)
        if name in _OF_INTEGERS:
            return _integers(target, args, kwargs, result)
    return None


def _is_plain(value: Any) -> bool:
    import torch

    if not isinstance(value, torch.Tensor) or value.layout != torch.strided or value.is_quantized:
        return False
    if value.numel() > _MAX_ELEMENTS or value.dtype.is_complex:
        return False
    return not torch._C._functorch.is_functorch_wrapped_tensor(value)


def _is_integer(dtype: torch.dtype) -> bool:
    import torch

    return not (dtype.is_floating_point or dtype.is_complex or dtype == torch.bool)


def _cast(before: torch.Tensor, after: torch.Tensor) -> Inexact | None:
    import torch

    if before.dtype == after.dtype or before.dtype == torch.bool or after.dtype == torch.bool:
        return None
    name = dtypes.bare_name(after.dtype)
    old, new = before.cpu().reshape(-1), after.cpu().reshape(-1)
    if before.dtype.is_floating_point and _is_integer(after.dtype):
        info, exact = torch.iinfo(after.dtype), old.double().trunc()
        fits = (exact >= float(info.min)) & (exact < 2.0 ** _value_bits(after.dtype))
        if not bool(fits.all()):
            first = _first(~fits, before, lambda i: f"{_text(old[i])} becomes {int(new[i])}")
            count = _count(~fits)
            return Inexact(f"converts {count} that {name} cannot hold ({first}): {_UNDEFINED}", is_open=True)
        other = new.double() != exact
        return _contradiction(other, before, lambda i: f"{_text(old[i])} becomes {int(new[i])}", "truncation")
    if _is_integer(before.dtype):
        lost = _exact(old) != _exact(new)
        if not lost.any():
            return None
        first = _first(_tensor(lost), before, lambda i: f"{int(old[i])} becomes {_text(new[i])}")
        return Inexact(f"converts {_count(_tensor(lost))} that {name} cannot hold exactly ({first})", is_open=False)
    overflow = old.isfinite() & new.isinf()
    if not bool(overflow.any()):
        return None
    first = _first(overflow, before, lambda i: f"{_text(old[i])} becomes {_text(new[i])}")
    return Inexact(f"converts {_count(overflow)} that are too large for {name} ({first})", is_open=False)


def _value_bits(dtype: torch.dtype) -> int:
    """The number of bits of an integer without its sign."""
    import torch

    return 8 * int(dtype.itemsize) - int(torch.iinfo(dtype).min < 0)


def _comparison(name: str, first: Any, second: Any, result: torch.Tensor) -> Inexact | None:
    import torch

    exact = [_operand(item, result) for item in (first, second)]
    wanted = _tensor(_COMPARISONS[name](*exact))
    got = result.cpu().reshape(-1)
    if got.dtype != torch.bool:
        return None
    other = got != wanted
    if not bool(other.any()):
        return None
    has_dimensions = isinstance(second, torch.Tensor) and (second.dim() > 0 or result.dim() == 0)
    is_number = not has_dimensions and isinstance(first, torch.Tensor) and first.dtype.is_floating_point
    common = dtypes.bare_name(torch.result_type(first, second))
    where = _first(
        other, result, lambda i: f"{_plain(exact[0][i])} {_SIGNS[name]} {_plain(exact[1][i])} is {bool(got[i])}"
    )
    return Inexact(
        f"gives {_count(other)} that the exact numbers do not ({where}): the operands are compared as {common}",
        is_open=not is_number,
    )


def _operand(value: Any, result: torch.Tensor) -> np.ndarray:
    """An operand of a comparison as exact numbers, one for each element of the result."""
    import numpy as np
    import torch

    if isinstance(value, torch.Tensor):
        return _exact(value.cpu().expand(result.shape).reshape(-1))
    return np.full(result.numel(), np.longdouble(value))


def _exact(values: torch.Tensor) -> np.ndarray:
    """Numbers in a type of numpy that holds all of them: 64 bits of mantissa."""
    import numpy as np
    import torch

    held = values.to(torch.float64) if values.dtype.is_floating_point else values
    exact: np.ndarray = held.numpy().astype(np.longdouble)
    return exact


def _tensor(values: np.ndarray) -> torch.Tensor:
    import torch

    return torch.from_numpy(values)


def _shift(by: Any, result: torch.Tensor) -> Inexact | None:
    import torch

    if not _is_integer(result.dtype):
        return None
    bits = 8 * result.dtype.itemsize
    amounts = torch.as_tensor(by).cpu().expand(result.shape).reshape(-1)
    bad = (amounts < 0) | (amounts >= bits)
    if not bool(bad.any()):
        return None
    first = _first(bad, result, lambda i: f"by {int(amounts[i])}")
    return Inexact(
        f"shifts {_count(bad)} by less than 0 or by {bits} bits and more ({first}): {_UNDEFINED}", is_open=True
    )


def _division(name: str, args: Sequence[Any], kwargs: Mapping[str, Any], result: torch.Tensor) -> Inexact | None:
    import numpy as np
    import torch

    a, b = (torch.as_tensor(item).to(torch.int64).cpu().expand(result.shape).reshape(-1).numpy() for item in args[:2])
    mode = kwargs.get("rounding_mode")
    if name == "div" and mode not in ("floor", "trunc"):
        return None
    with np.errstate(all="ignore"):
        floor, remainder = np.floor_divide(a, b), np.remainder(a, b)
        truncated = floor + ((remainder != 0) & ((a < 0) != (b < 0)))
    wanted = {"floor_divide": floor, "remainder": remainder, "fmod": a - truncated * b}
    exact = wanted.get(name, truncated if mode == "trunc" else floor)
    got = result.cpu().reshape(-1).to(torch.int64)
    other = got != _tensor(exact)
    return _contradiction(other, result, lambda i: f"of {a[i]} and {b[i]} it is {int(got[i])}", "integer division")


def _integers(target: str, args: Sequence[Any], kwargs: Mapping[str, Any], result: torch.Tensor) -> Inexact | None:
    """Find the elements that wrap around: the operator has another result in float64, by half of the dtype's range."""
    import torch

    from aoti_debug.compare.evaluate.functions import implementation_of

    wide = [
        item.cpu().double() if isinstance(item, torch.Tensor) and _is_value(target, i) else item
        for i, item in enumerate(args)
    ]
    named = {key: value for key, value in kwargs.items() if key != "dtype"}
    exact = implementation_of(target)(*wide, **named)
    if not isinstance(exact, torch.Tensor) or exact.shape != result.shape:
        return None
    exact, got = exact.reshape(-1), result.cpu().reshape(-1)
    wrapped = (exact - got.double()).abs() >= 2.0 ** (8 * result.dtype.itemsize - 1)
    if _name(target) == "pow":  # a negative one of 0 has no exact result
        wrapped &= (torch.as_tensor(args[1]) >= 0).cpu().expand(result.shape).reshape(-1)
    if not bool(wrapped.any()):
        return None
    name = dtypes.bare_name(result.dtype)
    first = _first(wrapped, result, lambda i: f"{int(got[i])}, and not about {float(exact[i]):.10g}")
    return Inexact(f"wraps around in {_count(wrapped)}, beyond the range of {name} ({first})", is_open=False)


def _is_value(target: str, position: int) -> bool:
    """False for the argument of an operator that is an index."""
    return not (_name(target) in ("index_add", "scatter_add") and position == 2)


def _contradiction(other: torch.Tensor, like: torch.Tensor, text: Callable[[int], str], rule: str) -> Inexact | None:
    if not bool(other.any()):
        return None
    return Inexact(f"gives {_count(other)} that {rule} does not ({_first(other, like, text)})", is_open=True)


def _count(marked: torch.Tensor) -> str:
    """ "3 of 40 elements"."""
    return f"{int(marked.sum())} of {wording.pluralize(marked.numel(), 'element')}"


def _first(marked: torch.Tensor, like: torch.Tensor, text: Callable[[int], str]) -> str:
    """ "the first, [2, 5]: 1.5 becomes 1"; of a number without dimensions the text alone."""
    index = int(marked.to(dtype=marked.dtype).int().argmax())
    place = ", ".join(map(str, unravel(index, tuple(like.shape))))
    return f"the first, [{place}]: {text(index)}" if place else text(index)


def _text(value: torch.Tensor) -> str:
    number = value.item()
    return repr(number) if isinstance(number, int) else f"{number:.9g}"


def _plain(value: Any) -> str:
    """An exact number in as few digits as tell it."""
    return str(int(value)) if value == value and abs(value) < 2**64 and value == int(value) else f"{float(value):.17g}"
